"""Content blocks of Claude Code messages, turned into parts.

The module owns these invariants:

- A block is kept, counted as known noise, or counted as unknown under its type; none disappears silently.
- A signature is never kept, and thinking without words is no part.
- `toolUseResult` repeats a result and is never read but for the id of the subagent that gave it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from emelex_core.events import MediaPart, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from emelex_core.imports.files.lenient import (
    JsonObject,
    as_items,
    as_list,
    as_object,
    as_word,
    bound_arguments,
    bounded_id,
    fit_text,
    json_text,
)
from emelex_core.imports.reading.media import MediaReader
from emelex_core.imports.reading.reader import kind_name

CALL_TYPES: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_EXIT_CODE: Final = re.compile(r"\s*(?:<[a-z_]{1,32}>)?Exit code:? (-?[0-9]{1,10})\b")
_AGENT_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REJECTED: Final = "The user doesn't want to proceed with this tool use"


class BlockReader:
    """Reads blocks, counting into the transcript's own counters."""

    def __init__(self, media: MediaReader, skipped: Counter[str], defects: Counter[str]) -> None:
        self._media = media
        self._skipped = skipped
        self._defects = defects

    def answer_part(self, block: JsonObject, *, unnamed: str) -> Part | None:
        """Return the part of an assistant's block, or None. `unnamed` is the id of a call that came without one."""
        kind = as_word(block.get("type"))
        match kind:
            case "text":
                return self._text(block.get("text"), TextPart)
            case "thinking":
                if block.get("signature"):
                    self._skipped["signature"] += 1
                return self._text(block.get("thinking"), ReasoningPart, noise="empty_thinking")
            case "redacted_thinking":
                self._skipped["redacted_thinking"] += 1
                return None
            case "image" | "document":
                return self.media_part(block)
            case _ if kind in CALL_TYPES:
                return self._call(block, unnamed)
            case _:
                self._defects[f"unknown:block/{kind_name(kind)}"] += 1
                return None

    def media_part(self, block: JsonObject) -> MediaPart | TextPart:
        """Return the part of an image or document block."""
        source = as_object(block.get("source")) or {}
        if source.get("type") == "url":
            return self._media.from_url(source.get("url"))
        if source.get("type") == "text" and isinstance(source.get("data"), str):
            return TextPart(text=fit_text(source["data"], self._defects))
        return self._media.from_base64(source.get("data"), source.get("media_type"))

    def result_parts(self, block: JsonObject, call_id: str, *, rejected: bool) -> list[Part]:
        """Return a tool result's parts: its text first, then its media."""
        texts: list[str] = []
        media: list[Part] = []
        for item in as_items(block.get("content")):
            self._add_result(item, texts, media)
        text = "\n".join(texts)
        is_error = block.get("is_error") is True
        code = _EXIT_CODE.match(text) if is_error else None
        result = ToolResultPart(
            call_id=call_id,
            text=fit_text(text, self._defects, name="cut_result"),
            is_error=is_error,
            exit_code=int(code.group(1)) if code else None,
            status="not_executed" if is_error and (rejected or text.startswith(_REJECTED)) else "completed",
        )
        return [result, *media]

    def _add_result(self, item: Any, texts: list[str], media: list[Part]) -> None:
        if item is None:
            return
        if isinstance(item, str):
            texts.append(item)
            return
        block = as_object(item) or {}
        kind = block.get("type")
        match kind:
            case "text" if isinstance(block.get("text"), str):
                texts.append(block["text"])
            case "image" | "document":
                media.append(self.media_part(block))
            case "tool_reference":
                texts.append(f"[tool: {kind_name(block.get('tool_name'))}]")
            case "web_search_result":
                texts.append(f"{block.get('title')}\n{block.get('url')}")
            case _:
                self._defects[f"unknown:result/{kind_name(kind)}"] += 1
                texts.append(json_text(item))

    def _text(
        self, text: Any, part: type[TextPart] | type[ReasoningPart], *, noise: str = "empty_text"
    ) -> TextPart | ReasoningPart | None:
        if not isinstance(text, str) or not text.strip():
            self._skipped[noise] += 1
            return None
        return part(text=fit_text(text, self._defects))

    def _call(self, block: JsonObject, unnamed: str) -> ToolCallPart:
        call_id = bounded_id(block.get("id"))
        if call_id is None:
            self._defects["missing_call_id"] += 1
        value = block.get("input")
        fields = as_object({} if value is None else value)
        arguments = bound_arguments({"input": value} if fields is None else fields, self._defects)
        return ToolCallPart(
            call_id=call_id or unnamed,
            name=bounded_id(block.get("name")) or "?",
            arguments=arguments,
        )


def holds_float(value: Any) -> bool:
    """Whether a number of a JSON value was read as a float, as orjson reads one too large for 64 bits."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, float):
            return True
        if isinstance(item, dict):
            waiting.extend((as_object(item) or {}).values())
        elif isinstance(item, list):
            waiting.extend(as_list(item) or [])
    return False


def agent_label(result: Any) -> str | None:
    """Return the label that links a tool's answer to the subagent that gave it, or None."""
    agent = (as_object(result) or {}).get("agentId")
    return f"agent:{agent}" if isinstance(agent, str) and _AGENT_ID.fullmatch(agent) else None
