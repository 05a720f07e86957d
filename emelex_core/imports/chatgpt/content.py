"""Content of ChatGPT's messages, turned into utterances.

The module owns these invariants:

- Every content type is read, counted as known noise, or kept as text and counted as unknown under its name.
- A pointer to a file becomes the file's bytes where the export holds them, else its name; nothing is fetched.
- Calls have no ids here: a call is named after its node, and its answer after the call.
"""

from __future__ import annotations

from typing import Any, Final

from emelex_core.events import EventKind, Part, TextPart
from emelex_core.imports.chatgpt.files import ExportFiles
from emelex_core.imports.conversations.conversation import Said
from emelex_core.imports.files.lenient import JsonObject, as_items, as_list, as_object, as_word, json_text
from emelex_core.imports.openai.items import INSTRUCTIONS
from emelex_core.imports.reading.parts import Opened, PartReader
from emelex_core.imports.reading.reader import kind_name, text_of

EVERYBODY: Final = "all"
_POINTERS: Final = frozenset(
    {"image_asset_pointer", "audio_asset_pointer", "video_container_asset_pointer", "file_asset_pointer"}
)
_NAME_CHARACTERS_MAX: Final = 200


class ContentReader:
    """Reads the messages of one conversation."""

    def __init__(self, parts: PartReader, files: ExportFiles) -> None:
        self._parts = parts
        self._files = files

    def said(self, message: JsonObject, *, call_id: str) -> list[Said]:
        """Return what a message says. `call_id` is the call that it makes or answers."""
        role = as_word((as_object(message.get("author")) or {}).get("role"))
        content = as_object(message.get("content")) or {}
        kind = as_word(content.get("content_type"))
        if kind in ("user_editable_context", "model_editable_context"):
            return self._context(_editable(content), "user_instructions")
        if is_hidden(message):
            self._parts.skipped["hidden"] += 1
            return []
        match role:
            case "assistant":
                return self._assistant(message, content, kind, call_id)
            case "tool":
                return self._tool(message, content, kind, call_id)
            case "user":
                return [Said(kind=EventKind.USER, parts=(*self._content(content, kind), *self._attached(message)))]
            case "system":
                if kind == "system_error":
                    return [Said(kind=EventKind.ERROR, parts=tuple(self._content(content, kind)), label=kind)]
                return [Said(kind=EventKind.CONTEXT, parts=tuple(self._content(content, kind)), label=INSTRUCTIONS)]
            case _:
                self._parts.defects[f"unknown:role/{kind_name(role)}"] += 1
                return []

    def _assistant(self, message: JsonObject, content: JsonObject, kind: str, call_id: str) -> list[Said]:
        if kind == "thoughts":
            thoughts = [as_object(item) or {} for item in as_list(content.get("thoughts")) or []]
            texts = [text for item in thoughts for key in ("summary", "content") if (text := text_of(item.get(key)))]
            return [Said(kind=EventKind.ASSISTANT, parts=tuple(self._parts.reasoning("\n\n".join(texts))))]
        if kind == "reasoning_recap":
            self._parts.skipped["reasoning_recap"] += 1
            return []
        parts = self._content(content, kind)
        if not is_call(message):
            return [Said(kind=EventKind.ASSISTANT, parts=tuple(parts))]
        told = "\n".join(part.text for part in parts if isinstance(part, TextPart))
        # What a tool is told is JSON or, for an interpreter, code.
        arguments: Any = told if told.lstrip().startswith("{") else {"input": told}
        call = self._parts.call(message.get("recipient"), arguments, call_id)
        media = [part for part in parts if not isinstance(part, TextPart)]
        return [Said(kind=EventKind.ASSISTANT, parts=(call, *media))]

    def _tool(self, message: JsonObject, content: JsonObject, kind: str, call_id: str) -> list[Said]:
        opened = Opened()
        for part in self._content(content, kind):
            if isinstance(part, TextPart):
                opened.texts.append(part.text)
            else:
                opened.media.append(part)
        metadata = as_object(message.get("metadata")) or {}
        execution = as_object(metadata.get("aggregate_result")) or {}
        is_error = kind == "system_error" or execution.get("status") == "failed_with_in_kernel_exception"
        return [Said(kind=EventKind.TOOL, parts=self._parts.result(opened, call_id, is_error=is_error))]

    def _content(self, content: JsonObject, kind: str) -> list[Part]:
        match kind:
            case "text" | "multimodal_text":
                return [part for item in as_items(content.get("parts")) for part in self._part(item)]
            case "code" | "execution_output":
                return self._parts.text(content.get("text"))
            case "system_error":
                return self._parts.text("\n".join(_texts(content, "name", "text")))
            case "tether_browsing_display":
                return self._parts.text("\n".join(_texts(content, "summary", "result")))
            case "tether_quote":
                return self._parts.text("\n".join(_texts(content, "title", "url", "text")))
            case _:
                self._parts.defects[f"unknown:content/{kind_name(kind)}"] += 1
                texts = _texts(content, "text", "result", "content")
                return self._parts.text("\n".join(texts) if texts else json_text(content)) if content else []

    def _part(self, item: Any) -> list[Part]:
        """Read one part of a text or of mixed media."""
        if item is None or isinstance(item, str):
            return self._parts.text(item)
        fields = as_object(item) or {}
        kind = as_word(fields.get("content_type"))
        if kind in _POINTERS:
            return [self._pointed(fields.get("asset_pointer"))]
        if kind == "audio_transcription":
            return self._parts.text(fields.get("text"))
        if kind == "real_time_user_audio_video_asset_pointer":
            audio = as_object(fields.get("audio_asset_pointer")) or {}
            frames = [self._pointed(frame) for frame in as_list(fields.get("frames_asset_pointers")) or []]
            return [self._pointed(audio.get("asset_pointer")), *frames]
        if not kind and isinstance(fields.get("text"), str):
            return self._parts.text(fields["text"])
        self._parts.defects[f"unknown:part/{kind_name(kind)}"] += 1
        return self._parts.text(json_text(item))

    def _attached(self, message: JsonObject) -> list[Part]:
        """Return the files that a person attached, but for those that their words point to."""
        found: list[Part] = []
        pointed = json_text(as_object(message.get("content")) or {})
        for item in as_list((as_object(message.get("metadata")) or {}).get("attachments")) or []:
            attached = as_object(item) or {}
            own = text_of(attached.get("id"))
            if own is None or own not in pointed:
                found.append(self._file(own, text_of(attached.get("name")) or own or "?"))
        return found

    def _pointed(self, pointer: Any) -> Part:
        own = pointer.rpartition("//")[2] if isinstance(pointer, str) else ""
        return self._file(own, own or "?")

    def _file(self, own: str | None, name: str) -> Part:
        with self._files.opened(own) as source:
            if source is not None:
                return self._parts.media.from_source(source, name=name)
        self._parts.defects["missing_file"] += 1
        return TextPart(text=f"[file: {name[:_NAME_CHARACTERS_MAX]}]")

    def _context(self, text: str, label: str) -> list[Said]:
        return [Said(kind=EventKind.CONTEXT, parts=tuple(self._parts.text(text)), label=label)]


def is_call(message: JsonObject) -> bool:
    """Whether a message is said to a tool."""
    recipient = as_word(message.get("recipient"))
    role = as_word((as_object(message.get("author")) or {}).get("role"))
    return role == "assistant" and recipient not in ("", EVERYBODY)


def is_answer(message: JsonObject) -> bool:
    """Whether a tool says it."""
    return as_word((as_object(message.get("author")) or {}).get("role")) == "tool"


def is_hidden(message: JsonObject) -> bool:
    """Whether nobody was shown it. Calls and their answers are kept: one without the other would be wrong."""
    metadata = as_object(message.get("metadata")) or {}
    hidden = message.get("weight") == 0 or metadata.get("is_visually_hidden_from_conversation") is True
    return hidden and not is_call(message) and not is_answer(message)


def _editable(content: JsonObject) -> str:
    keys = ("user_profile", "user_instructions", "model_set_context", "text")
    return "\n\n".join(_texts(content, *keys))


def _texts(content: JsonObject, *keys: str) -> list[str]:
    return [text for key in keys if (text := text_of(content.get(key)))]
