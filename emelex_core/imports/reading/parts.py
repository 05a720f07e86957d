"""Content of chat messages, in the spellings of OpenAI, LangChain and Gemini, turned into parts.

The module owns these invariants:

- A content part is kept, counted as known noise, or counted as unknown under its type; none disappears silently.
- Nothing is fetched: an address of a remote image or file stays an address.
- Arguments that are no JSON object stand whole under the key `input`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from emelex_core.events import Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from emelex_core.imports.files.lenient import (
    JsonObject,
    as_items,
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

_TEXTS: Final = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text", "text-plain"})
_REASONINGS: Final = frozenset({"thinking", "reasoning", "reasoning_content"})
_IMAGES: Final = frozenset({"image_url", "input_image", "image"})
_FILES: Final = frozenset({"file", "input_file", "document", "audio", "media"})
_AUDIOS: Final = frozenset({"input_audio"})
_REPEATED: Final = frozenset({"tool_use", "tool_call", "function_call", "tool_call_chunk"})
"""Calls inside an answer's content; LangChain lists them once more as calls."""
_NAME_CHARACTERS_MAX: Final = 200


@dataclass(slots=True)
class Opened:
    """A tool's output: its texts and its media."""

    texts: list[str] = field(default_factory=list[str])
    media: list[Part] = field(default_factory=list[Part])

    @property
    def text(self) -> str:
        """The texts, one below the other."""
        return "\n".join(self.texts)


class PartReader:
    """Reads content, counting into a conversation's own counters."""

    def __init__(self, media: MediaReader, skipped: Counter[str], defects: Counter[str]) -> None:
        self.media = media
        self.skipped = skipped
        self.defects = defects

    def content(self, value: Any) -> list[Part]:
        """Return the parts of a message's content: a text, null, or a list of parts."""
        parts: list[Part] = []
        for item in as_items(value):
            if item is not None:
                parts += self._item(item)
        return parts

    def text(self, value: Any) -> list[Part]:
        """Return a text as a part; nothing for what is blank or no text."""
        return [TextPart(text=fit_text(value, self.defects))] if isinstance(value, str) and value.strip() else []

    def reasoning(self, value: Any) -> list[Part]:
        """Return a model's visible reasoning as a part; nothing for what is blank or no text."""
        return [ReasoningPart(text=fit_text(value, self.defects))] if isinstance(value, str) and value.strip() else []

    def call(self, name: Any, arguments: Any, call_id: str) -> ToolCallPart:
        """Return a call's part. `arguments` is JSON text or a value."""
        if isinstance(arguments, str):
            bounded = load_arguments(arguments, self.defects)
        else:
            fields = as_object({} if arguments is None else arguments)
            bounded = bound_arguments({"input": arguments} if fields is None else fields, self.defects)
        return ToolCallPart(call_id=call_id, name=bounded_id(name) or "?", arguments=bounded)

    def result(
        self,
        value: Any,
        call_id: str,
        *,
        is_error: bool = False,
        exit_code: int | None = None,
        status: str = "completed",
    ) -> tuple[Part, ...]:
        """Return a tool's answer and the media in it. `value` has any shape; what has none of the known is JSON."""
        opened = value if isinstance(value, Opened) else self.opened(value)
        result = ToolResultPart(
            call_id=call_id,
            text=fit_text(opened.text, self.defects, name="cut_result"),
            is_error=is_error,
            exit_code=exit_code,
            status=status,
        )
        return (result, *opened.media)

    def opened(self, value: Any) -> Opened:
        """Take a tool's output apart."""
        opened = Opened()
        for item in as_items(value):
            kind = as_word((as_object(item) or {}).get("type"))
            if item is None:
                continue
            if isinstance(item, str):
                opened.texts.append(item)
            elif kind in _IMAGES or kind in _FILES or kind in _AUDIOS:
                opened.media += self._item(item)
            elif kind in _TEXTS and isinstance(item.get("text"), str):
                opened.texts.append(item["text"])
            else:
                opened.texts.append(json_text(item))
        return opened

    def _item(self, item: Any) -> list[Part]:
        if isinstance(item, str):
            return self.text(item)
        fields = as_object(item)
        if fields is None:
            self.defects["unknown:content/?"] += 1
            return []
        kind = as_word(fields.get("type"))
        if kind in _TEXTS:
            return self.text(fields.get("text"))
        if kind == "refusal":
            return self.text(fields.get("refusal"))
        if kind in _REASONINGS:
            return self._thought(fields)
        if kind in _IMAGES:
            return [self._image(fields)]
        if kind in _AUDIOS:
            audio = as_object(fields.get("input_audio")) or fields
            return [self.media.from_base64(audio.get("data"), f"audio/{as_word(audio.get('format'))[:20]}")]
        if kind in _FILES:
            return [self._file(fields)]
        if kind in _REPEATED:
            self.skipped[f"content/{kind}"] += 1
        else:
            self.defects[f"unknown:content/{kind_name(kind)}"] += 1
        return []

    def _thought(self, fields: JsonObject) -> list[Part]:
        if fields.get("signature") or fields.get("encrypted_content"):
            self.skipped["encrypted_content"] += 1
        texts = [fields.get(key) for key in ("thinking", "reasoning", "text")]
        texts += [(as_object(item) or {"text": item}).get("text") for item in as_items(fields.get("summary"))]
        return self.reasoning("\n\n".join(text for text in texts if isinstance(text, str) and text))

    def _image(self, fields: JsonObject) -> Part:
        """OpenAI writes an address or a data URL, LangChain also base64 beside a type, Anthropic a source."""
        source = as_object(fields.get("source")) or fields
        url = fields.get("image_url") or source.get("url")
        if url is not None:
            return self.media.from_url((as_object(url) or {"url": url}).get("url"))
        data = source.get("data") or source.get("base64")
        if data is None and isinstance(fields.get("file_id"), str):
            return self._named(fields["file_id"])
        return self.media.from_base64(data, source.get("mime_type") or source.get("media_type"))

    def _file(self, fields: JsonObject) -> Part:
        """A file's bytes where the message carries them, else its name."""
        inner = as_object(fields.get("file")) or as_object(fields.get("source")) or fields
        data = inner.get("file_data") or inner.get("data") or inner.get("base64")
        if isinstance(data, str) and data:
            if data.startswith("data:"):
                return self.media.from_url(data)
            return self.media.from_base64(data, inner.get("mime_type") or inner.get("media_type"))
        for key in ("file_url", "url", "filename", "file_id", "id"):
            name = inner.get(key)
            if isinstance(name, str) and name:
                return self._named(name)
        return self._named("?")

    def _named(self, name: str) -> TextPart:
        self.skipped["file_by_name"] += 1
        return TextPart(text=f"[file: {name[:_NAME_CHARACTERS_MAX]}]")
