"""How far a transcript has been read into a Session, and how far it is settled (ADR 0012).

The module owns these invariants:

- A mark is true of what is stored: it is written in the transaction that stores the last event that it speaks of, or
  later. Events up to `settled_sequence` are said by turns that begin before `settled_offset`, and all such turns are
  stored; no growth of the file changes them.
- What lies past `settled_sequence` came from the bytes up to `read`, and may be said anew when the file has grown.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from emelex_core.db.database import Transaction
from emelex_core.db.statements import load
from emelex_core.imports.files import jsonl
from emelex_core.imports.records import Position

SQL: Final = load("emelex_core", "imports")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far a file was read, and the place in the file and in the Session up to which it is settled.

    `finished` is false while the import that read so far has not yet stored everything.
    """

    read: Position
    settled_offset: int
    settled_sequence: int
    finished: bool = True


def get_mark(transaction: Transaction, session_id: str) -> Mark | None:
    """Return the mark of a Session, or None for one into which no file was read to its end."""
    row = transaction.one(SQL["get"], {"session_id": session_id})
    if row is None:
        return None
    read = Position(offset=cast(int, row[0]), sha256=bytes.fromhex(cast(str, row[1])))
    settled_offset, settled_sequence, finished = cast("tuple[int, int, int]", row[2:])
    return Mark(read=read, settled_offset=settled_offset, settled_sequence=settled_sequence, finished=finished == 1)


def put_mark(transaction: Transaction, session_id: str, mark: Mark, *, now: int) -> None:
    """Write the mark of a Session."""
    transaction.run(
        SQL["put"],
        {
            "session_id": session_id,
            "byte_offset": mark.read.offset,
            "prefix_sha256": mark.read.sha256.hex(),
            "settled_offset": mark.settled_offset,
            "settled_sequence": mark.settled_sequence,
            "finished": mark.finished,
            "now": now,
        },
    )


class Places:
    """Where the turns of one run begin in the file and end in the Session, as long as that may be asked."""

    def __init__(self, sequence: int) -> None:
        self._sequence = sequence
        self._turns: deque[tuple[int, int]] = deque()

    def add(self, start_offset: int, through: int) -> None:
        """The next turn begins at this offset; with it the Session goes to this sequence."""
        self._turns.append((start_offset, through))

    def settle(self, offset: int) -> int | None:
        """Return the sequence up to which the Session holds what begins before the offset, and nothing else.

        None when such turns stand behind later ones; then this place is none to go on from.
        """
        while self._turns and self._turns[0][0] < offset:
            self._sequence = self._turns.popleft()[1]
        return None if any(start < offset for start, _ in self._turns) else self._sequence


class Prefixes:
    """Whether one file still begins with what was read of it; each place is looked at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[int, bytes | None] = {}

    def prove(self, position: Position) -> bool:
        """Whether the file begins with what was read up to a position. Raises: as `jsonl.prefix_sha256`."""
        if position.offset not in self._known:
            self._known[position.offset] = jsonl.prefix_sha256(self._path, position.offset)
        return self._known[position.offset] == position.sha256
