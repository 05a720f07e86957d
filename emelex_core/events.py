"""Transcript events: what one append puts into a Session, and what replay gives back.

The module owns these invariants:

- An event's kind decides its role; `ROLES` is the one table, the schema's CHECK repeats it (behaviour 52).
- Parts are typed. What does not fit the types is refused on entry, by the same reader that finds it Corrupt later.
- Only a user's and an assistant's own words are evidence for Knowledge (`EVIDENCE_KINDS`); a `context` event carries
  what was put before the model without a person saying it: environment notes, hook text, another agent's own summary,
  recalled Knowledge.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self, TypeAlias

import msgspec
import orjson

from emelex_core import codec, limits
from emelex_core.errors import Corrupt, Invalid


class EventKind(StrEnum):
    """What an event is. Spelled the same in SQL, JSON and prose."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    CONTEXT = "context"
    SUMMARY = "summary"
    AUDIT = "audit"
    APPROVAL = "approval"
    ERROR = "error"


ROLES: Final[dict[EventKind, str]] = {
    EventKind.USER: "user",
    EventKind.ASSISTANT: "assistant",
    EventKind.TOOL: "tool",
    EventKind.CONTEXT: "user",
    EventKind.SUMMARY: "user",
    EventKind.AUDIT: "none",
    EventKind.APPROVAL: "none",
    EventKind.ERROR: "none",
}
"""The role under which a model sees each kind; `none` is never shown to a model (behaviour 51)."""

_PARTS_UNWALKED_MAX: Final = 1_024
"""An event of more parts is walked like any other value; far below the cap on nodes."""
_NODES_UNWALKED_MAX: Final = 16_384
_FLAT_TYPES: Final = frozenset({str, bool, int, type(None)})

EVIDENCE_KINDS: Final = frozenset({EventKind.USER, EventKind.ASSISTANT})


ASSET_KINDS: Final = frozenset({"image", "audio", "document"})


class AssetRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A reference to media bytes in the asset store.

    `sha256` is 64 lower-case hex digits, `kind` is image, audio or document, `media_type` is the sniffed MIME type, and
    `size` is in bytes.
    """

    sha256: str
    kind: str
    media_type: str
    size: int


MEDIA_MARK: Final = b'"type":"media"'
"""Stands in every stored payload that names media, since payloads are canonical, and in no text: there quotes are
escaped. A call's arguments may hold it too; what the payload names decides."""


class TextPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False, tag="text"):
    """Words of the event's own speaker."""

    text: str


class ReasoningPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False, tag="reasoning"):
    """A model's visible reasoning; kept, but never evidence and never replayed to a model."""

    text: str


class ToolCallPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False, tag="tool_call"):
    """A proposed tool call. `arguments` is the JSON object; text that was no object stands under the key `input`."""

    call_id: str
    name: str
    arguments: dict[str, Any]


class ToolResultPart(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    gc=False,
    tag="tool_result",
    omit_defaults=True,
):
    """A tool's answer: `status` is completed, unknown_effect or not_executed, `exit_code` a process's where known."""

    call_id: str
    text: str
    is_error: bool = False
    exit_code: int | None = None
    status: str = "completed"


class MediaPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False, tag="media"):
    """Media bytes that live in the asset store."""

    ref: AssetRef


Part: TypeAlias = TextPart | ReasoningPart | ToolCallPart | ToolResultPart | MediaPart
_TAGS: Final[dict[type, str]] = {
    TextPart: "text",
    ReasoningPart: "reasoning",
    ToolCallPart: "tool_call",
    ToolResultPart: "tool_result",
    MediaPart: "media",
}
_RESULT_DEFAULTS: Final = {"is_error": False, "exit_code": None, "status": "completed"}
"""What a stored tool result leaves out (`omit_defaults`)."""


class _Payload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    parts: tuple[Part, ...]
    label: str | None = None
    provenance: dict[str, Any] | None = None


_SORTED: Final = msgspec.json.Encoder(order="sorted")
"""Writes typed parts as orjson writes them with sorted keys; a test holds the two against each other."""


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event to append.

    `label` names a special purpose in one word (`imported_summary`, `failed_turn`, …). `source_record` is the record id
    in a foreign transcript, unique within the Session. `occurred_at` is the instant that the source states, in
    milliseconds; it is shown to people and never orders anything. `provenance` belongs to Summaries: which source they
    replace and what made them.
    """

    kind: EventKind
    parts: tuple[Part, ...]
    label: str | None = None
    source_record: str | None = None
    occurred_at: int | None = None
    provenance: dict[str, Any] | None = None

    @classmethod
    def user(cls, text: str, *media: AssetRef) -> Self:
        """A person's own words, with media that they attached."""
        return cls(kind=EventKind.USER, parts=(TextPart(text=text), *(MediaPart(ref=ref) for ref in media)))

    @classmethod
    def assistant(cls, text: str, *calls: ToolCallPart) -> Self:
        """A model's answer, with the tool calls that it proposes."""
        words = (TextPart(text=text),) if text else ()
        return cls(kind=EventKind.ASSISTANT, parts=(*words, *calls))

    @classmethod
    def tool(
        cls,
        call_id: str,
        text: str,
        *,
        is_error: bool = False,
        exit_code: int | None = None,
        status: str = "completed",
    ) -> Self:
        """A tool's answer to one call."""
        part = ToolResultPart(call_id=call_id, text=text, is_error=is_error, exit_code=exit_code, status=status)
        return cls(kind=EventKind.TOOL, parts=(part,))

    @classmethod
    def context(cls, text: str, *, label: str) -> Self:
        """Text that was put before the model without a person saying it."""
        return cls(kind=EventKind.CONTEXT, parts=(TextPart(text=text),), label=label)

    @classmethod
    def audit(cls, text: str, *, label: str) -> Self:
        """A note about the Session itself; no model sees it."""
        return cls(kind=EventKind.AUDIT, parts=(TextPart(text=text),), label=label)

    @property
    def text(self) -> str:
        """The speaker's own words: its text parts, joined by line breaks."""
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def media(self) -> tuple[AssetRef, ...]:
        """The event's media in order."""
        return tuple([part.ref for part in self.parts if isinstance(part, MediaPart)])


