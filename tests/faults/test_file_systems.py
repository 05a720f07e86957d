"""Real file systems of other kinds, mounted in a namespace of our own (reports K7): read-only, full, without locks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore
from stores import ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounts need root")


def inside(place: Path, mounts: str, code: str) -> list[str]:
    """Run a piece of Python behind some mounts that nobody else sees; return the lines that it prints."""
    (place / "step.py").write_text(textwrap.dedent(code))
    script = f"set -e\n{mounts}\nexec {sys.executable} -P {place}/step.py {place}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=100)
    if done.returncode and ("mount:" in done.stderr or "unshare:" in done.stderr):
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A Home with one Session of two turns, closed cleanly."""
    (tmp_path / "ws").mkdir()
    with MemoryStore.open(tmp_path / "home", create=True) as store:
        session = store.start_session(tmp_path / "ws", title="t")
        with store.claim_session(session.id, tmp_path / "ws") as lease:
            lease.append_turn([Event.user("one"), Event.assistant("two")])
    return tmp_path


READ = """
    import sys
    from pathlib import Path
    from emelex_core import MemoryStore
    from emelex_core.archive.check import check
    from emelex_core.archive.export import export
    from emelex_core.errors import EmelexError, StorageReadOnly
    place = Path(sys.argv[1])
    home = place / "home"
    try:
        with MemoryStore.open(home, read_only=True) as store:
            (session,) = store.list_sessions(place / "ws")
            print(*[event.text for event in store.iterate_events(session)])
            export(store, lambda data: None, workspace=place / "ws")
            print(store.totals().events, check(store).sound)
    except EmelexError as error:
        print(type(error).__name__, error.exit_code, error.message)
    for change in (lambda: MemoryStore.open(home), lambda: MemoryStore.open(home, create=True)):
        try:
            change()
            print("opened for writing")
        except StorageReadOnly as error:
            print("refused", str(home) in error.message)
"""


def test_a_read_only_mount_is_read_and_not_written(place: Path) -> None:
    """189 and K7: status, list, show and export work; a change is refused by name; nothing looks empty."""
    assert inside(place, f"mount --bind {place}/home {place}/home\nmount -o remount,bind,ro {place}/home", READ) == [
        "one two",
        "2 True",
        "refused True",
        "refused True",
    ]


def test_what_a_killed_process_left_in_the_log_is_not_passed_over_on_a_read_only_mount(place: Path) -> None:
    """189: a log that cannot be read beside its shared memory is an error, never the older state behind it."""
    code = """
        import os, sys
        from emelex_core import Event, MemoryStore
        store = MemoryStore.open(sys.argv[1] + "/home")
        session = store.list_sessions()[0]
        lease = store.claim_session(session.id, sys.argv[1] + "/ws")
        lease.replay()
        lease.append_turn([Event.user("in the log")])
        os.kill(os.getpid(), 9)
    """
    subprocess.run([sys.executable, "-P", "-c", textwrap.dedent(code), str(place)], cwd=ROOT)
    log = place / "home" / "memory" / "emelex.sqlite3-wal"
    assert log.stat().st_size > 0
    mounts = f"mount --bind {place}/home {place}/home\nmount -o remount,bind,ro {place}/home"
    assert inside(place, mounts, READ)[0] == "one two in the log"
    (place / "home" / "memory" / "emelex.sqlite3-shm").unlink()
    (first, *_) = inside(place, mounts, READ)
    assert first.startswith("Storage 75")
    assert "its -wal file holds changes" in first


FULL = """
    import os, sys
    from pathlib import Path
    from emelex_core import Event, MemoryStore
    from emelex_core.archive.check import check
    from emelex_core.errors import StorageFull
    place = Path(sys.argv[1])
    home = place / "small" / "home"
    with MemoryStore.open(home, create=True) as store:
        session = store.start_session(place / "ws", title="t")
        lease = store.claim_session(session.id, place / "ws")
        ballast = place / "small" / "ballast"
        ballast.write_bytes(bytes(3_000_000))
        acknowledged = 0
        try:
            while True:
                lease.append_turn([Event.user(f"{acknowledged} " + "x" * 50_000)])
                acknowledged += 1
        except StorageFull as error:
            print("full", "no space" in error.message, error.exit_code)
        try:
            store.store_asset(b"%PDF-1.7" + os.urandom(4_000_000))
        except StorageFull:
            print("image full", len([n for n in os.listdir(store.assets_directory)]))
        print("kept", len(list(store.iterate_events(store.get_session(session.id)))) == acknowledged > 0)
        ballast.unlink()
        try:
            lease.append_turn([Event.user("again")])
        except Exception as error:
            lease.replay()
            lease.append_turn([Event.user("again")])
        print("works again", check(store).sound)
        lease.release()
    with MemoryStore.open(home) as store:
        texts = [event.text.split()[0] for event in store.iterate_events(store.get_session(session.id))]
        print(texts == [str(n) for n in range(acknowledged)] + ["again"])
"""


def test_a_full_disk_costs_the_turn_that_did_not_fit(place: Path) -> None:
    """K7: a tmpfs of 8 MiB, filled by turns and an image; the failed turn is absent, the image leaves nothing."""
    mounts = f"mkdir {place}/small\nmount -t tmpfs -o size=8m,mode=0700 tmpfs {place}/small"
    assert inside(place, mounts, FULL) == [
        "full True 75",
        "image full 0",
        "kept True",
        "works again True",
        "True",
    ]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_file_system_without_locks_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """K7: flock answers ENOLCK, as on a broken NFS; path and cause are named, local storage is suggested."""
    code = """
        import sys
        from emelex_core import MemoryStore
        from emelex_core.errors import Refused
        try:
            MemoryStore.open(sys.argv[1], create=True)
        except Refused as error:
            print(sys.argv[1] in error.message, "lock" in error.message, "local" in error.hint)
    """
    done = subprocess.run(
        [
            "strace",
            "-f",
            "-qq",
            "-o",
            os.devnull,
            "-e",
            "trace=flock",
            "-e",
            "inject=flock:error=ENOLCK",
            sys.executable,
            "-P",
            "-c",
            textwrap.dedent(code),
            str(tmp_path / "home"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    if "ptrace" in done.stderr or "PTRACE" in done.stderr:
        pytest.skip("processes cannot be traced here")
    assert done.stdout.split() == ["True", "True", "True"], done.stderr
    assert not (tmp_path / "home" / "memory" / "emelex.sqlite3").exists()
