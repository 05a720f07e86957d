"""`emelex memory sessions export`: one Session as one JSON document (behaviours 160 and 161).

The module owns these invariants:

- An existing file is never touched; a new one appears whole, private and synced, or not at all.
- The export holds every raw event, proven against the Session's chain, and says what its Summary covers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from emelex_cli import shapes
from emelex_cli.call import Call
from emelex_cli.documents import Document
from emelex_cli.output import path_text
from emelex_core import home
from emelex_core.errors import Invalid, Refused, Storage, StorageFull, StorageReadOnly

if TYPE_CHECKING:
    from emelex_core.events import AssetRef
    from emelex_core.sessions.records import Session, StoredEvent
    from emelex_core.store import MemoryStore

EXPORT_VERSION: Final = 1
_KINDS: Final = {errno.ENOSPC: StorageFull, errno.EDQUOT: StorageFull, errno.EROFS: StorageReadOnly}


def export(call: Call, *, session: str, output: str | None = None, everywhere: bool = False) -> int:
    """Write the document to stdout, or to a new file."""
    target = None if output is None else _target(call, output)
    with call.must_read() as store:
        found = call.session(store, session, everywhere=everywhere)
        if target is None:
            # The document is JSON with and without --json.
            call.out.json = True
            _write(store, found, call.out.write)
            return 0
        _write_file(target, lambda write: _write(store, found, write))
    if call.out.json:
        call.out.record({"type": "exported_session", "session": found.id, "path": path_text(target)})
    else:
        call.out.note(f"wrote {path_text(target)}")
    return 0


def _write(store: MemoryStore, found: Session, write: Callable[[str], None]) -> None:
    assets: dict[str, AssetRef] = {}
    with Document(write) as document:
        document.value("schema_version", EXPORT_VERSION)
        document.value("workspace", {"path": found.workspace_path})
        with document.only_object("sessions") as inner:
            inner.value("session", shapes.session(found))
            inner.value("snapshot", None)
            inner.value("coverage", _coverage(found))
            inner.items("events", map(shapes.event, _collecting(store.iterate_events(found), assets)))
            inner.items("assets", (_asset(ref) for ref in assets.values()))
        document.end_only_object()
        document.items("knowledge", ())


def _coverage(found: Session) -> dict[str, int] | None:
    if not found.summary_sequence:
        return None
    return {"summary_sequence": found.summary_sequence, "covered_sequence": found.covered_sequence}


def _collecting(events: Iterator[StoredEvent], assets: dict[str, AssetRef]) -> Iterator[StoredEvent]:
    for event in events:
        assets.update((ref.sha256, ref) for ref in event.media)
        yield event


def _asset(ref: AssetRef) -> dict[str, Any]:
    return {"sha256": ref.sha256, "kind": ref.kind, "media_type": ref.media_type, "size": ref.size}


def _target(call: Call, output: str) -> Path:
    """The file to make. Raises: Refused when something stands there, Invalid when no file can."""
    if not output or "\0" in output or output.endswith("/"):
        raise Invalid(f"{output!r} cannot name a file")
    target = call.place(output)
    if os.path.lexists(target):
        raise Refused(f"{path_text(target)} exists; an export never replaces a file", hint="choose another name")
    if not target.parent.is_dir():
        raise Invalid(f"{path_text(target.parent)} is not a directory")
    return target


def _put(file: TextIO, text: str) -> None:
    file.write(text)


def _write_file(target: Path, produce: Callable[[Callable[[str], None]], None]) -> None:
    """Produce a file beside the target, sync it, and give it its name without replacing anything."""
    temporary = target.with_name(f".{secrets.token_hex(8)}.emelex-export")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, home.PRIVATE_FILE)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="") as file:
            os.fchmod(file.fileno(), home.PRIVATE_FILE)
            produce(lambda text: _put(file, text))
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, target, follow_symlinks=False)
    except FileExistsError:
        raise Refused(f"{path_text(target)} appeared meanwhile; an export never replaces a file") from None
    except OSError as error:
        kind = _KINDS.get(error.errno or 0, Storage)
        raise kind(f"cannot write {path_text(target)}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    home.sync_directory(target.parent)