def encode_payload(event: Event, *, what: str = "event") -> bytes:
    """Return the canonical bytes of an event's parts and label; raise Invalid for what the entry gate refuses."""
    if not event.parts:
        raise Invalid(f"{what}: it has no parts")
    known = encode_words(event) or _encode_flat(event)
    if known is not None:
        return known
    payload: dict[str, Any] = {"parts": [_plain(part, what) for part in event.parts]}
    if event.label is not None:
        payload["label"] = event.label
    if event.provenance is not None:
        payload["provenance"] = event.provenance
    data = codec.encode(payload, what=what, bytes_max=limits.EVENT_BYTES_MAX)
    try:
        decode_payload(data, what=what)
    except Corrupt as error:
        raise Invalid(f"{what}: a part is not what its type promises ({error.message})") from None
    return data


def encode_words(event: Event) -> bytes | None:
    """The canonical bytes of an event that is nothing but words, the common case; None where the gate must look.

    What the gate would walk is known here: two levels, a node a part, no numbers. Texts are counted before they are
    serialised, and orjson refuses a lone surrogate. Whatever does not pass goes through the gate, which says where.
    """
    if event.label is not None or event.provenance is not None or not 1 <= len(event.parts) <= _PARTS_UNWALKED_MAX:
        return None
    parts: list[dict[str, str]] = []
    characters = 0
    for part in event.parts:
        if type(part) is not TextPart or type(part.text) is not str:
            return None
        characters += len(part.text)
        parts.append({"text": part.text, "type": "text"})
    if characters > limits.EVENT_BYTES_MAX:
        return None
    try:
        data = orjson.dumps({"parts": parts})
    except orjson.JSONEncodeError:
        return None
    return data if len(data) <= limits.EVENT_BYTES_MAX else None


def _encode_flat(event: Event) -> bytes | None:
    """The canonical bytes of an event whose parts hold texts, flags and whole numbers, as an agent's do; else None.

    As `encode_words`: every field has exactly its type, nothing is nested in it, and eight nodes a part and one an
    argument are known without a walk.
    """
    label = event.label
    if event.provenance is not None or not (label is None or type(label) is str):
        return None
    nodes = 0
    for part in event.parts:
        if not _is_flat(part):
            return None
        nodes += 8 + (len(part.arguments) if isinstance(part, ToolCallPart) else 0)
    if nodes > _NODES_UNWALKED_MAX:
        return None
    try:
        data = _SORTED.encode(_Payload(parts=event.parts, label=label))
    except (UnicodeEncodeError, OverflowError):
        return None
    return data if len(data) <= limits.EVENT_BYTES_MAX else None


def _is_flat(part: Part) -> bool:
    """Whether every field of a part has exactly its type, and nothing is nested in it."""
    if type(part) not in _TAGS or isinstance(part, MediaPart):
        return False
    if isinstance(part, ToolCallPart):
        if type(part.call_id) is not str or type(part.name) is not str or type(part.arguments) is not dict:
            return False
        for key, value in part.arguments.items():
            if type(key) is not str or type(value) not in _FLAT_TYPES:
                return False
            if type(value) is int and not codec.INTEGER_MIN <= value <= codec.INTEGER_MAX:
                return False
        return True
    if isinstance(part, ToolResultPart):
        code = part.exit_code
        if type(part.call_id) is not str or type(part.status) is not str or type(part.is_error) is not bool:
            return False
        if code is not None and (type(code) is not int or not codec.INTEGER_MIN <= code <= codec.INTEGER_MAX):
            return False
    return type(part.text) is str


def _plain(part: Part, what: str) -> dict[str, Any]:
    """A part as JSON. Only its own fields are taken apart; the entry gate walks what they hold, with its caps."""
    tag = _TAGS.get(type(part))
    if tag is None:
        raise Invalid(f"{what}: {type(part).__name__} is no part of an event")
    plain: dict[str, Any] = {"type": tag, **msgspec.structs.asdict(part)}
    if isinstance(part, MediaPart):
        plain["ref"] = msgspec.structs.asdict(part.ref)
    elif isinstance(part, ToolResultPart):
        for name, default in _RESULT_DEFAULTS.items():
            if plain[name] == default:
                del plain[name]
    return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What an event's stored payload holds."""

    parts: tuple[Part, ...]
    label: str | None
    provenance: dict[str, Any] | None


def decode_payload(data: bytes, *, what: str) -> Payload:
    """Read a payload back; anything that `encode_payload` could not have written is Corrupt, naming `what`."""
    try:
        stored = msgspec.json.decode(data, type=_Payload)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise Corrupt(f"{what}: its payload is not an event's: {error}") from None
    return Payload(parts=stored.parts, label=stored.label, provenance=stored.provenance)
