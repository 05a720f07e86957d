"""Response items of Codex rollouts, turned into parts.

The module owns these invariants:

- Arguments and outputs are read in every shape that was seen (JSON text, plain text, objects, lists of parts), and what
  has another shape is kept as text: nothing that a tool was told or said is lost.
- Opaque content (`encrypted_content`) is dropped and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

import orjson

from emelex_core.events import Part, TextPart, ToolCallPart, ToolResultPart
from emelex_core.imports.files.lenient import (
    JsonList,
    JsonObject,
    as_items,
    as_list,
    as_object,
    as_word,
    bound_arguments,
    bounded_id,
    fit_text,
    json_text,
    load_arguments,
)
from emelex_core.imports.reading.media import MediaReader
from emelex_core.imports.reading.reader import kind_name

CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "tool_search_call", "web_search_call", "mcp_call"}
)
OUTPUTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "tool_search_output", "mcp_tool_call_output"}
)
HOSTED_CALLS: Final = frozenset({"web_search_call"})
"""Calls that the server runs itself: a rollout never holds their results."""

_NAMES: Final = {"local_shell_call": "local_shell", "tool_search_call": "tool_search", "web_search_call": "web_search"}
_TEXT_TYPES: Final = frozenset(
    {"input_text", "output_text", "text", "inputText", "summary_text", "reasoning_text", "Text"}
)
_IMAGE_TYPES: Final = frozenset({"input_image", "image"})
_HEADER: Final = re.compile(r"(?:Exit code|Wall time|Chunk ID|Total output lines): ")
_EXIT_CODE: Final = re.compile(r"(?:\A|\n)(?:Exit code: |Process exited with code )(-?[0-9]{1,10})\b")
_HEADER_CHARACTERS: Final = 400
_FAILED: Final = ("aborted by user", "execution error")
_IMAGE_TAG: Final = re.compile(r"\s*</?image(?: name=[^<>]{0,80})?>\s*")


class ItemReader:
    """Reads items, counting into the transcript's own counters."""

    def __init__(self, media: MediaReader, skipped: Counter[str], defects: Counter[str]) -> None:
        self._media = media
        self._skipped = skipped
        self._defects = defects

    def call(self, item: JsonObject, offset: int) -> ToolCallPart:
        """Return the part of a call item; one without an id is named after its line."""
        kind = as_word(item.get("type"))
        name = bounded_id(item.get("name")) or _NAMES.get(kind) or kind
        return ToolCallPart(
            call_id=bounded_id(item.get("call_id")) or bounded_id(item.get("id")) or f"call@{offset}",
            name=name,
            arguments=self._arguments(item),
        )

    def output(self, item: JsonObject, offset: int) -> list[Part]:
        """Return the parts of an output item: the result first, then its media."""
        call_id = bounded_id(item.get("call_id"))
        if call_id is None:
            self._defects["missing_call_id"] += 1
            call_id = f"call@{offset}"
        value = item.get("output") if "output" in item else item.get("tools")
        texts, media, code, failed = self._opened(value)
        text = "\n".join(texts)
        if code is None:
            code = _stated_exit_code(text)
        failed = failed or text.startswith(_FAILED) or code not in (None, 0)
        result = ToolResultPart(
            call_id=call_id,
            text=fit_text(text, self._defects, name="cut_result"),
            is_error=failed,
            exit_code=code,
        )
        return [result, *media]

    def content(self, value: Any) -> list[Part]:
        """Return the texts and media of a message's content, in order. Marks around images are dropped."""
        parts: list[Part] = []
        for item in as_items(value):
            image = as_object(item) or {}
            if as_word(image.get("type")) in _IMAGE_TYPES:
                if image.get("image_url") is None and image.get("data") is None:
                    self._skipped["empty_image"] += 1
                else:
                    parts.append(self._image(image))
                continue
            text = self.text(item)
            if text is not None and _IMAGE_TAG.fullmatch(text):
                self._skipped["image_tag"] += 1
            elif text is not None and text.strip():
                parts.append(TextPart(text=fit_text(text, self._defects)))
        return parts

    def text(self, item: Any) -> str | None:
        """Return the text of one content item; count what is opaque or unknown."""
        if isinstance(item, str):
            return item
        if item is None:
            return None
        fields = as_object(item) or {}
        kind = as_word(fields.get("type"))
        if kind == "encrypted_content":
            self._skipped["encrypted_content"] += 1
            return None
        text = fields.get("refusal" if kind == "refusal" else "text")
        if (kind in _TEXT_TYPES or kind == "refusal") and isinstance(text, str):
            return text
        self._defects[f"unknown:content/{kind_name(kind)}"] += 1
        return None

    def generated_image(self, item: JsonObject, call_id: str) -> list[Part]:
        """Return the result of an image generation, which its own item carries."""
        result: Part = ToolResultPart(call_id=call_id, text=str(item.get("status") or "completed")[:80])
        return [result, self._media.from_base64(item.get("result"), "image/png")]

    def _arguments(self, item: JsonObject) -> JsonObject:
        kind = item.get("type")
        if kind == "custom_tool_call":
            text = item.get("input")
            return {"input": fit_text(text if isinstance(text, str) else json_text(text), self._defects)}
        value = item.get("action") if "action" in item else item.get("arguments")
        if isinstance(value, str):
            return load_arguments(value, self._defects)
        fields = as_object({} if value is None else value)
        return bound_arguments({"input": value} if fields is None else fields, self._defects)

    def _opened(self, value: Any) -> tuple[list[str], list[Part], int | None, bool]:
        """Open an output of any shape: its texts, its media, its exit code, and whether it says that it failed."""
        if isinstance(value, str):
            inner = _structured(value)
            return ([value], [], None, False) if inner is None else self._opened(inner)
        fields = as_object(value)
        if fields is not None and "type" not in fields:
            failed = fields.get("success") is False or fields.get("isError") is True
            if isinstance(fields.get("output"), str):
                code = (as_object(fields.get("metadata")) or {}).get("exit_code")
                return [fields["output"]], [], _small_integer(code), failed
            content = fields.get("content")
            if isinstance(content, (str, list)):
                return (*self._listed(as_items(content)), None, failed)
            return [json_text(fields)], [], None, failed
        if value is None:
            return [], [], None, False
        return (*self._listed(as_items(value)), None, False)

    def _listed(self, items: JsonList) -> tuple[list[str], list[Part]]:
        texts: list[str] = []
        media: list[Part] = []
        for item in items:
            fields = as_object(item) or {}
            kind = as_word(fields.get("type"))
            if kind in _IMAGE_TYPES:
                media.append(self._image(fields))
            elif kind in _TEXT_TYPES or isinstance(item, str) or kind == "encrypted_content":
                text = self.text(item)
                texts += [text] if text is not None else []
            else:
                texts.append(json_text(item))
        return texts, media

    def _image(self, item: JsonObject) -> Part:
        url = item.get("image_url")
        if url is not None:
            return self._media.from_url((as_object(url) or {"url": url}).get("url"))
        return self._media.from_base64(item.get("data"), item.get("mimeType"))


def _structured(text: str) -> Any:
    """Return the value of an output that is JSON in one of the known shapes, or None for a text that stays as it is."""
    if not text.startswith(("{", "[")):
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    fields = as_object(value)
    if fields is not None:
        known = isinstance(fields.get("output"), str) and isinstance(fields.get("metadata"), dict)
        known = known or (isinstance(fields.get("content"), list) and "isError" in fields)
        return fields if known else None
    kinds = {as_word((as_object(item) or {}).get("type")) for item in as_list(value) or [None]}
    return value if all(kind in _TEXT_TYPES or kind in _IMAGE_TYPES for kind in kinds) else None


def _stated_exit_code(text: str) -> int | None:
    """Read the exit code from the head that newer versions write before an output."""
    if _HEADER.match(text) is None:
        return None
    match = _EXIT_CODE.search(text[:_HEADER_CHARACTERS].partition("\nOutput:")[0])
    return int(match.group(1)) if match else None


def _small_integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31 else None
