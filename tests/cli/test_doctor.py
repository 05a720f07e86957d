"""`emelex doctor` in its first form: each line ok, warn or fail, and it changes nothing."""

from __future__ import annotations

import pytest

from emelex_core import MemoryStore
from program import Program

NAMES = ["python", "sqlite", "config", "home", "database", "file system", "cores", "memory", "model", "engine"]


def _states(emelex: Program, **env: str) -> tuple[int, dict[str, str]]:
    result = emelex("doctor", "--json", env=dict(env))
    found = result.json
    assert [check["name"] for check in found["checks"]] == NAMES
    assert all(set(check) == {"name", "state", "detail", "hint"} for check in found["checks"])
    assert found["ok"] == (result.code == 0)
    return result.code, {check["name"]: check["state"] for check in found["checks"]}


@pytest.mark.model
def test_a_sound_machine(emelex: Program) -> None:
    """Nothing fails; the model's digest and the wheel's instructions are told; no Home is made."""
    code, states = _states(emelex)
    assert code == 0
    assert "fail" not in states.values()
    assert not emelex.home.exists()
    text = emelex("doctor").out
    assert "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53" in text
    assert "llama.cpp" in text
    assert all(line.split()[0] in ("ok", "warn", "fail", "hint:") for line in text.splitlines())


def test_each_fault_fails_its_own_line(emelex: Program) -> None:
    """A loose database and a missing model: two fails, exit 1, the rest is told all the same."""
    MemoryStore.open(emelex.home, create=True).close()
    emelex.database.chmod(0o644)
    code, states = _states(emelex, EMELEX_MODELS_DEFAULT="local:missing")
    assert code == 1
    assert {name for name, state in states.items() if state == "fail"} == {"database", "model"}


def test_a_loose_home_is_a_warning_or_a_failure(emelex: Program) -> None:
    """Readable by others: a warning with what to do; writable: a failure."""
    emelex.home.mkdir(mode=0o755)
    emelex.home.chmod(0o755)
    assert _states(emelex)[1]["home"] == "warn"
    emelex.home.chmod(0o777)
    code, states = _states(emelex)
    assert (code, states["home"]) == (1, "fail")


def test_too_many_threads_are_a_warning(emelex: Program) -> None:
    """One core is to stay free."""
    assert _states(emelex, EMELEX_WORKER_THREADS="64")[1]["cores"] == "warn"
