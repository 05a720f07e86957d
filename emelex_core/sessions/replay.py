"""Replay: the proven history of a Session, its Summary first, then the uncovered tail (behaviours 44 to 49, 107).

Every event is re-hashed, the covered ones too, in bounded pages: a change anywhere is an error naming Session and
event, never a shorter history. The caps bound what is returned; covered events are proven without being kept. Links to
media are held against what events name, a page at a time; the bytes of media are not read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast, overload

from emelex_core import digests, limits
from emelex_core.db.database import Database, Value
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Invalid
from emelex_core.events import AssetRef, EventKind, MediaPart, TextPart
from emelex_core.provenance import SourceProvenance, source_provenance
from emelex_core.sessions import pages
from emelex_core.sessions.append import Tail
from emelex_core.sessions.records import Session, StoredEvent

JOBS: Final = load("emelex_core", "jobs")


class Replay(Sequence[StoredEvent]):
    """A Session's history as a model continues it. Behaves as a sequence of events; `summary` is the first, or None."""

    def __init__(self, events: tuple[StoredEvent, ...], *, summary: StoredEvent | None, tail: Tail) -> None:
        self.events = events
        self.summary = summary
        self.tail = tail

    @overload
    def __getitem__(self, index: int) -> StoredEvent: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredEvent]: ...
    def __getitem__(self, index: int | slice) -> StoredEvent | Sequence[StoredEvent]:
        return self.events[index]

    def __len__(self) -> int:
        return len(self.events)


def replay(database: Database, session: Session, *, keep: bool = True, media: bool = True) -> Replay:
    """Read and prove a whole Session. The caller's lease keeps it from growing meanwhile.

    With `keep` off nothing is returned but the summary and the tail, and no cap applies: an importer only goes on. With
    `media` off a labelled text stands in the place of each image, and the cap on media does not apply.
    Raises: Corrupt naming the event; Invalid naming the cap, for media also the largest, when the uncovered history is
    over it.
    """
    links = _Links(database, session)
    budget = _Budget(session.id)
    chain_at_boundary = digests.first_chain(session.id)
    tail = Tail(sequence=0, chain=chain_at_boundary)
    first_id = boundary_id = ""
    summary: StoredEvent | None = None
    uncovered: list[StoredEvent] = []
    for event in pages.verified(database, session.id, through=session.last_sequence):
        tail = Tail(sequence=event.sequence, chain=event.chain)
        links.check(event)
        if event.sequence == 1:
            first_id = event.id
        if event.sequence == session.covered_sequence:
            chain_at_boundary, boundary_id = event.chain, event.id
        if event.sequence == session.summary_sequence:
            summary = event
            budget.spend(event)
        elif event.sequence > session.covered_sequence:
            _require_raw(event)
            if keep:
                event = event if media else _without_media(event)
                budget.spend(event)
                uncovered.append(event)
    budget.check_media()
    if tail.sequence != session.last_sequence:
        raise Corrupt(f"Session {session.id}: event {tail.sequence + 1} is missing")
    if session.summary_sequence:
        if summary is None:
            raise Corrupt(f"Session {session.id}: its Summary at {session.summary_sequence} is missing")
        _check_summary(database, session, summary, first_id, boundary_id, chain_at_boundary)
    events = tuple(uncovered) if summary is None else (summary, *uncovered)
    return Replay(events, summary=summary, tail=tail)


def _require_raw(event: StoredEvent) -> None:
    if event.kind is EventKind.SUMMARY:
        raise Corrupt(f"Session {event.session_id}: event {event.sequence} ({event.id}) is a Summary outside its place")


def _check_summary(
    database: Database, session: Session, summary: StoredEvent, first_id: str, boundary_id: str, chain: bytes
) -> None:
    """Compare what the Summary says it replaces with the job that made it and with what was read."""
    what = f"Session {session.id}: Summary {summary.sequence} ({summary.id})"
    if summary.kind is not EventKind.SUMMARY or summary.provenance is None:
        raise Corrupt(f"{what} is no Summary with provenance")
    stated = summary.provenance
    expected = source_provenance(
        "compaction",
        session.id,
        through=session.covered_sequence,
        first_event_id=first_id,
        last_event_id=boundary_id,
        chain=chain,
    )
    if _source_of(stated) != expected:
        raise Corrupt(f"{what} does not describe the events that it replaces")
    with database.read() as transaction:
        row = transaction.one(JOBS["provenance"], {"id": str(stated.get("job_id"))})
    if row is None or row[0] != "completed" or row[1] != session.id:
        raise Corrupt(f"{what} names job {stated.get('job_id')}, which did not complete it")
    recorded = SourceProvenance(
        through_sequence=cast(int, row[2]),
        source_event_count=cast(int, row[3]),
        source_first_event_id=cast(str, row[4]),
        source_last_event_id=cast(str, row[5]),
        source_sha256=cast(str, row[6]),
    )
    if recorded != expected:
        raise Corrupt(f"{what} and its job {stated.get('job_id')} disagree about its source")


