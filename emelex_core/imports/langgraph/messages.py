"""LangChain's messages, turned into messages.

The module owns these invariants:

- A message is told by its class or its type; what is none is counted under its name.
- A call that did not parse was never run: its answer says so.
- A message that its graph gave no id is named after its content and place.
"""

from __future__ import annotations

from typing import Any, Final

from emelex_core.events import EventKind, Part
from emelex_core.imports.conversations.conversation import Message, Said, message_id
from emelex_core.imports.files.lenient import JsonObject, as_items, as_list, as_object, as_word, bounded_id
from emelex_core.imports.langgraph.values import Built
from emelex_core.imports.openai.items import INSTRUCTIONS, ROLES
from emelex_core.imports.reading.parts import PartReader
from emelex_core.imports.reading.reader import kind_name

_KINDS: Final = {
    "human": "human",
    "HumanMessage": "human",
    "HumanMessageChunk": "human",
    "user": "human",
    "ai": "ai",
    "AIMessage": "ai",
    "AIMessageChunk": "ai",
    "assistant": "ai",
    "system": "system",
    "SystemMessage": "system",
    "SystemMessageChunk": "system",
    "developer": "system",
    "tool": "tool",
    "ToolMessage": "tool",
    "ToolMessageChunk": "tool",
    "function": "tool",
    "FunctionMessage": "tool",
    "remove": "remove",
    "RemoveMessage": "remove",
}
_VOLATILE: Final = frozenset({"usage_metadata", "response_metadata", "id", "example", "additional_kwargs", "artifact"})
"""What belongs to the transport, and says nothing."""
_NOT_RUN: Final = "[the arguments did not parse; it was not run]"


class LangChainReader:
    """Reads the messages of one thread."""

    def __init__(self, parts: PartReader) -> None:
        self._parts = parts
        self._read: dict[str, Message | None] = {}

    def message(self, value: Any, *, place: int, occurred_at: int | None) -> Message | None:
        """Return a message, or None for one that says nothing. One that was read before is not read again."""
        fields, kind = _opened(value)
        content = [kind, {key: item for key, item in fields.items() if key not in _VOLATILE}]
        native = fields.get("id")
        own = message_id(native, _jsonable(content), place=place)
        if own not in self._read:
            said = [said for said in self._said(kind, fields, place) if said.parts]
            if not said and kind != "remove":
                self._parts.skipped["empty_message"] += 1
            found = Message(id=own, said=tuple(said), occurred_at=occurred_at)
            self._read[own] = found if said else None
        return self._read[own]

    def _said(self, kind: str, fields: JsonObject, place: int) -> list[Said]:
        content = fields.get("content")
        match kind:
            case "human":
                return [Said(kind=EventKind.USER, parts=tuple(self._parts.content(content)))]
            case "system":
                parts = tuple(self._parts.content(content))
                return [Said(kind=EventKind.CONTEXT, parts=parts, label=INSTRUCTIONS)]
            case "ai":
                return self._answer(fields, place)
            case "tool":
                return [self._result(fields, place)]
            case "remove":
                self._parts.skipped["remove_message"] += 1
                return []
            case _:
                self._parts.defects[f"unknown:message/{kind_name(kind)}"] += 1
                return []

    def _answer(self, fields: JsonObject, place: int) -> list[Said]:
        extra = as_object(fields.get("additional_kwargs")) or {}
        parts = self._parts.reasoning(extra.get("reasoning_content"))
        parts += self._parts.content(fields.get("content"))
        calls = [as_object(call) or {} for call in as_list(fields.get("tool_calls")) or []]
        broken = [as_object(call) or {} for call in as_list(fields.get("invalid_tool_calls")) or []]
        if not calls and not broken:
            calls = [_raw_call(call) for call in as_list(extra.get("tool_calls")) or []]
        for number, call in enumerate(calls):
            parts.append(self._call(call, f"call@{place}.{number}"))
        said = [Said(kind=EventKind.ASSISTANT, parts=tuple(parts))]
        for number, call in enumerate(broken):
            said += self._broken(call, f"call@{place}.{len(calls) + number}")
        return said

    def _call(self, call: JsonObject, unnamed: str) -> Part:
        call_id = bounded_id(call.get("id"))
        if call_id is None:
            self._parts.defects["missing_call_id"] += 1
        return self._parts.call(call.get("name"), call.get("args"), call_id or unnamed)

    def _broken(self, call: JsonObject, unnamed: str) -> list[Said]:
        self._parts.defects["invalid_tool_call"] += 1
        call_id = bounded_id(call.get("id")) or unnamed
        error = call.get("error")
        text = error if isinstance(error, str) and error else _NOT_RUN
        asked: Part = self._parts.call(call.get("name"), call.get("args"), call_id)
        result = self._parts.result(text, call_id, is_error=True, status="not_executed")
        return [Said(kind=EventKind.ASSISTANT, parts=(asked,)), Said(kind=EventKind.TOOL, parts=result)]

    def _result(self, fields: JsonObject, place: int) -> Said:
        call_id = bounded_id(fields.get("tool_call_id"))
        if call_id is None:
            self._parts.defects["missing_call_id"] += 1
        is_error = fields.get("status") == "error"
        return Said(
            kind=EventKind.TOOL,
            parts=self._parts.result(fields.get("content"), call_id or f"result@{place}", is_error=is_error),
            answers=as_word(fields.get("name")) if call_id is None else None,
        )


def is_message(value: Any) -> bool:
    """Whether a value is a message of LangChain: an object of one of its classes, or a plain one with a role."""
    if isinstance(value, Built):
        return value.name.endswith(("Message", "MessageChunk"))
    fields = as_object(value) or {}
    role = fields.get("role")
    return "content" in fields and isinstance(role, str) and role in ROLES


def _opened(value: Any) -> tuple[JsonObject, str]:
    """Return a message's fields and kind, with plain role objects in the shape of LangChain's."""
    if isinstance(value, Built):
        fields = value.fields
        kind = _KINDS.get(as_word(fields.get("type"))) or _KINDS.get(value.name) or value.name
        if value.name.startswith("Chat"):
            kind = _KINDS.get(as_word(fields.get("role")), kind)
        return fields, kind
    fields = as_object(value) or {}
    role = as_word(fields.get("role"))
    plain = {**fields, "additional_kwargs": {"tool_calls": fields.get("tool_calls")}, "tool_calls": None}
    return plain, _KINDS.get(role, role)


def _raw_call(value: Any) -> JsonObject:
    """A call in OpenAI's own shape, as older versions keep it."""
    fields = as_object(value) or {}
    function = as_object(fields.get("function")) or {}
    return {"id": fields.get("id"), "name": function.get("name"), "args": function.get("arguments")}


def _jsonable(value: Any) -> Any:
    """Return a value in which objects are plain, so that a digest can be taken of it."""
    if isinstance(value, Built):
        return [value.name, _jsonable(value.fields), _jsonable(value.value)]
    fields = as_object(value)
    if fields is not None:
        return {key: _jsonable(item) for key, item in fields.items()}
    return [_jsonable(item) for item in as_items(value)] if isinstance(value, list) else value
