"""Two processes and the mutation lock: each order of binding and removing, and a kill at every fault point.

Races are made to happen: a process stops itself at a fault point (EMELEX_FAULT_ACTION=stop) and the test lets it go on.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from emelex_core import MemoryStore, Session
from emelex_core.errors import ModelSnapshotInvalid
from emelex_core.home import Home
from emelex_core.models import InstalledModel, ModelManager
from stores import answer, child

BIND = """
    import json, sys
    from emelex_core import MemoryStore
    from emelex_core.errors import EmelexError
    from emelex_core.home import Home
    from emelex_core.models import ModelManager, files
    from pathlib import Path
    files.LOCK_WAIT_SECONDS = float(sys.argv[4])
    home = Home(Path(sys.argv[1]))
    manager = ModelManager(home)
    with MemoryStore.open(home) as store:
        try:
            model = manager.get(sys.argv[3])
            print(json.dumps(store.bind_model(sys.argv[2], model, manager=manager).snapshot_id))
        except EmelexError as error:
            print(json.dumps(type(error).__name__))
"""
REMOVE = """
    import json, sys
    from emelex_core.errors import EmelexError
    from emelex_core.home import Home
    from emelex_core.models import ModelManager, files
    from pathlib import Path
    files.LOCK_WAIT_SECONDS = float(sys.argv[3])
    try:
        print(json.dumps(ModelManager(Home(Path(sys.argv[1]))).remove(sys.argv[2]).snapshot_id))
    except EmelexError as error:
        print(json.dumps(type(error).__name__))
"""
INSTALL = """
    import json, sys
    from emelex_core.home import Home
    from emelex_core.models import ModelManager
    from emelex_core.models.probe import Probed
    from pathlib import Path
    manager = ModelManager(Home(Path(sys.argv[1])), prober=lambda path: Probed(grammar=True, engine="a test"))
    print(json.dumps(manager.install(Path(sys.argv[2]), name="small").already))
"""
PATIENT = 60.0
IMPATIENT = 0.2


@pytest.fixture
def model(manager: ModelManager, tiny: Path) -> InstalledModel:
    return manager.install(tiny, name="small").model


@pytest.fixture
def session(place: Home, tmp_path: Path) -> Iterator[Session]:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with MemoryStore.open(place, create=True) as store:
        yield store.start_session(workspace, title="raced")


def bound(place: Home, session: Session) -> str | None:
    with MemoryStore.open(place, read_only=True) as store:
        return store.get_session(session.id).model_snapshot_id


def stopped_at(point: str, code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a process and return when it has stopped itself at a fault point."""
    process = child(code, *arguments, env={"EMELEX_FAULT": point, "EMELEX_FAULT_ACTION": "stop"})
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), "it did not get there"
    return process


def go_on(process: subprocess.Popen[str]) -> object:
    os.kill(process.pid, signal.SIGCONT)
    return answer(process)


def killed_at(point: str, code: str, *arguments: object) -> None:
    process = child(code, *arguments, env={"EMELEX_FAULT": point})
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def test_a_removal_cannot_come_between_proof_and_commit(place: Home, session: Session, model: InstalledModel) -> None:
    """Behaviours 55 and 57: who binds holds the lock through the commit; the removal then sees the binding."""
    binder = stopped_at("bind.validated", BIND, place.root, session.id, model.reference, PATIENT)
    assert answer(child(REMOVE, place.root, model.reference, IMPATIENT)) == "StorageBusy"
    assert bound(place, session) is None
    waiting = child(REMOVE, place.root, model.reference, PATIENT)
    assert go_on(binder) == model.snapshot_id
    assert answer(waiting) == "Refused"
    assert bound(place, session) == model.snapshot_id
    assert ModelManager(place).revalidate(model) == model


def test_a_binding_that_waits_for_a_removal_finds_the_snapshot_gone(
    place: Home, session: Session, manager: ModelManager, model: InstalledModel
) -> None:
    """Behaviour 55: the model was looked up before, and is proven again under the lock."""
    with MemoryStore.open(place) as store:
        remover = stopped_at("model.quarantined", REMOVE, place.root, model.reference, PATIENT)
        with pytest.raises(ModelSnapshotInvalid):
            store.bind_model(session.id, model, manager=manager)
    assert go_on(remover) == model.snapshot_id
    assert bound(place, session) is None


@pytest.mark.parametrize(("point", "is_bound"), [("bind.validated", False), ("bind.committed", True)])
def test_a_binder_that_is_killed_leaves_no_lock_and_no_half(
    place: Home, session: Session, manager: ModelManager, model: InstalledModel, point: str, is_bound: bool
) -> None:
    killed_at(point, BIND, place.root, session.id, model.reference, PATIENT)
    assert (bound(place, session) is not None) == is_bound
    assert manager.revalidate(model) == model
    removal = answer(child(REMOVE, place.root, model.reference, IMPATIENT))
    assert removal == ("Refused" if is_bound else model.snapshot_id)


@pytest.mark.parametrize("point", ["model.staged", "model.copied", "model.recorded"])
def test_an_import_that_is_killed_leaves_nothing_but_sweepings(
    place: Home, manager: ModelManager, tiny: Path, point: str
) -> None:
    """Issue 4, item 3: nothing half-installed; the quarantine is swept later."""
    killed_at(point, INSTALL, place.root, tiny)
    assert manager.list_models() == ((), ())
    assert len(list((place.models / "quarantine").iterdir())) == 1
    swept = manager.collect()
    assert (swept.removed, swept.in_use) == (1, 0)
    assert swept.bytes_freed == (0 if point == "model.staged" else tiny.stat().st_size)
    assert not list((place.models / "quarantine").iterdir())
    assert answer(child(INSTALL, place.root, tiny)) is False


def test_an_import_that_is_killed_after_its_rename_is_whole(place: Home, manager: ModelManager, tiny: Path) -> None:
    killed_at("model.published", INSTALL, place.root, tiny)
    (model,), damaged = manager.list_models()
    assert not damaged
    assert manager.revalidate(model) == model
    assert manager.collect().removed == 0
    assert answer(child(INSTALL, place.root, tiny)) is True


def test_a_removal_that_is_killed_has_removed_and_is_swept(
    place: Home, manager: ModelManager, model: InstalledModel
) -> None:
    killed_at("model.quarantined", REMOVE, place.root, model.reference, PATIENT)
    assert manager.list_models() == ((), ())
    swept = manager.collect()
    assert (swept.removed, swept.bytes_freed) == (1, model.size)
    assert not list((place.models / "quarantine").iterdir())


def test_two_imports_of_the_same_file_make_one_snapshot(place: Home, manager: ModelManager, tiny: Path) -> None:
    """The slower one finds the faster one's snapshot under the lock."""
    slow = stopped_at("model.recorded", INSTALL, place.root, tiny)
    assert answer(child(INSTALL, place.root, tiny)) is False
    assert manager.collect().in_use == 1, "a sweep leaves the one that still works"
    assert go_on(slow) is True
    assert len(manager.list_models()[0]) == 1
    assert not list((place.models / "quarantine").iterdir())
