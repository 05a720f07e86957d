"""Messages of Gemini CLI's recordings, turned into messages.

The module owns these invariants:

- A person's own words are what they typed: where a prompt was expanded with files, the expansion is context.
- A call that was refused is `not_executed`; one that was cancelled on the way may have had an effect, which nobody
  knows.
- A record is read once, however many paths lead through it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from emelex_core.events import EventKind, Part
from emelex_core.imports.conversations.conversation import Message, Said, message_id
from emelex_core.imports.files.lenient import JsonObject, as_items, as_list, as_object, as_word, bounded_id, json_text
from emelex_core.imports.reading.media import MediaReader
from emelex_core.imports.reading.parts import Opened, PartReader
from emelex_core.imports.reading.reader import instant, kind_name, text_of

EXPANDED: Final = "expanded_prompt"
_ENDED: Final = frozenset({"success", "error", "cancelled"})
_REFUSED: Final = re.compile(r"did not allow|not allowed|declined|denied|rejected", re.IGNORECASE)
_EXIT_CODE: Final = re.compile(r"^Exit Code: (-?[0-9]{1,10})$", re.MULTILINE)
_NOTES: Final = {"info": EventKind.AUDIT, "warning": EventKind.AUDIT, "error": EventKind.ERROR}


class MessageReader:
    """Reads the records of one recording."""

    def __init__(self, media: MediaReader, skipped: Counter[str], defects: Counter[str]) -> None:
        self._parts = PartReader(media, skipped, defects)
        self._read: dict[int, tuple[JsonObject, list[Message], int]] = {}

    def path(self, records: Sequence[JsonObject]) -> list[Message]:
        """Return the messages of one path, up to a call that is still under way."""
        found: list[Message] = []
        for place, record in enumerate(records):
            known = self._read.get(id(record))
            if known is None:
                # The record stays referenced, so that its identity is not given to another.
                known = self._read[id(record)] = (record, *self._messages(record, place))
            _, messages, settled = known
            found += messages if place < len(records) - 1 else messages[:settled]
        return found

    def _messages(self, record: JsonObject, place: int) -> tuple[list[Message], int]:
        """Return a record's messages, and how many of them stand before the first answer that is still to come."""
        kind = as_word(record.get("type"))
        own = record.get("id")
        occurred_at = instant(record.get("timestamp"))
        if kind == "user":
            said = self._user(record)
        elif kind == "gemini":
            said = self._words(record)
        elif kind in _NOTES:
            parts = self._content(record.get("content"))
            said = [Said(kind=_NOTES[kind], parts=tuple(parts), label=kind)] if parts else []
        else:
            self._parts.defects[f"unknown:message/{kind_name(kind)}"] += 1
            return [], 0
        content = [record.get("type"), record.get("content"), record.get("thoughts")]
        found: list[Message] = []
        if said:
            found.append(Message(id=message_id(own, content, place=place), said=tuple(said), occurred_at=occurred_at))
        elif not record.get("toolCalls"):
            self._parts.skipped["empty_message"] += 1
        settled: int | None = None
        for number, value in enumerate(as_list(record.get("toolCalls")) or []):
            call = as_object(value)
            if call is None:
                self._parts.defects["malformed:call"] += 1
                continue
            messages = self._call(call, own, place, number)
            found += messages
            if len(messages) == 1:
                self._parts.defects["unfinished_call"] += 1
                settled = len(found) if settled is None else settled
        return found, len(found) if settled is None else settled

    def _user(self, record: JsonObject) -> list[Said]:
        parts = self._content(record.get("content"))
        typed = record.get("displayContent")
        if typed is None or typed == record.get("content"):
            return [Said(kind=EventKind.USER, parts=tuple(parts))] if parts else []
        own = self._content(typed)
        said = [Said(kind=EventKind.CONTEXT, parts=tuple(parts), label=EXPANDED)] if parts else []
        return [*said, Said(kind=EventKind.USER, parts=tuple(own))] if own else said

    def _words(self, record: JsonObject) -> list[Said]:
        parts: list[Part] = []
        for value in as_list(record.get("thoughts")) or []:
            thought = as_object(value) or {}
            texts = [text for key in ("subject", "description") if (text := text_of(thought.get(key)))]
            parts += self._parts.reasoning("\n".join(texts))
        parts += self._content(record.get("content"))
        return [Said(kind=EventKind.ASSISTANT, parts=tuple(parts))] if parts else []

    def _call(self, call: JsonObject, own: Any, place: int, number: int) -> list[Message]:
        """Return a call and its answer, as two messages; the answer only once the call has ended."""
        call_id = bounded_id(call.get("id"))
        if call_id is None:
            self._parts.defects["missing_call_id"] += 1
            call_id = f"call@{place}.{number}"
        occurred_at = instant(call.get("timestamp"))
        part = self._parts.call(call.get("name"), call.get("args"), call_id)
        native = f"{as_word(own)[:40] or f'@{place}'}/{call_id[:64]}"
        asked = Message(
            id=message_id(f"{native}=call", [call.get("name"), call.get("args")], place=place),
            said=(Said(kind=EventKind.ASSISTANT, parts=(part,)),),
            occurred_at=occurred_at,
        )
        status = as_word(call.get("status"))
        if status not in _ENDED and call.get("result") is None:
            return [asked]
        content = [status, call.get("result"), call.get("resultDisplay") if call.get("result") is None else None]
        answer = Message(
            id=message_id(f"{native}=result", content, place=place),
            said=(Said(kind=EventKind.TOOL, parts=self._result(call, call_id, status), label=_agent(call)),),
            occurred_at=occurred_at,
        )
        return [asked, answer]

    def _result(self, call: JsonObject, call_id: str, status: str) -> tuple[Part, ...]:
        value = call.get("result")
        opened = Opened()
        failed = False
        for item in as_items(call.get("resultDisplay") if value is None else value):
            failed |= self._open(item, opened)
        code = _EXIT_CODE.search(opened.text) if call.get("name") == "run_shell_command" else None
        exit_code = int(code.group(1)) if code else None
        if exit_code is not None and abs(exit_code) >= 2**31:
            exit_code = None
        outcome = "completed"
        if status == "cancelled":
            outcome = "not_executed" if _REFUSED.search(opened.text) else "unknown_effect"
        is_error = failed or status in ("error", "cancelled") or exit_code not in (None, 0)
        return self._parts.result(opened, call_id, is_error=is_error, exit_code=exit_code, status=outcome)

    def _open(self, item: Any, opened: Opened) -> bool:
        """Take one part of a result apart; return whether it says that the call failed."""
        fields = as_object(item)
        answer = as_object((fields or {}).get("functionResponse"))
        response = as_object((answer or {}).get("response"))
        if fields is None or (answer is None and not _is_part(fields)):
            opened.texts += [] if item is None else [item if isinstance(item, str) else json_text(item)]
            return False
        if answer is None:
            self._add(fields, opened)
            return False
        for part in as_list(answer.get("parts")) or []:
            self._add(as_object(part) or {}, opened)
        if response is None:
            return False
        value = next((response[key] for key in ("output", "error") if key in response), response)
        opened.texts.append(value if isinstance(value, str) else json_text(value))
        return "error" in response and "output" not in response

    def _add(self, fields: JsonObject, opened: Opened) -> None:
        for part in self._part(fields):
            text = getattr(part, "text", None)
            if isinstance(text, str):
                opened.texts.append(text)
            else:
                opened.media.append(part)

    def _content(self, value: Any) -> list[Part]:
        """Return the parts of a message: a text, one part, or a list of either."""
        found: list[Part] = []
        for item in as_items(value):
            fields = as_object(item)
            if fields is not None:
                found += self._part(fields)
            elif item is not None:
                found += self._parts.text(item)
        return found

    def _part(self, fields: JsonObject) -> list[Part]:
        inline = as_object(fields.get("inlineData"))
        if inline is not None:
            return [self._parts.media.from_base64(inline.get("data"), inline.get("mimeType"))]
        file = as_object(fields.get("fileData"))
        if file is not None:
            return [self._parts.media.from_url(file.get("fileUri"))]
        if isinstance(fields.get("text"), str):
            read = self._parts.reasoning if fields.get("thought") is True else self._parts.text
            return read(fields["text"])
        for key in ("functionCall", "functionResponse"):
            if key in fields:
                # The record lists the call with its answer once more.
                self._parts.skipped[f"content/{key}"] += 1
                return []
        self._parts.defects["unknown:content/" + "+".join(kind_name(key) for key in list(fields)[:3])] += 1
        return []


def _is_part(fields: JsonObject) -> bool:
    return any(key in fields for key in ("text", "inlineData", "fileData", "functionCall", "functionResponse"))


def _agent(call: JsonObject) -> str | None:
    """Return the label that links an answer to the subagent that gave it."""
    agent = call.get("agentId")
    return f"agent:{agent}" if isinstance(agent, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", agent) else None
