"""What the readers of all agents share: the loop over lines, branches, counts, titles and record names.

The module owns these invariants:

- Turns leave in the order in which they are stored, each with an offset that no unfinished branch lies before.
- `settled` moves only to places that no turn of any branch lies across: what begins there begins afresh.
- Lines before the start offset are read again for what later lines refer to (header, branches, known records), and
  yield nothing: going on from an offset gives what an uninterrupted reading would have given.
- A record seen before is counted and passed over; the same id with other content is kept under another name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import orjson

from emelex_core import clock, limits
from emelex_core.events import Event, EventKind, Part
from emelex_core.imports.files.jsonl import Line, LineReader
from emelex_core.imports.reading.media import MediaReader
from emelex_core.imports.reading.recent import Recent
from emelex_core.imports.reading.turns import Finished, RecordName, TurnAssembler
from emelex_core.imports.records import ImportedTurn, MediaSink, Position, SessionHeader, TranscriptFile

TITLE_CHARACTERS_MAX: Final = 80
_NAME_CHARACTERS_MAX: Final = 128
_KIND_CHARACTERS_MAX: Final = 64


class Reader(ABC):
    """A reader of one transcript; a subclass knows one agent's grammar."""

    def __init__(self, file: TranscriptFile, media: MediaSink, *, start_offset: int = 0) -> None:
        self.skipped: Counter[str] = Counter()
        self.defects: Counter[str] = Counter()
        self._file = file
        self._media = MediaReader(media, self.defects)
        self._start_offset = start_offset
        self._lines = LineReader(file.path, defects=self.defects)
        self._finished: list[Finished] = []
        self._assemblers: dict[str | None, TurnAssembler] = {}
        self._records: Recent[int] = Recent()
        self._position: Position | None = None
        self._settled: Position | None = None

    @property
    @abstractmethod
    def header(self) -> SessionHeader:
        """The main Session, as far as it is known."""

    @property
    @abstractmethod
    def child_headers(self) -> dict[str, SessionHeader]:
        """Sessions inside the same file, by branch."""

    @property
    def position(self) -> Position:
        """How far the file was read."""
        return self._position or self._lines.after()

    @property
    def settled(self) -> Position:
        """Up to where the file is settled; see `GrowingReader`. Past the last line no turn was in hand."""
        return self._settled or self.position

    def __iter__(self) -> Iterator[ImportedTurn]:
        recalling = self._start_offset > 0
        self._media.muted = recalling
        for line in self._lines:
            if line.offset < self._start_offset:
                self._recall(line)
                continue
            if recalling:
                recalling = False
                self._end_recall()
            self._read(line)
            if self._finished or self._settled is None:
                # While no turn ends, the oldest one still lies across this line.
                self._settle(line.offset)
                yield from self._drain()
        if recalling:
            self._end_recall()
        self._position = self._lines.after()
        self._settled = self.settled
        self._end_all()
        yield from self._drain(ended=False)

    def _recall(self, line: Line) -> None:
        """Take from an earlier line what later ones refer to. What it yields is dropped; a reader may do less."""
        self._read(line)

    @abstractmethod
    def _read(self, line: Line) -> None:
        """Turn one line into events."""

    def _held(self) -> Position | None:
        """Where the oldest line begins that is held back for later ones."""
        return None

    def _end(self) -> None:  # noqa: B027 - most formats hold nothing back
        """Release what was held back for later lines."""

    def _end_all(self) -> None:
        self._end()
        for assembler in self._assemblers.values():
            assembler.end()

    def _end_recall(self) -> None:
        """What lies before the start offset was yielded and reported by the reading that stored it."""
        self._end_all()
        self._finished.clear()
        self._media.muted = False
        unfinished = self.defects["unfinished_line"]
        self.skipped.clear()
        self.defects.clear()
        if unfinished:
            self.defects["unfinished_line"] = unfinished

    def _settle(self, offset: int) -> None:
        """Move the settled place after the line at `offset` was read. None stands for the place behind it."""
        oldest = self._oldest()
        if oldest is None:
            self._settled = None
        elif oldest.offset >= offset and not (self._finished and _lie_across(self._finished, offset)):
            self._settled = oldest
        elif self._settled is None:
            self._settled = self._lines.before()

    def _oldest(self) -> Position | None:
        """Where the oldest line begins that an unfinished turn or a held back line needs; None when nothing does."""
        oldest = self._held()
        for assembler in self._assemblers.values():
            start = assembler.start
            if start is not None and (oldest is None or start.offset < oldest.offset):
                oldest = start
        return oldest

    def _drain(self, *, ended: bool = True) -> Iterator[ImportedTurn]:
        """Yield finished turns. Each may be gone on from only where no later or unfinished turn began before."""
        finished, self._finished[:] = list(self._finished), []
        if not finished:
            return
        safe = self._oldest() or self._lines.after()
        ends: list[Position] = []
        for turn in reversed(finished):
            ends.append(safe)
            if turn.start.offset < safe.offset:
                safe = turn.start
        for turn, end in zip(finished, reversed(ends), strict=True):
            yield ImportedTurn(
                events=turn.events,
                branch=turn.branch,
                end_offset=end.offset,
                prefix_sha256=end.sha256,
                start_offset=turn.start.offset,
                ended=ended,
            )

    def _assembler(self, branch: str | None) -> TurnAssembler:
        assembler = self._assemblers.get(branch)
        if assembler is None:
            assembler = TurnAssembler(
                branch, out=self._finished, here=self._lines.before, defects=self.defects, offset=self._lines.offset
            )
            self._assemblers[branch] = assembler
        return assembler

    def _end_idle_branches(self) -> None:
        """End the turns of branches that wait for nothing, so that they do not hold back the safe offset."""
        for branch, assembler in list(self._assemblers.items()):
            if branch is not None and not assembler.waits:
                assembler.end()
                del self._assemblers[branch]

    def _name(self, record_id: Any, content: Any, line: Line) -> RecordName | None:
        """Return the names of a record's events, or None for a record that was seen before."""
        if not isinstance(record_id, str) or not record_id:
            return RecordName(f"@{line.offset}")
        base = record_id if len(record_id) <= _NAME_CHARACTERS_MAX else f"@{line.offset}"
        fingerprint = _fingerprint(content, line)
        known = self._records.get(base)
        if known is None:
            self._records.put(base, fingerprint)
            return RecordName(base)
        if known == fingerprint:
            self.defects["duplicate_record"] += 1
            return None
        self.defects["reused_record_id"] += 1
        return RecordName(f"{base}@{line.offset}")

    def _count_unknown(self, *kind: Any) -> None:
        self.defects["unknown:" + "/".join(kind_name(word) for word in kind)] += 1


