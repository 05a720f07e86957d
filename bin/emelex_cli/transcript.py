"""A Session as a person reads it. Every stored text passes `neutralise` on its way out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from emelex_cli import shapes
from emelex_cli.output import Output, counted, neutralise, one_line, path_text, to_json

if TYPE_CHECKING:
    from emelex_core.journal.records import JournalledTurn
    from emelex_core.sessions.records import Session, StoredEvent

_LINES: Final = 12
_CHARACTERS: Final = 1_200
"""What is shown of a tool's output, or of a model's reasoning, unless everything is asked for."""
_ARGUMENT_CHARACTERS: Final = 240
_INDENT: Final = "    "
_SPEAKERS: Final = {"user": "You", "assistant": "Assistant", "tool": "Tool", "summary": "Summary"}


def heading(out: Output, session: Session) -> None:
    """Print what is known of the Session itself."""
    out.line(one_line(session.title))
    size = counted(session.last_sequence, "event")
    out.line(f"Session {session.id}, {size}, last active {shapes.moment(session.updated_at)}")
    out.line(f"workspace {one_line(path_text(session.workspace_path))}")
    if session.source_id is not None:
        out.line(f"imported from {one_line(session.source)} {one_line(session.source_id)}")
    if session.parent_session_id is not None:
        out.line(f"a part of Session {session.parent_session_id}")
    if session.held_until is not None:
        out.line(f"in use until {shapes.moment(session.held_until)}")


def event(out: Output, found: StoredEvent, *, in_full: bool) -> None:
    """Print one event: who speaks and when, then its parts. `in_full` leaves nothing out."""
    kind = found.kind.value
    speaker = _SPEAKERS.get(kind, kind.capitalize())
    label = "" if found.label is None else f" ({one_line(found.label)})"
    covered = ""
    if kind == "summary" and found.provenance is not None:
        covered = f", stands for events 1 to {found.provenance.get('through_sequence')}"
    when = shapes.moment(found.created_at if found.occurred_at is None else found.occurred_at)
    out.line()
    out.line(f"[{found.sequence}] {speaker}{label}, {when}{covered}")
    for part in found.parts:
        _part(out, part, in_full=in_full)


def unfinished(out: Output, session: Session, turn: JournalledTurn) -> None:
    """Print a turn that has begun and not ended: what was asked, how its calls stand, and how it is closed."""
    state = "under way" if session.held_until is not None else "interrupted"
    out.line()
    out.line(f"[a turn {state}] You, {shapes.moment(turn.started_at)}")
    for part in turn.input.parts:
        _part(out, part, in_full=True)
    for call in () if turn.batch is None else turn.batch.calls:
        told = shapes.short(to_json(call.arguments), _ARGUMENT_CHARACTERS)
        out.line(f"{_INDENT}→ {one_line(call.name)} {one_line(told)}: {call.state}")
    if session.held_until is None:
        out.line(f"{_INDENT}`emelex memory sessions recover {session.id}` closes it; nothing is run again")


def _part(out: Output, part: Any, *, in_full: bool) -> None:
    from emelex_core.events import MediaPart, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

    match part:
        case TextPart(text=text):
            _block(out, text, in_full=True)
        case ReasoningPart(text=text):
            out.line(f"{_INDENT}(reasoning)")
            _block(out, text, in_full=in_full)
        case ToolCallPart(name=name, arguments=arguments):
            told = to_json(arguments)
            cut = told if in_full else shapes.short(told, _ARGUMENT_CHARACTERS)
            out.line(f"{_INDENT}→ {one_line(name)} {one_line(cut)}")
        case ToolResultPart(text=text):
            out.line(f"{_INDENT}← {_outcome(part)}")
            _block(out, text, in_full=in_full)
        case MediaPart(ref=ref):
            out.line(f"{_INDENT}[{one_line(ref.media_type)}, {shapes.size(ref.size)}, {one_line(ref.sha256[:12])}…]")
        case _:
            raise AssertionError(f"no view of {type(part).__name__}")


def _outcome(part: Any) -> str:
    code = "" if part.exit_code is None else f", exit code {part.exit_code}"
    state = "" if part.status == "completed" else f", {one_line(part.status)}"
    return ("error" if part.is_error else "result") + code + state


def _block(out: Output, text: str, *, in_full: bool) -> None:
    lines = neutralise(text).split("\n")
    shown = lines
    if not in_full:
        shown = "\n".join(lines[:_LINES])[:_CHARACTERS].split("\n")
    for line in shown:
        out.line(f"{_INDENT}{line}".rstrip())
    left = sum(map(len, lines)) - sum(map(len, shown))
    if left > 0:
        out.line(f"{_INDENT}… {left} more characters (--raw shows them)")
