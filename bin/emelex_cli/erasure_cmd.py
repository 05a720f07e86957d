"""`emelex memory sessions delete --derived` and `redact`: what is to be gone for good, with a receipt."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING

from emelex_cli import shapes
from emelex_cli.call import Call, typed
from emelex_cli.output import counted
from emelex_core import ids
from emelex_core.errors import NotFound, UsageError

if TYPE_CHECKING:
    from emelex_core.retention.erasure import Receipt
    from emelex_core.retention.masking import Finder
    from emelex_core.store import MemoryStore

_ID_CHARACTERS = 36


def erase(call: Call, *, session: str, everywhere: bool = False) -> int:
    """Delete a Session with what was derived from it, and print a receipt. Raises: SessionBusy, NotFound."""
    with call.writing() as store:
        receipt = store.erase_session(_session_id(call, store, session, everywhere=everywhere))
    if call.out.json:
        call.out.record(
            {
                "type": "erased_session",
                "session": receipt.session_id,
                "deleted": None if receipt.deleted is None else asdict(receipt.deleted),
                "derived": asdict(receipt.derived),
                "file": asdict(receipt.file),
                "clean": receipt.clean,
            }
        )
        return 0
    _told(call, receipt)
    return 0


def redact(
    call: Call,
    *,
    session: str,
    everywhere: bool = False,
    pattern: str | None = None,
    secrets: bool = False,
    dry_run: bool = False,
) -> int:
    """Replace text in a transcript. Raises: UsageError, SessionBusy, Invalid, NotFound, Corrupt."""
    find, kind = _finder(pattern, secrets=secrets)
    with call.writing() as store:
        found = call.session(store, session, everywhere=everywhere)
        done = store.redact_session(found.id, find, kind=kind, dry_run=dry_run)
    if call.out.json:
        fields = asdict(done)
        fields["session"] = fields.pop("session_id")
        call.out.record({"type": "redacted_session", "dry_run": dry_run, **fields})
        return 0
    verb = "would replace" if dry_run else "replaced"
    call.out.line(
        f"{verb} {counted(done.places, 'place')} in {counted(done.events, 'event')} of Session {done.session_id}"
    )
    if done.knowledge:
        call.out.line(f"{counted(done.knowledge, 'piece')} of Knowledge followed")
    if dry_run or not (done.places or done.knowledge or done.others):
        return 0
    if done.places:
        call.out.line(f"the transcript's digest was {done.chain_before} and is {done.chain_after}")
    _note_places(call, clean=done.clean)
    return 0


def _session_id(call: Call, store: MemoryStore, session: str, *, everywhere: bool) -> str:
    """The Session that a prefix names; one that was deleted before is named in full."""
    try:
        return call.session(store, session, everywhere=everywhere).id
    except NotFound:
        if len(session) == _ID_CHARACTERS and ids.is_prefix(session.lower()):
            return session.lower()
        raise


def _finder(pattern: str | None, *, secrets: bool) -> tuple[Finder, str]:
    """What looks for the places, and its kind. Raises: UsageError."""
    if (pattern is None) == (not secrets):
        raise UsageError("redact needs --pattern REGEX or --secrets, one of them")
    if pattern is None:
        from emelex_workers.text import secrets as detector

        return lambda text: [(found.start, found.end) for found in detector.find(text)], "secrets"
    try:
        expression = re.compile(typed(pattern))
    except re.error as error:
        raise UsageError(f"{pattern[:80]!r} is no regular expression: {error}") from None
    if expression.match(""):
        raise UsageError(f"{pattern[:80]!r} matches nothing at all, which is everywhere")
    return lambda text: [match.span() for match in expression.finditer(text)], "pattern"


def _told(call: Call, receipt: Receipt) -> None:
    out, gone, derived = call.out, receipt.deleted, receipt.derived
    if gone is None:
        out.line(f"Session {receipt.session_id} was deleted before; what was derived from it went now")
    else:
        media = f", {counted(gone.assets, 'asset')} ({shapes.size(gone.asset_bytes)})" if gone.assets else ""
        out.line(
            f"erased {gone.id}, {shapes.short(gone.title, 80)}: {counted(gone.events, 'event')}, "
            f"{counted(gone.jobs, 'job')}{media}"
        )
        for problem in gone.problems:
            out.note(f"asset {problem.name} could not be removed: {problem.reason}")
    entries = counted(derived.knowledge, "Knowledge entry")
    out.line(
        f"with it: {entries} and {counted(derived.versions, 'version')}, {counted(derived.proposals, 'proposal')}; "
        f"the search indexes; {shapes.size(receipt.file.bytes_before)} before, "
        f"{shapes.size(receipt.file.bytes_after)} after"
    )
    if derived.kept:
        out.line(f"{counted(derived.kept, 'version')} stay: other Sessions say the same")
    _note_places(call, clean=receipt.clean)


def _note_places(call: Call, *, clean: bool) -> None:
    if not clean:
        call.out.note("the file could not be rewritten as a whole; `emelex memory maintain --vacuum` finishes it")
    call.out.note("backups, exports and the transcripts that Sessions were imported from are not touched")
