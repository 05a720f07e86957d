"""Redacting a transcript: a person's explicit act, with a record, after which every digest proves again (ADR 0018).

The module owns these invariants:

- What is redacted was whole: the history is proven as it is read. Damage is Corrupt, and nothing changes.
- One transaction rewrites the events, the chain behind them, the digests of jobs and Summaries that rest on it, and
  what was derived: contents, quotes, proposals, diagnostics, the title. Each quote stands in its event again.
- The record keeps both chain values, and both digests of each job's source; never the text, nor what looked for it.
- Nobody else uses the Session. Then the bytes go, as in an erasure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import orjson

from emelex_core import codec, digests, limits
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Row, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Invalid, NotFound, SessionBusy
from emelex_core.events import decode_payload
from emelex_core.retention import overwrite, redaction_derived
from emelex_core.retention.masking import Finder, mask_parts
from emelex_core.retention.redaction_derived import Run
from emelex_core.sessions import registry, search

SQL: Final = load("emelex_core", "redaction")


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What was replaced, or in a dry run would be: `places` in `events`, of which `first_sequence` is the first.

    `knowledge` counts versions and proposals that changed or went, `others` titles and diagnostics. The chain values
    are 64 hex digits: the digests of the whole transcript before and after. `clean` says that the file holds nothing of
    the text any more.
    """

    session_id: str
    kind: str
    events: int
    places: int
    first_sequence: int | None
    knowledge: int
    others: int
    chain_before: str
    chain_after: str
    clean: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionRecord:
    """One redaction that was made: where and how much, and the digest of the transcript before and after."""

    kind: str
    first_sequence: int
    events: int
    places: int
    chain_before: str
    chain_after: str
    redacted_at: int


def redact(
    database: Database, session_id: str, find: Finder, *, kind: str, clock: Clock, dry_run: bool = False
) -> Redaction:
    """Replace what `find` finds in a Session, by its full id; `kind` is pattern or secrets.

    Raises: NotFound; SessionBusy while somebody uses it; Invalid while a turn of it is open; Corrupt, Storage.
    """
    if dry_run:
        with database.read() as transaction:
            return _count(transaction, session_id, find, kind, now=clock())
    with overwrite.overwriting(database):
        with database.write() as transaction:
            redaction = _redact(transaction, session_id, find, kind, now=clock())
        if not (redaction.places or redaction.knowledge or redaction.others):
            return redaction
        report = overwrite.finish(database)
    return replace(redaction, clean=overwrite.is_clean(report))


def records(transaction: Transaction, session_id: str) -> list[RedactionRecord]:
    """What was redacted in a Session so far, the first first."""
    return [
        RedactionRecord(
            kind=cast(str, kind),
            first_sequence=cast(int, first),
            events=cast(int, events),
            places=cast(int, places),
            chain_before=cast(bytes, before).hex(),
            chain_after=cast(bytes, after).hex(),
            redacted_at=cast(int, redacted_at),
        )
        for kind, first, events, places, before, after, redacted_at in transaction.all(
            SQL["of_session"], {"id": session_id}
        )
    ]


def _redact(transaction: Transaction, session_id: str, find: Finder, kind: str, *, now: int) -> Redaction:
    last = _require_idle(transaction, session_id, now=now)
    run = _start(transaction, session_id, find)
    before = digests.first_chain(session_id)
    for row in _events(transaction, session_id):
        before = _prove(run, row, before)
        _rewrite(run, row)
    after = run.chain
    if run.events:
        transaction.run(
            SQL["rewrite_head"], {"id": session_id, "chain": after, "bytes": run.bytes_added, "last_sequence": last}
        )
    redaction_derived.rewrite(run, now=now)
    if run.events:
        _note(run, kind, before, after, now=now)
    return _report(run, kind, before, after)


def _count(transaction: Transaction, session_id: str, find: Finder, kind: str, *, now: int) -> Redaction:
    _require_idle(transaction, session_id, now=now)
    run = _start(transaction, session_id, find)
    before = digests.first_chain(session_id)
    for row in _events(transaction, session_id):
        before = _prove(run, row, before)
        _, seen = mask_parts(_payload(row)["parts"], find)
        run.tally(cast(int, row[1]), seen)
    return _report(run, kind, before, before)


def _start(transaction: Transaction, session_id: str, find: Finder) -> Run:
    quotes: dict[int, list[str]] = {}
    for sequence, quote in transaction.all(SQL["quotes"], {"id": session_id}):
        quotes.setdefault(cast(int, sequence), []).append(cast(str, quote))
    jobs: dict[int, list[Row]] = {}
    for row in transaction.all(SQL["jobs"], {"id": session_id}):
        jobs.setdefault(cast(int, row[2]), []).append(row)
    return Run(
        transaction=transaction,
        session_id=session_id,
        find=find,
        quotes=quotes,
        jobs=jobs,
        chain=digests.first_chain(session_id),
    )


