"""Checking one Session: every event, chain value, turn, Summary, media link and job source (behaviours 45 to 52, 107).

Replay stops at the first fault; a check goes on. Each event is held against the chain value that is stored before it,
so that one changed event is one finding, and those behind it are judged by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from emelex_core import codec, digests, limits
from emelex_core.archive.records import Finding, Weight
from emelex_core.db.database import Database, Row, Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, NotFound
from emelex_core.events import ROLES, EventKind, MediaPart, Payload, decode_payload
from emelex_core.publish import current_source
from emelex_core.sessions import registry
from emelex_core.sessions.records import Session

SQL: Final = load("emelex_core", "archive")
EVENTS: Final = load("emelex_core", "events")
JOBS: Final = load("emelex_core", "jobs")
_SOURCE: Final = (
    "through_sequence",
    "source_event_count",
    "source_first_event_id",
    "source_last_event_id",
    "source_sha256",
)


@dataclass(slots=True)
class Looked:
    """How much was looked at."""

    events: int = 0
    jobs: int = 0


@dataclass(frozen=True, slots=True)
class _Head:
    """A Session's row as one transaction saw it; what it says is what its events must add up to."""

    session: Session
    last_sequence: int
    chain: bytes


class History:
    """The check of one Session. `findings` yields; `derived` says afterwards what its row should hold."""

    def __init__(self, database: Database, session_id: str, *, now: int, looked: Looked) -> None:
        self._database = database
        self._id = session_id
        self._now = now
        self._looked = looked
        self._bytes = 0
        self._summaries: list[tuple[int, int]] = []
        self.last_sequence = 0
        self.wrong_links: list[int] = []

    def findings(self) -> Iterator[Finding]:
        """Read everything once and yield what is wrong. A Session that was deleted has nothing."""
        with self._database.read() as transaction:
            head = self._head(transaction)
        if head is None:
            return
        self.last_sequence = head.last_sequence
        found = [*self._events(head), *self._row(head), *self._jobs()]
        # What a concurrent deletion took away is no damage.
        with self._database.read() as transaction:
            gone = self._head(transaction) is None
        yield from () if gone else found

    def coverage(self) -> tuple[int, int]:
        """Summary and covered sequence as the newest Summary says."""
        return self._summaries[-1] if self._summaries else (0, 0)

    def _head(self, transaction: Transaction) -> _Head | None:
        row = transaction.one(registry.SQL["head"], {"id": self._id})
        try:
            session = registry.get(transaction, self._id, now=self._now)
        except NotFound:
            return None
        assert row is not None
        return _Head(session, cast(int, row[0]), cast(bytes, row[1]))

    def _events(self, head: _Head) -> Iterator[Finding]:
        chain: bytes | None = digests.first_chain(self._id)
        last: Row | None = None
        expected = 1
        for row in self._rows(head.last_sequence):
            self._looked.events += 1
            sequence = cast(int, row[0])
            self._bytes += len(cast(bytes, row[7]))
            if sequence != expected:
                yield self._damage("history", f"{sequence - expected} events before it are missing", row)
                chain = None
            elif not _continues_turn(last, row):
                yield self._damage("history", f"it does not continue its turn (position {row[3]!s} of {row[4]!s})", row)
            if chain is not None and _chain(chain, row) != row[11]:
                yield self._damage("history", "it was changed after it was stored, or its chain value was", row)
            payload = self._payload(row)
            if isinstance(payload, Finding):
                yield payload
            else:
                yield from self._media(row, payload)
                yield from self._summary(row, payload)
            chain, last, expected = cast(bytes, row[11]), row, sequence + 1
        if expected != head.last_sequence + 1:
            detail = f"events {expected} to {head.last_sequence} are missing"
            yield Finding(weight=Weight.DAMAGE, area="history", session_id=self._id, sequence=expected, detail=detail)
        elif chain != head.chain:
            detail = "the Session's chain value is not that of its last event"
            yield Finding(weight=Weight.DAMAGE, area="history", session_id=self._id, detail=detail)
        if last is not None and cast(int, last[3]) != cast(int, last[4]) - 1:
            yield self._damage("history", "the turn of the last event does not end", last)

    def _rows(self, through: int) -> Iterator[Row]:
        after = 0
        while after < through:
            page: list[Row] = []
            size = 0
            parameters: dict[str, Value] = {
                "session_id": self._id,
                "after": after,
                "through": through,
                "limit": limits.PAGE_EVENTS_MAX,
            }
            with self._database.read() as transaction:
                for row in transaction.iterate(EVENTS["page"], parameters):
                    page.append(row)
                    size += len(cast(bytes, row[7]))
                    if size > limits.PAGE_BYTES_MAX:
                        break
            if not page:
                return
            yield from page
            after = cast(int, page[-1][0])

    def _payload(self, row: Row) -> Payload | Finding:
        try:
            kind = EventKind(cast(str, row[5]))
        except ValueError:
            return self._damage("history", f"its kind {row[5]!r} is unknown", row)
        if row[6] != ROLES[kind]:
            return self._damage("history", f"its role {row[6]!r} does not belong to its kind {kind.value!r}", row)
        try:
            return decode_payload(cast(bytes, row[7]), what="it")
        except Corrupt as error:
            return self._damage("history", error.message, row)

    def _media(self, row: Row, payload: Payload) -> Iterator[Finding]:
        named = [
            (ordinal, part.ref.sha256, part.ref.kind)
            for ordinal, part in enumerate(part for part in payload.parts if isinstance(part, MediaPart))
        ]
        place: dict[str, Value] = {"session_id": self._id, "after": cast(int, row[0]) - 1, "through": row[0]}
        with self._database.read() as transaction:
            linked = [(link[1], link[2], link[3]) for link in transaction.all(EVENTS["links"], place)]
        if linked != named:
            self.wrong_links.append(cast(int, row[0]))
            detail = f"it names {len(named)} media, but other ones are linked ({len(linked)})"
            yield self._finding(Weight.DERIVED, "media", detail, row)

    def _summary(self, row: Row, payload: Payload) -> Iterator[Finding]:
        if row[5] != EventKind.SUMMARY.value:
            return
        stated: dict[str, Any] = payload.provenance or {}
        through = stated.get("through_sequence")
        if not isinstance(through, int) or through >= cast(int, row[0]):
            yield self._damage("summary", "it does not say which events it replaces", row)
            return
        self._summaries.append((cast(int, row[0]), through))
        with self._database.read() as transaction:
            source = current_source(transaction, "compaction", self._id, through)
            job = transaction.one(JOBS["provenance"], {"id": str(stated.get("job_id"))})
        claimed = tuple(stated.get(name) for name in _SOURCE)
        if source is None or claimed != tuple(getattr(source, name) for name in _SOURCE):
            yield self._damage("summary", "it does not describe the events that it replaces", row)
        if job is None or job[:2] != ("completed", self._id) or job[2:] != claimed:
            yield self._damage("summary", f"job {stated.get('job_id')}, which it names, did not make it", row)

    def _row(self, head: _Head) -> Iterator[Finding]:
        session = head.session
        if session.event_bytes != self._bytes:
            detail = f"its row counts {session.event_bytes} bytes of events; there are {self._bytes}"
            yield Finding(weight=Weight.DERIVED, area="history", session_id=self._id, detail=detail)
        if (session.summary_sequence, session.covered_sequence) != self.coverage():
            detail = "its row points to another Summary than the newest one"
            yield Finding(weight=Weight.DERIVED, area="summary", session_id=self._id, detail=detail)

    def _jobs(self) -> Iterator[Finding]:
        with self._database.read() as transaction:
            for job in transaction.all(SQL["jobs_of_session"], {"session_id": self._id}):
                self._looked.jobs += 1
                through = cast(int, job[2])
                source = current_source(transaction, cast(str, job[1]), self._id, through)
                if source is None or job[2:] != tuple(getattr(source, name) for name in _SOURCE):
                    yield Finding(
                        weight=Weight.DAMAGE,
                        area="job",
                        session_id=self._id,
                        sequence=through,
                        detail=f"the source of {job[1]!s} job {job[0]!s} is not what was published",
                    )

    def _damage(self, area: str, detail: str, row: Row) -> Finding:
        return self._finding(Weight.DAMAGE, area, detail, row)

    def _finding(self, weight: Weight, area: str, detail: str, row: Row) -> Finding:
        return Finding(
            weight=weight,
            area=area,
            session_id=self._id,
            sequence=cast(int, row[0]),
            event_id=cast(str, row[1]),
            detail=detail,
        )


def json_fault(data: object, *, what: str) -> str | None:
    """Say why stored JSON cannot be read; None when it can."""
    try:
        codec.decode_stored(cast(bytes, data), what=what)
    except Corrupt as error:
        return error.message
    return None


def _continues_turn(last: Row | None, row: Row) -> bool:
    if last is None or cast(int, last[3]) == cast(int, last[4]) - 1:
        return row[3] == 0
    return (row[2], row[4], row[3]) == (last[2], last[4], cast(int, last[3]) + 1)


def _chain(previous: bytes, row: Row) -> bytes:
    sequence, event_id, turn_id, position, size, kind, _, payload, record, occurred, created, _ = row
    return digests.next_chain(
        previous,
        sequence=cast(int, sequence),
        event_id=cast(str, event_id),
        turn_id=cast(str, turn_id),
        turn_position=cast(int, position),
        turn_size=cast(int, size),
        kind=cast(str, kind),
        source_record=cast("str | None", record),
        occurred_at=cast("int | None", occurred),
        created_at=cast(int, created),
        payload=cast(bytes, payload),
    )
