"""Messages of one Session, played into turns.

The module owns these invariants:

- Events leave in the order of their messages, so that what is stored can be compared with the source, message by
  message.
- A call that is followed by the model's next response or a person's next prompt without an answer gets one that says
  that nobody knows its effect. At the end of the conversation a call may still be waiting; it stays open.
- An answer to no open call stays where it stands, and is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from emelex_core.events import Event, EventKind, Part, ToolCallPart, ToolResultPart
from emelex_core.imports.conversations.conversation import Message, Said
from emelex_core.imports.reading.reader import make_event
from emelex_core.imports.reading.turns import Finished, RecordName, TurnAssembler, split_event
from emelex_core.imports.records import Position

MISSING_RESULT: Final = "missing_result"
_NO_RESULT: Final = "[no result of this call was recorded]"
_NOWHERE: Final = Position(offset=0, sha256=bytes(32))
"""These formats are not gone on from by offset."""


class Player:
    """Plays the messages of one Session, once."""

    def __init__(self, defects: Counter[str]) -> None:
        self._defects = defects
        self._finished: list[Finished] = []
        self._assembler = TurnAssembler(None, out=self._finished, here=lambda: _NOWHERE, defects=defects)
        self._open: dict[str, str] = {}
        self._answered: set[str] = set()
        self._response = 0
        self._responding = False

    def turns(self, messages: Iterable[Message]) -> Iterator[tuple[Event, ...]]:
        """Yield the turns of the messages, in order."""
        for message in messages:
            name = RecordName(message.id)
            for said in message.said:
                self._say(said, name, message.occurred_at)
            self._assembler.end_answer()
            yield from self._drain()
        self._assembler.end()
        yield from self._drain()

    def _drain(self) -> Iterator[tuple[Event, ...]]:
        finished, self._finished[:] = list(self._finished), []
        for turn in finished:
            yield turn.events

    def _say(self, said: Said, name: RecordName, occurred_at: int | None) -> None:
        if said.kind is EventKind.ASSISTANT:
            self._answer(said.parts, name, occurred_at)
            return
        self._responding = False
        if said.kind is EventKind.USER:
            self._close_open(name, occurred_at)
        parts = said.parts if said.answers is None else self._addressed(said.parts, said.answers)
        event = make_event(said.kind, list(parts), name, label=said.label, occurred_at=occurred_at)
        first, *rest = split_event(event, name)
        match said.kind:
            case EventKind.USER:
                self._assembler.prompt(first)
            case EventKind.CONTEXT:
                self._assembler.context(first)
            case EventKind.TOOL:
                self._result(first)
            case _:
                self._assembler.note(first)
        for piece in rest:
            self._assembler.note(piece)

    def _answer(self, parts: tuple[Part, ...], name: RecordName, occurred_at: int | None) -> None:
        """Messages of the model in a row are one response: they share a turn."""
        if not self._responding:
            self._close_open(name, occurred_at)
            self._responding = True
            self._response += 1
        for part in parts:
            self._assembler.answer(part, key=str(self._response), name=name, occurred_at=occurred_at)
            if isinstance(part, ToolCallPart):
                self._open[part.call_id] = part.name

    def _addressed(self, parts: tuple[Part, ...], tool: str) -> tuple[Part, ...]:
        """Give an answer that names no call the id of the one that it belongs to."""
        named = (call_id for call_id, called in self._open.items() if called == tool)
        call_id = next(named, None) or next(iter(self._open), None)
        head, *rest = parts
        if call_id is None or not isinstance(head, ToolResultPart):
            return parts
        return (msgspec.structs.replace(head, call_id=call_id), *rest)

    def _result(self, event: Event) -> None:
        head = event.parts[0]
        call_id = head.call_id if isinstance(head, ToolResultPart) else ""
        if call_id in self._open:
            del self._open[call_id]
            self._answered.add(call_id)
            self._assembler.result(event, call_id)
            return
        self._defects["repeated_result" if call_id in self._answered else "orphan_result"] += 1
        self._assembler.note(event)

    def _close_open(self, name: RecordName, occurred_at: int | None) -> None:
        """Answer what is still open. The answers bear the names of the message that shows that none will come."""
        for call_id in list(self._open):
            self._defects["unanswered_call"] += 1
            result = ToolResultPart(call_id=call_id, text=_NO_RESULT, is_error=True, status="unknown_effect")
            event = make_event(EventKind.TOOL, [result], name, label=MISSING_RESULT, occurred_at=occurred_at)
            self._assembler.result(event, call_id)
        self._open.clear()
        self._answered.clear()
