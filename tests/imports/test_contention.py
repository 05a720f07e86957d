"""Several imports of one transcript at once, and imports that die (formats.md, section 6; behaviours 36 and 181)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from emelex_core import MemoryStore
from emelex_core.errors import Invalid
from foreign_rows import CLAUDE_ID, growing_claude_code
from stores import answer, child, rows, sound
from transcripts import holdings, import_into

IMPORT = """
import json, sys
from pathlib import Path
from emelex_core import MemoryStore
from emelex_core.imports.importer import import_transcripts

home, path, workspace = sys.argv[1:]
said, failed = [], []
with MemoryStore.open(home) as store:
    totals = import_transcripts(
        store, [Path(path)], format="auto", workspace=Path(workspace), dry_run=False, distill=True,
        listen=lambda session: said.append([session.source_id, session.already, session.events]),
        problem=lambda where, error: failed.append(repr(error)),
    )
print(json.dumps({"said": said, "failed": failed, "events": totals.events}))
"""


class Scene:
    """A Home, a workspace, and a transcript that is imported into it by processes."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.path = folder / f"{CLAUDE_ID}.jsonl"
        self.lines = growing_claude_code()
        self.write()
        MemoryStore.open(self.home, create=True).close()

    def write(self, lines: int | None = None) -> None:
        """Write the transcript as it is after so many lines."""
        self.path.write_bytes(b"".join(line + b"\n" for line in self.lines[:lines]))

    def start(self, *, fault: str = "", action: str = "") -> subprocess.Popen[str]:
        """Begin an import in a process of its own."""
        env = {"EMELEX_FAULT": fault, "EMELEX_FAULT_ACTION": action}
        return child(IMPORT, self.home, self.path, self.workspace, env=env)

    def holdings(self) -> dict[str, object]:
        """What the store holds."""
        with MemoryStore.open(self.home) as store:
            return holdings(store)

    def expected(self, folder: Path) -> dict[str, object]:
        """What one import of the file as it is gives."""
        with MemoryStore.open(folder / "expected", create=True) as store:
            import_into(store, self.path, workspace=self.workspace)
            return holdings(store)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A scene with a store in which nothing is."""
    return Scene(tmp_path)


@contextmanager
def _stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    """A process that stops itself at a fault point, while it stands; then it goes on."""
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


@pytest.mark.parametrize("point", ["append.before_commit", "import.batch_committed", "import.before_distillation"])
def test_two_first_imports_at_once(scene: Scene, tmp_path: Path, point: str) -> None:
    """One stands wherever it stands; the other waits for it and finds everything there."""
    with scene.start(fault=point, action="stop") as first:
        with _stopped(first):
            second = scene.start()
        told: list[dict[str, Any]] = [answer(first), answer(second)]
    assert [said["failed"] for said in told] == [[], []]
    assert scene.holdings() == scene.expected(tmp_path)
    assert sorted(said["events"] for said in told)[0] == 0
    assert rows(scene.home / "memory" / "emelex.sqlite3", "SELECT count(*) FROM sessions") == [(2,)]


@pytest.mark.parametrize("lines", [None, 9], ids=["new", "grown"])
def test_many_at_once(scene: Scene, tmp_path: Path, lines: int | None) -> None:
    """Five processes import one file, new or grown: nobody fails, and it is there once."""
    if lines is not None:
        scene.write(lines)
        answer(scene.start())
        scene.write()
    processes = [scene.start() for _ in range(5)]
    told = [answer(process) for process in processes]
    assert [said["failed"] for said in told] == [[]] * 5
    assert scene.holdings() == scene.expected(tmp_path)


@pytest.mark.parametrize("lines", [None, 9], ids=["new", "grown"])
@pytest.mark.parametrize(
    "fault",
    [
        "append.before_commit",
        "append.before_commit:2",
        "append.committed",
        "append.committed:2",
        "import.batch_committed",
        "import.batch_committed:2",
        "import.before_distillation",
    ],
)
def test_a_killed_import(scene: Scene, tmp_path: Path, fault: str, lines: int | None) -> None:
    """Before its first commit it leaves everything as it was; later, whole turns. Importing again makes it whole."""
    database = scene.home / "memory" / "emelex.sqlite3"
    if lines is not None:
        scene.write(lines)
        answer(scene.start())
        scene.write()
    before = scene.holdings()
    with scene.start(fault=fault) as process:
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert sound(database)
    assert rows(database, "SELECT count(*) FROM sessions WHERE last_sequence = 0") == [(0,)]
    if fault == "append.before_commit":
        assert scene.holdings() == before
    told = answer(scene.start())
    assert told["failed"] == []
    assert scene.holdings() == scene.expected(tmp_path)
    assert answer(scene.start())["events"] == 0


def test_a_failed_import_leaves_nothing(scene: Scene) -> None:
    """A workspace that is none: the error is told for the file, and no empty Session stays behind."""
    with MemoryStore.open(scene.home) as store:
        database = store.database.path
        scene.workspace.rmdir()
        scene.workspace.write_text("a file")
        with pytest.raises(Invalid, match="workspace"):
            import_into(store, scene.path, workspace=scene.workspace)
    assert rows(database, "SELECT count(*) FROM sessions") == [(0,)]
