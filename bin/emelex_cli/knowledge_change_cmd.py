"""What a person changes: `emelex memory knowledge add`, `activate`, `pin`, `forget`, `accept`, `undo` (162)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from emelex_cli import knowledge_shapes, shapes
from emelex_cli.call import Call, typed
from emelex_cli.output import counted, one_line
from emelex_core import limits
from emelex_core.errors import Invalid, NotFound, UsageError

if TYPE_CHECKING:
    from emelex_core.knowledge.records import Knowledge
    from emelex_core.store import MemoryStore


def add(
    call: Call,
    *,
    key: str,
    content: str,
    confidence: float = 1.0,
    session: str | None = None,
    event: int | None = None,
) -> int:
    """Store what a person says under a key. Raises: Invalid, NotFound, UsageError."""
    if event is not None and session is None:
        raise UsageError("--event needs --session")
    text = _standard_input() if content == "-" else typed(content)
    with call.writing(create=True) as store:
        source = None
        if session is not None:
            from emelex_core.knowledge.by_hand import SourceEvent

            source = SourceEvent(session_id=store.get_session(session.lower()).id, sequence=event)
        entry = store.remember(call.directory, typed(key), text, confidence=confidence, source=source)
    return _told(call, "add", entry, f"version {entry.version} is active")


def activate(call: Call, *, key: str, version: int | None = None) -> int:
    """Put a version into use; what was forgotten comes back."""
    with call.writing() as store:
        entry = store.activate(call.directory, typed(key), version=version)
    return _told(call, "activate", entry, f"version {entry.version} is active")


def pin(call: Call, *, key: str) -> int:
    """Keep an entry from distillation and retention."""
    with call.writing() as store:
        entry = store.pin(call.directory, typed(key))
    return _told(call, "pin", entry, "pinned")


def unpin(call: Call, *, key: str) -> int:
    """Take the pin away."""
    with call.writing() as store:
        entry = store.unpin(call.directory, typed(key))
    return _told(call, "unpin", entry, "not pinned")


def forget(call: Call, *, key: str, reason: str | None = None) -> int:
    """Hide an entry at once; `maintain` removes it after the grace."""
    why = None if reason is None else typed(reason)
    with call.writing() as store:
        entry = store.forget(call.directory, typed(key), reason=why)
    days = limits.RETENTION_TOMBSTONE_MS // limits.DAY_MS
    return _told(
        call,
        "forget",
        entry,
        f"forgotten; `knowledge activate` brings it back for {days} days, then `maintain` removes it",
    )


def accept(call: Call, *, proposals: list[str]) -> int:
    """Apply proposals as a person's own changes, each for itself."""
    with call.writing() as store:
        for proposal in proposals:
            found = store.accept(call.directory, proposal.lower())
            if call.out.json:
                entry = _entry(store, call, found.key)
                call.out.record(
                    {
                        "action": "accept",
                        "proposal": knowledge_shapes.proposal(found),
                        "knowledge": None if entry is None else knowledge_shapes.entry(entry),
                    },
                    now=True,
                )
            else:
                call.out.line(f"accepted {found.id}: {found.operation} {one_line(found.key)}")
    return 0


def reject(call: Call, *, proposals: list[str]) -> int:
    """Decline proposals; nothing else changes."""
    with call.writing() as store:
        for proposal in proposals:
            found = store.reject(call.directory, proposal.lower())
            if call.out.json:
                call.out.record(
                    {"action": "reject", "proposal": knowledge_shapes.proposal(found), "knowledge": None}, now=True
                )
            else:
                call.out.line(f"rejected {found.id}: {found.operation} {one_line(found.key)}")
    return 0


def undo(call: Call, *, job: str) -> int:
    """Take back what one distillation changed."""
    with call.writing() as store:
        undone = store.undo(call.directory, job.lower())
    if call.out.json:
        call.out.record(
            {
                "action": "undo",
                "job": undone.job_id,
                "restored": list(undone.restored),
                "removed": list(undone.removed),
                "kept": list(undone.kept),
                "proposals": undone.proposals,
            }
        )
        return 0
    call.out.line(
        f"undid job {undone.job_id}: {counted(len(undone.restored), 'entry')} as before, "
        f"{counted(len(undone.removed), 'entry')} removed, "
        f"{counted(undone.proposals, 'proposal')} rejected"
    )
    for key in undone.kept:
        call.out.note(f"{shapes.short(key, 80)} was changed since and stays as it is")
    return 0


def _told(call: Call, action: str, entry: Knowledge, done: str) -> int:
    if call.out.json:
        call.out.record({"action": action, "knowledge": knowledge_shapes.entry(entry)})
    else:
        call.out.line(f"{one_line(entry.key)}: {done}")
    return 0


def _entry(store: MemoryStore, call: Call, key: str) -> Knowledge | None:
    """The entry after a decision; a tombstone of one that retention has purged meanwhile leaves none."""
    try:
        return store.get_knowledge(call.directory, key)
    except NotFound:
        return None


def _standard_input() -> str:
    """Content from a pipe, without the line break that ends it. Raises: Invalid for what is too long or no text."""
    data = sys.stdin.buffer.read(limits.KNOWLEDGE_CONTENT_BYTES_MAX + 2)
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise Invalid(f"standard input: byte {error.start} is not UTF-8") from None
