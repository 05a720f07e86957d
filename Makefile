# Every target sets up what it needs first; on a fresh machine `make test` and `make demo` are complete commands.
# PYTHON=python3.12 chooses the interpreter of .venv, EMELEX_WHEEL_CACHE=DIR the place of the built llama-cpp-python.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types bench quality lock clean

BIN := .venv/bin

help:  ## Say what each target does
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup:  ## Make .venv from requirements.lock; build llama-cpp-python once
	@sh ops/setup.sh

demo: setup  ## Turn a real transcript into a Summary and Knowledge, with the real model
	@sh ops/demo.sh

test: lint types  ## Run every check, then every test
	@$(BIN)/pytest --numprocesses=2 --dist=loadfile

lint: setup  ## Check style, format, shell scripts and the floors
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "run: $(BIN)/ruff format" >&2; exit 1; }
	@$(BIN)/shellcheck ops/*.sh .ci/run
	@$(BIN)/lint-imports --no-cache >.venv/lint-imports.log || { cat .venv/lint-imports.log >&2; exit 1; }

types: setup  ## Check types, strictly, with mypy and pyright
	@$(BIN)/mypy --no-error-summary
	@PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT=1 PYRIGHT_PYTHON_GLOBAL_NODE=off $(BIN)/pyright --warnings >.venv/pyright.log || \
		{ cat .venv/pyright.log >&2; exit 1; }

bench: setup  ## Run the benchmarks: one JSON line each, with a ratio to its baseline
	@for bench in tests/bench/bench_*.py; do $(BIN)/python -P "$$bench" || exit 1; done

quality: setup  ## Measure Summaries and Knowledge, some hours; writes docs/quality.md
	@$(BIN)/python -P tests/bench/quality --write docs/quality.md

lock: setup  ## Write requirements.lock again from pyproject.toml (UPGRADE=1: newest versions)
	@sh ops/lock.sh $(if $(UPGRADE),--upgrade)
	@sh ops/setup.sh

clean:  ## Remove everything that can be made again; the wheel cache stays
	@rm -rf .venv .demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
