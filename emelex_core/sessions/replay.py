"""Replay: the proven history of a Session, its Summary first, then the uncovered tail (behaviours 44 to 49, 107).

Every event is re-hashed, the covered ones too, in bounded pages: a change anywhere is an error naming Session and
event, never a shorter history. The caps bound what is returned; covered events are proven without being kept. Links to
media are held against what events name, a page at a time; the bytes of media are not read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast, overload

import msgspec

from emelex_core import digests, limits
from emelex_core.db.database import Database
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Invalid
from emelex_core.events import MEDIA_MARK, AssetRef, Event, EventKind, MediaPart, TextPart, encode_payload
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
    history = _History(session, keep=keep, media=media)
    for found in pages.verified_pages(database, session.id, through=session.last_sequence):
        history.take(found)
    history.budget.check_media()
    if history.tail.sequence != session.last_sequence:
        raise Corrupt(f"Session {session.id}: event {history.tail.sequence + 1} is missing")
    if session.summary_sequence:
        _check_summary(database, session, history)
    summary = history.summary
    events = tuple(history.uncovered) if summary is None else (summary, *history.uncovered)
    return Replay(events, summary=summary, tail=history.tail)


class _History:
    """What a replay gathers while pages pass: the Summary, what it is held against, and the uncovered events."""

    def __init__(self, session: Session, *, keep: bool, media: bool) -> None:
        self.budget = _Budget(session.id)
        self.summary: StoredEvent | None = None
        self.uncovered: list[StoredEvent] = []
        self.first_id = self.boundary_id = ""
        self.boundary_chain = digests.first_chain(session.id)
        self.tail = Tail(sequence=0, chain=self.boundary_chain)
        self._session = session
        self._keep = keep
        self._media = media

    def take(self, found: pages.ProvenPage) -> None:
        """Take one proven page. Raises: Corrupt; Invalid when what is kept is over a cap."""
        events, covered = found.proven.events, self._session.covered_sequence
        first, last = events[0].sequence, events[-1]
        self.tail = Tail(sequence=last.sequence, chain=last.chain)
        shown = _with_media(found)
        if first == 1:
            self.first_id = events[0].id
        if first <= covered <= last.sequence:
            boundary = events[covered - first]
            self.boundary_id, self.boundary_chain = boundary.id, boundary.chain
        if first > covered:
            self._take_uncovered(events, found.proven.payload_bytes)
        elif last.sequence > covered:
            left = events[covered + 1 - first :]
            self._take_uncovered(left, sum(event.payload_bytes for event in left))
        if self._keep and self._media:
            self.budget.show(event for event in shown if event.sequence > covered)

    def _take_uncovered(self, events: list[StoredEvent], size: int) -> None:
        place = self._session.summary_sequence
        if events[0].sequence <= place <= events[-1].sequence:
            at = place - events[0].sequence
            self.summary = events[at]
            events = events[:at] + events[at + 1 :]
        for event in events:
            if event.kind is EventKind.SUMMARY:
                raise Corrupt(f"{event.where} is a Summary outside its place")
        if self._keep:
            self.budget.spend(len(events), size)
            self.uncovered.extend(events if self._media else map(_without_media, events))


def _check_summary(database: Database, session: Session, history: _History) -> None:
    """Compare what the Summary says it replaces with the job that made it and with what was read."""
    summary = history.summary
    if summary is None:
        raise Corrupt(f"Session {session.id}: its Summary at {session.summary_sequence} is missing")
    what = f"Session {session.id}: Summary {summary.sequence} ({summary.id})"
    if summary.kind is not EventKind.SUMMARY or summary.provenance is None:
        raise Corrupt(f"{what} is no Summary with provenance")
    stated = summary.provenance
    expected = source_provenance(
        "compaction",
        session.id,
        through=session.covered_sequence,
        first_event_id=history.first_id,
        last_event_id=history.boundary_id,
        chain=history.boundary_chain,
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


def _with_media(found: pages.ProvenPage) -> list[StoredEvent]:
    """The page's events that name media, after a comparison with their links: count, ordinals, digests and kinds.

    Only payloads that can name media are taken apart, and those that others are linked to. Raises: Corrupt.
    """
    events, first = found.proven.events, found.proven.events[0].sequence
    naming = {event.sequence: event for event in found.proven.naming}
    naming |= {sequence: events[sequence - first] for sequence in found.links}
    for sequence, event in naming.items():
        linked = found.links.get(sequence, [])
        named = [(ordinal, ref.sha256, ref.kind) for ordinal, ref in enumerate(event.media)]
        if linked != named:
            raise Corrupt(f"{event.where} names {len(named)} media, but other ones are linked ({len(linked)})")
    return [naming[sequence] for sequence in sorted(naming)]


def _without_media(event: StoredEvent) -> StoredEvent:
    """The event with a text in the place of each of its media, so that nobody can load them."""
    if MEDIA_MARK not in event.payload or not event.media:
        return event
    parts = tuple(TextPart(text=_label(part.ref)) if isinstance(part, MediaPart) else part for part in event.parts)
    shown = Event(kind=event.kind, parts=parts, label=event.label, provenance=event.provenance)
    return msgspec.structs.replace(event, payload=encode_payload(shown), _content=None)


def _label(ref: AssetRef) -> str:
    return f"[{ref.kind}, {ref.media_type}, {ref.size} bytes, left out]"


class _Budget:
    """The caps on what a replay returns."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._events = self._bytes = self._media = 0
        self._largest: tuple[int, int, AssetRef] | None = None

    def spend(self, events: int, size: int) -> None:
        """Count events that are returned, and their bytes. Raises: Invalid over one of these caps."""
        self._events += events
        self._bytes += size
        self._require(self._events, limits.REPLAY_EVENTS_MAX, "events")
        self._require(self._bytes, limits.REPLAY_BYTES_MAX, "bytes")

    def show(self, events: Iterable[StoredEvent]) -> None:
        """Count their media. They are only added up: the refusal names the largest, which may be the last."""
        for event in events:
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