def _require_idle(transaction: Transaction, session_id: str, *, now: int) -> int:
    """The last sequence of a Session that nobody uses."""
    head = transaction.one(registry.SQL["head"], {"id": session_id})
    row = transaction.one(SQL["busy"], {"id": session_id, "now": now})
    if head is None or row is None:
        raise NotFound(f"no Session {session_id}")
    if row[0] is not None:
        raise SessionBusy(f"Session {session_id} is in use and was not redacted", held_until=cast(int, row[0]))
    if row[1]:
        raise Invalid(f"a turn of Session {session_id} is open", hint="`emelex memory sessions recover` closes it")
    return cast(int, head[0])


def _events(transaction: Transaction, session_id: str) -> Iterator[Row]:
    """Every event in order, page by page: the rows behind are rewritten meanwhile."""
    after = 0
    while True:
        page = transaction.all(SQL["events"], {"id": session_id, "after": after, "limit": limits.PAGE_EVENTS_MAX})
        yield from page
        if len(page) < limits.PAGE_EVENTS_MAX:
            return
        after = cast(int, page[-1][1])


def _prove(run: Run, row: Row, before: bytes) -> bytes:
    """The old chain value at an event, which must be the stored one. Raises: Corrupt."""
    chain = _next(row, before, cast(bytes, row[7]))
    if chain != row[11]:
        raise Corrupt(
            f"Session {run.session_id}: event {row[1]!s} ({row[2]!s}) is not what was stored; nothing changed"
        )
    return chain


def _rewrite(run: Run, row: Row) -> None:
    """Write one event as it is to be, with its new chain value; note what rests on the prefix that ends here."""
    payload = _payload(row)
    parts, seen = mask_parts(payload["parts"], run.find)
    if seen:
        payload["parts"] = parts
        run.tally(cast(int, row[1]), seen)
        redaction_derived.follow_quotes(run, cast(int, row[1]), seen)
    stated = payload.get("provenance")
    if isinstance(stated, dict):
        moved = run.sources.get(str(cast(dict[str, Any], stated).get("job_id")))
        if moved is not None:
            payload["provenance"] = {**stated, "source_sha256": moved[1]}
    data = orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)
    stored = cast(bytes, row[7])
    if data != stored:
        if len(data) > limits.EVENT_BYTES_MAX:
            raise Invalid(f"event {row[1]!s} would be larger than an event may be")
        decode_payload(data, what=f"Session {run.session_id}: event {row[1]!s}")
        run.bytes_added += len(data) - len(stored)
    run.chain = _next(row, run.chain, data)
    if run.chain != row[11]:
        run.transaction.run(SQL["rewrite_event"], {"row": row[0], "payload": data, "chain": run.chain})
        if data != stored:
            search.index_again(run.transaction, cast(int, row[0]), data)
    _note_sources(run, cast(int, row[1]))


def _note_sources(run: Run, sequence: int) -> None:
    for job_id, kind, through, first_id, last_id, sha256, _ in run.jobs.get(sequence, ()):
        after = digests.source_digest(
            cast(str, kind),
            session_id=run.session_id,
            event_count=cast(int, through),
            first_event_id=cast(str, first_id),
            last_event_id=cast(str, last_id),
            chain=run.chain,
        )
        if after != sha256:
            run.sources[cast(str, job_id)] = (cast(str, sha256), after)


def _note(run: Run, kind: str, before: bytes, after: bytes, *, now: int) -> None:
    row = run.transaction.one(
        SQL["note"],
        {
            "id": run.session_id,
            "kind": kind,
            "first_sequence": run.first,
            "events": run.events,
            "places": run.places,
            "chain_before": before,
            "chain_after": after,
            "now": now,
        },
    )
    assert row is not None
    for job_id, (was, is_now) in run.sources.items():
        run.transaction.run(SQL["note_source"], {"redaction": row[0], "job_id": job_id, "before": was, "after": is_now})


def _next(row: Row, previous: bytes, payload: bytes) -> bytes:
    return digests.next_chain(
        previous,
        sequence=cast(int, row[1]),
        event_id=cast(str, row[2]),
        turn_id=cast(str, row[3]),
        turn_position=cast(int, row[4]),
        turn_size=cast(int, row[5]),
        kind=cast(str, row[6]),
        source_record=cast("str | None", row[8]),
        occurred_at=cast("int | None", row[9]),
        created_at=cast(int, row[10]),
        payload=payload,
    )


def _payload(row: Row) -> dict[str, Any]:
    return cast(dict[str, Any], codec.decode_stored(cast(bytes, row[7]), what=f"event {row[1]!s}"))


def _report(run: Run, kind: str, before: bytes, after: bytes) -> Redaction:
    return Redaction(
        session_id=run.session_id,
        kind=kind,
        events=run.events,
        places=run.places,
        first_sequence=run.first,
        knowledge=run.knowledge,
        others=run.others,
        chain_before=before.hex(),
        chain_after=after.hex(),
        clean=False,
    )
