"""Turns in the terms of a journal: calls, the answers that propose them, results with their audits."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from emelex_core import Event, MemoryStore, Session, SessionLease
from emelex_core.events import ToolResultPart
from emelex_core.journal.turns import Journal

HELLO = Event.user("Please weigh the parcels.")


@dataclass(frozen=True)
class Call:
    """A call as a batch holds it."""

    call_id: str
    name: str = "shell"
    arguments: dict[str, Any] = field(default_factory=lambda: {"command": "ls"})


def calls(count: int, *, first: int = 1) -> tuple[Call, ...]:
    """So many calls with ids of their own."""
    return tuple(Call(f"call-{number}", arguments={"n": number}) for number in range(first, first + count))


def proposal(*proposed: Call, text: str = "I look.") -> Event:
    """An assistant's event that proposes these calls."""
    from emelex_core.events import ToolCallPart

    parts = (ToolCallPart(call_id=call.call_id, name=call.name, arguments=call.arguments) for call in proposed)
    return Event.assistant(text, *parts)


def result(call: Call, text: str = "done", *, status: str = "completed") -> tuple[Event, tuple[Event, ...]]:
    """A result of a call and the audit that ends it."""
    event = Event.tool(call.call_id, text, status=status, is_error=status != "completed")
    return event, (finished(call, status),)


def finished(call: Call, status: str = "completed") -> Event:
    """The `tool_finished` audit of a call."""
    return Event.audit(json.dumps({"call_id": call.call_id, "status": status}), label="tool_finished")


def under_way(store: MemoryStore, session: Session, lease: SessionLease) -> Journal:
    """A journal on a Session that has replayed."""
    lease.replay()
    return Journal(lease, clock=store.clock)


def told(store: MemoryStore, session_id: str) -> list[tuple[str, str | None, str]]:
    """What a Session's events say: kind, label, and the text or the status of a result."""
    found = store.get_session(session_id)
    return [(event.kind.value, event.label, _gist(event)) for event in store.iterate_events(found)]


def _gist(event: Any) -> str:
    statuses = [part.status for part in event.parts if isinstance(part, ToolResultPart)]
    return statuses[0] if statuses else event.text
