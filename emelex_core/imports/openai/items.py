"""Messages of OpenAI's chat completions and items of its Responses, turned into messages.

The module owns these invariants:

- An item is kept, counted as known noise, or counted as unknown under its type or role; none disappears silently.
- A call without an id gets one from its place; an answer without one says which tool it is of.
- A call that the server runs itself has its answer in its own item, or gets one that says that there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from emelex_core.events import EventKind, Part
from emelex_core.imports.conversations.conversation import Message, Said, message_id
from emelex_core.imports.files.lenient import JsonObject, as_items, as_list, as_object, as_word, bounded_id
from emelex_core.imports.reading.parts import PartReader
from emelex_core.imports.reading.reader import kind_name

INSTRUCTIONS: Final = "instructions"
HOSTED: Final = "hosted_call"
ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "shell_call", "computer_call", "apply_patch_call"}
)
_OUTPUTS: Final = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "shell_call_output",
        "computer_call_output",
        "apply_patch_call_output",
    }
)
_HOSTED: Final = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
)
_NOISE: Final = frozenset(
    {"item_reference", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "compaction"}
)
_VOLATILE: Final = frozenset({"status", "usage"})
"""What changes while an item is written, and says nothing."""
_KEPT_BY_SERVER: Final = "[the server ran it; its result was not recorded]"
_HOSTED_OUTPUTS: Final = ("output", "results", "outputs", "result")


class ItemReader:
    """Reads items, counting into a conversation's own counters."""

    def __init__(self, parts: PartReader) -> None:
        self._parts = parts

    def message(
        self, item: JsonObject, *, place: int, native: Any = None, occurred_at: int | None = None
    ) -> Message | None:
        """Return the message of an item, or None for one that says nothing.

        `place` counts the items of the path; `native` is the item's id where the format gives it one.
        """
        said = [said for said in self._read(item, place) if said.parts]
        if not said:
            return None
        content = {key: value for key, value in item.items() if key not in _VOLATILE}
        return Message(id=message_id(native, content, place=place), said=tuple(said), occurred_at=occurred_at)

    def _read(self, item: JsonObject, place: int) -> list[Said]:
        kind = as_word(item.get("type"))
        role = as_word(item.get("role"))
        if kind in _CALLS:
            return [self._call_item(item, kind, place)]
        if kind in _OUTPUTS:
            return [self._output(item, item.get("output"), item.get("call_id"), place)]
        if kind in _HOSTED:
            return self._hosted(item, kind, place)
        if kind == "reasoning":
            return [self._reasoning(item)]
        if kind in _NOISE:
            self._parts.skipped[f"item/{kind}"] += 1
            return []
        reader = self._by_role(role)
        if reader is not None and kind in ("", "message"):
            return reader(item, place)
        unknown = f"role/{kind_name(role)}" if kind in ("", "message") else f"item/{kind_name(kind)}"
        self._parts.defects[f"unknown:{unknown}"] += 1
        return []

    def _by_role(self, role: str) -> Callable[[JsonObject, int], list[Said]] | None:
        match role:
            case "user":
                return self._user
            case "system" | "developer":
                return self._instructions
            case "assistant":
                return self._assistant
            case "tool" | "function":
                return self._tool
            case _:
                return None

    def _user(self, item: JsonObject, _place: int) -> list[Said]:
        return [self._said(EventKind.USER, self._parts.content(item.get("content")))]

    def _instructions(self, item: JsonObject, _place: int) -> list[Said]:
        return [self._said(EventKind.CONTEXT, self._parts.content(item.get("content")), INSTRUCTIONS)]

    def _assistant(self, item: JsonObject, place: int) -> list[Said]:
        parts = self._parts.reasoning(item.get("reasoning_content") or item.get("reasoning"))
        parts += self._parts.content(item.get("content"))
        parts += self._parts.text(item.get("refusal"))
        parts += self._parts.text((as_object(item.get("audio")) or {}).get("transcript"))
        for number, value in enumerate(as_list(item.get("tool_calls")) or []):
            parts.append(self._listed_call(as_object(value) or {}, f"call@{place}.{number}"))
        old = as_object(item.get("function_call"))
        if old is not None:
            parts.append(self._call(old.get("name"), old.get("arguments"), f"call@{place}"))
        return [self._said(EventKind.ASSISTANT, parts)]

    def _listed_call(self, value: JsonObject, unnamed: str) -> Part:
        call_id = bounded_id(value.get("id"))
        if call_id is None:
            self._parts.defects["missing_call_id"] += 1
        called = as_object(value.get("function")) or as_object(value.get("custom")) or value
        arguments = called.get("arguments") if "arguments" in called else {"input": called.get("input")}
        return self._call(called.get("name"), arguments, call_id or unnamed)

    def _call(self, name: Any, arguments: Any, call_id: str) -> Part:
        return self._parts.call(name, arguments, call_id)

    def _tool(self, item: JsonObject, place: int) -> list[Said]:
        return [self._output(item, item.get("content"), item.get("tool_call_id"), place)]

    def _output(self, item: JsonObject, value: Any, given: Any, place: int) -> Said:
        call_id = bounded_id(given)
        if call_id is None and item.get("role") != "function":
            self._parts.defects["missing_call_id"] += 1
        return Said(
            kind=EventKind.TOOL,
            parts=self._parts.result(value, call_id or f"result@{place}"),
            answers=as_word(item.get("name")) if call_id is None else None,
        )

    def _call_item(self, item: JsonObject, kind: str, place: int) -> Said:
        call_id = bounded_id(item.get("call_id")) or bounded_id(item.get("id"))
        if call_id is None:
            self._parts.defects["missing_call_id"] += 1
        name = item.get("name") or kind.removesuffix("_call")
        keys = ("arguments", "action", "operation", "actions")
        arguments = next((item[key] for key in keys if item.get(key) is not None), {"input": item.get("input", "")})
        return self._said(EventKind.ASSISTANT, [self._call(name, arguments, call_id or f"call@{place}")])

    def _hosted(self, item: JsonObject, kind: str, place: int) -> list[Said]:
        call_id = bounded_id(item.get("id")) or bounded_id(item.get("call_id")) or f"call@{place}"
        arguments = item.get("arguments") or item.get("action") or item.get("queries") or item.get("code")
        name = item.get("name") or kind.removesuffix("_call")
        call = self._parts.call(name, arguments, call_id)
        error = item.get("error")
        value = next((item[key] for key in _HOSTED_OUTPUTS if item.get(key)), None)
        if kind == "image_generation_call" and isinstance(value, str):
            image = self._parts.media.from_base64(value, "image/png")
            result = (*self._parts.result(None, call_id), image)
        elif value is None and not error:
            self._parts.skipped["hosted_call_result"] += 1
            result = self._parts.result(_KEPT_BY_SERVER, call_id)
        else:
            result = self._parts.result(error or value, call_id, is_error=bool(error))
        return [
            self._said(EventKind.ASSISTANT, [call]),
            Said(kind=EventKind.TOOL, parts=result, label=HOSTED),
        ]

    def _reasoning(self, item: JsonObject) -> Said:
        if item.get("encrypted_content"):
            self._parts.skipped["encrypted_content"] += 1
        items = [*as_items(item.get("summary")), *as_items(item.get("content"))]
        found = [text for value in items if isinstance(text := (as_object(value) or {"text": value}).get("text"), str)]
        parts = self._parts.reasoning("\n\n".join(found))
        if not parts:
            self._parts.skipped["empty_reasoning"] += 1
        return Said(kind=EventKind.ASSISTANT, parts=tuple(parts))

    def _said(self, kind: EventKind, parts: list[Part], label: str | None = None) -> Said:
        if not parts:
            self._parts.skipped["empty_message"] += 1
        return Said(kind=kind, parts=tuple(parts), label=label)