def _source_of(stated: dict[str, Any]) -> SourceProvenance | None:
    try:
        return SourceProvenance(
            through_sequence=stated["through_sequence"],
            source_event_count=stated["source_event_count"],
            source_first_event_id=stated["source_first_event_id"],
            source_last_event_id=stated["source_last_event_id"],
            source_sha256=stated["source_sha256"],
        )
    except KeyError:
        return None


def _without_media(event: StoredEvent) -> StoredEvent:
    """The event with a text in the place of each of its media, so that nobody can load them."""
    if not event.media:
        return event
    parts = tuple(TextPart(text=_label(part.ref)) if isinstance(part, MediaPart) else part for part in event.parts)
    return replace(event, parts=parts)


def _label(ref: AssetRef) -> str:
    return f"[{ref.kind}, {ref.media_type}, {ref.size} bytes, left out]"


class _Budget:
    """The caps on what a replay returns."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._events = self._bytes = self._media = 0
        self._largest: tuple[int, int, AssetRef] | None = None

    def spend(self, event: StoredEvent) -> None:
        """Count one event. Media are only added up: the refusal names the largest, which may be the last."""
        self._events += 1
        self._bytes += event.payload_bytes
        self._require(self._events, limits.REPLAY_EVENTS_MAX, "events")
        self._require(self._bytes, limits.REPLAY_BYTES_MAX, "bytes")
        for ordinal, ref in enumerate(event.media):
            self._media += ref.size
            if self._largest is None or ref.size > self._largest[2].size:
                self._largest = (event.sequence, ordinal, ref)

    def check_media(self) -> None:
        """Refuse a history whose media are over the cap together."""
        if self._media <= limits.REPLAY_MEDIA_BYTES_MAX or self._largest is None:
            return
        sequence, ordinal, ref = self._largest
        raise Invalid(
            f"Session {self._session_id}: its uncovered history has {self._media} bytes of media, over the replay cap "
            f"of {limits.REPLAY_MEDIA_BYTES_MAX}; the largest is {ref.sha256} ({ref.media_type}, {ref.size} bytes), "
            f"media {ordinal + 1} of event {sequence}",
            hint=f"resume without media, or compact it first: emelex memory compact {self._session_id}",
        )

    def _require(self, spent: int, most: int, unit: str) -> None:
        if spent > most:
            raise Invalid(
                f"Session {self._session_id}: its uncovered history is over the replay cap of {most} {unit}",
                hint=f"compact it first: emelex memory compact {self._session_id}",
            )


class _Links:
    """The transactional asset links of a Session, held against the media that its events name, a page at a time."""

    def __init__(self, database: Database, session: Session) -> None:
        self._database = database
        self._session_id = session.id
        self._through = 0
        self._by_sequence: dict[int, list[tuple[int, str, str]]] = {}

    def check(self, event: StoredEvent) -> None:
        """Compare count, ordinals, digests and kinds. Events come in order, without a gap. Raises: Corrupt."""
        if event.sequence > self._through:
            self._load(event.sequence)
        linked = self._by_sequence.get(event.sequence, [])
        named = [(ordinal, ref.sha256, ref.kind) for ordinal, ref in enumerate(event.media)]
        if linked != named:
            raise Corrupt(
                f"Session {event.session_id}: event {event.sequence} ({event.id}) names {len(named)} media, "
                f"but other ones are linked ({len(linked)})"
            )

    def _load(self, first: int) -> None:
        self._through = first + limits.PAGE_EVENTS_MAX - 1
        self._by_sequence = {}
        page: dict[str, Value] = {"session_id": self._session_id, "after": first - 1, "through": self._through}
        with self._database.read() as transaction:
            for sequence, ordinal, sha256, kind in transaction.iterate(pages.SQL["links"], page):
                link = (cast(int, ordinal), cast(str, sha256), cast(str, kind))
                self._by_sequence.setdefault(cast(int, sequence), []).append(link)
