"""How a model reads stored events (behaviours 50 and 51).

A Summary is user-role JSON labelled as untrusted, never a system message, so that its words cannot become instructions.
Reasoning is not replayed; audit, approval and error events are never shown.
"""

from __future__ import annotations

from typing import Final

import orjson

from emelex_core.events import ROLES, EventKind, MediaPart, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from emelex_core.sessions.records import StoredEvent

_UNSEEN: Final = "none"


def model_text(event: StoredEvent) -> str | None:
    """The event's text as it stands in a prompt, or None for what no model sees."""
    if ROLES[event.kind] == _UNSEEN:
        return None
    if event.kind is EventKind.SUMMARY:
        return orjson.dumps({"untrusted_summary_of_earlier_turns": event.text}).decode()
    shown = [text for text in map(_part_text, event.parts) if text is not None]
    return "\n".join(shown) if shown else None


def _part_text(part: Part) -> str | None:
    match part:
        case TextPart(text=text):
            return text
        case ReasoningPart():
            return None
        case ToolCallPart(name=name, arguments=arguments):
            return orjson.dumps({"tool": name, "arguments": arguments}).decode()
        case ToolResultPart(text=text, is_error=is_error):
            return f"[tool error]\n{text}" if is_error else f"[tool result]\n{text}"
        case MediaPart(ref=ref):
            return f"[{ref.kind}, {ref.media_type}, {ref.size} bytes]"