def _lie_across(finished: Sequence[Finished], offset: int) -> bool:
    """Whether the line at `offset` belongs to a turn that it ended, or older turns come behind one of its own."""
    own = False
    for turn in finished:
        if turn.start.offset >= offset:
            own = True
        elif own or turn.last_offset >= offset:
            return True
    return False


def _fingerprint(content: Any, line: Line) -> int:
    """Tell contents apart within this process. What orjson does not write again, its own line stands for."""
    if isinstance(content, str):
        return hash(content)
    try:
        return hash(orjson.dumps(content))
    except TypeError:
        return hash(line.data)


def make_event(
    kind: EventKind, parts: list[Part], name: RecordName, *, label: str | None = None, occurred_at: int | None = None
) -> Event:
    """Build an event under the record's next name."""
    return Event(kind=kind, parts=tuple(parts), label=label, source_record=name.take(), occurred_at=occurred_at)


def instant(value: Any) -> int | None:
    """Read a record's timestamp into milliseconds; None for anything else."""
    if not isinstance(value, str):
        return None
    # Rows of one minute share all but their seconds, in the one form that agents write.
    seconds, fraction = value[17:19], value[20:23]
    if len(value) != 24 or value[19] != "." or value[23] != "Z" or not value.isascii():
        return clock.parse_iso(value)
    minute = _minute(value[:17]) if seconds.isdigit() and fraction.isdigit() and seconds < "60" else None
    return clock.parse_iso(value) if minute is None else minute + int(seconds) * 1_000 + int(fraction)


@lru_cache(maxsize=256)
def _minute(text: str) -> int | None:
    return clock.parse_iso(f"{text}00.000Z")


def kind_name(value: Any) -> str:
    """Return a foreign kind as one short printable word for a report."""
    if not isinstance(value, str) or not value:
        return "?"
    word = value[:_KIND_CHARACTERS_MAX]
    return word if word.isprintable() and not word.isspace() else ascii(word)


def clean_title(text: str | None) -> str | None:
    """Return the text as a title: one line, at most 80 characters and 512 bytes; None when nothing is left."""
    if not text:
        return None
    words = " ".join("".join(c if c.isprintable() else " " for c in text[: 20 * TITLE_CHARACTERS_MAX]).split())
    if len(words) > TITLE_CHARACTERS_MAX:
        words = words[: TITLE_CHARACTERS_MAX - 1].rstrip() + "…"
    while len(words.encode()) > limits.TITLE_BYTES_MAX:
        words = words[:-1]
    return words or None


def text_of(value: Any) -> str | None:
    """Return a non-empty text, or None."""
    return value if isinstance(value, str) and value else None
