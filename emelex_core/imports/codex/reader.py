"""Reader of Codex rollouts (JSON Lines, from the bare items of mid-2025 to the records of mid-2026).

The module owns these invariants:

- Response items are the authority. Event messages that repeat them are dropped; those that add something are kept.
- The first `session_meta` names the Session. A forked rollout begins with a copy of its parent: it counts as skipped.
- A compaction is what the model saw next, not new speech: an imported summary, never a Summary of ours.
- Items that follow an abort are kept in file order and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

from emelex_core.events import EventKind, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from emelex_core.imports.codex.echo import ASSISTANT, REASONING, USER, Echo, Echoes
from emelex_core.imports.codex.items import CALLS, HOSTED_CALLS, OUTPUTS, ItemReader
from emelex_core.imports.codex.kinds import (
    ECHO_ROLES,
    EVENT_ERRORS,
    EVENT_NOISE,
    ITEM_NOISE,
    RECORD_NOISE,
    ordered_instant,
    parent_thread,
    turn_instant,
    unwrap,
)
from emelex_core.imports.files.jsonl import Line, LineReader
from emelex_core.imports.files.lenient import JsonObject, as_items, as_list, as_object, as_word, bounded_id, fit_text
from emelex_core.imports.reading.reader import Reader, clean_title, instant, make_event, text_of
from emelex_core.imports.reading.speech import IMPORTED_SUMMARY, INTERRUPTED, split_words
from emelex_core.imports.reading.turns import RecordName, split_event
from emelex_core.imports.records import CODEX, MediaSink, Position, SessionHeader, TranscriptFile
from emelex_core.sessions.records import ImportSource

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class CodexReader(Reader):
    """Iterates the turns of one Codex rollout."""

    def __init__(self, file: TranscriptFile, media: MediaSink, *, start_offset: int = 0) -> None:
        super().__init__(file, media, start_offset=start_offset)
        self._items = ItemReader(self._media, self.skipped, self.defects)
        self._echoes = Echoes()
        self._turns = self._assembler(None)
        self._meta: JsonObject | None = None
        self._stem = file.path.name.partition(".jsonl")[0]
        self._title: str | None = None
        self._words: str | None = None
        self._is_subagent = False
        self._fork_ms: int | None = None
        self._unsure: Position | None = None
        self._aborted = False

    @property
    def header(self) -> SessionHeader:
        """The Session of the file. A thread's own name wins over the first words."""
        meta = self._meta or {}
        found = _UUID.search(self._stem)
        source_id = bounded_id(meta.get("id")) or (found.group() if found else self._stem)
        source = ImportSource(
            source=CODEX,
            source_id=source_id,
            cwd=text_of(meta.get("cwd")),
            parent_source_id=parent_thread(meta) or self._file.parent_source_id,
        )
        return SessionHeader(source=source, title=self._title or self._words or clean_title(self._stem) or CODEX)

    @property
    def child_headers(self) -> dict[str, SessionHeader]:
        """Codex writes each subagent to a rollout of its own."""
        return {}

    def _read(self, line: Line) -> None:
        kind, payload = unwrap(line.value)
        self._learn(kind, payload)
        if self._fork_ms is not None:
            self.skipped["forked_history"] += 1
            return
        match kind:
            case "response_item":
                self._read_item(payload, line)
            case "event_msg":
                self._read_event(payload, line)
            case "compacted":
                self._read_compaction(payload, line)
            case "session_meta":
                self.skipped["session_meta"] += 1
            case str() if kind in RECORD_NOISE:
                self._turns.end_answer()
                self.skipped[kind] += 1
            case _:
                self._count_unknown(kind)

    def _held(self) -> Position | None:
        return self._unsure or self._echoes.start

    def _end(self) -> None:
        for echo in self._echoes.release(USER, ASSISTANT, REASONING):
            self._speak(echo)

    def _learn(self, kind: Any, payload: JsonObject) -> None:
        """Take up the Session's meta record and name, and notice where a fork's own turns begin."""
        if kind == "session_meta" and self._meta is None:
            self._meta = payload
            self._is_subagent = "subagent" in (as_object(payload.get("source")) or {})
            if payload.get("forked_from_id") is not None:
                self._fork_ms = self._fork_instant(payload)
        elif kind == "event_msg" and payload.get("type") == "thread_name_updated":
            self._title = clean_title(text_of(payload.get("thread_name"))) or self._title
        if self._fork_ms is not None:
            began = turn_instant(kind, payload)
            if began is not None and began >= self._fork_ms:
                self._fork_ms = None

    def _fork_instant(self, meta: JsonObject) -> int | None:
        """Return when the fork was made; None when the file has nothing to tell its own turns from copied ones."""
        made = ordered_instant(meta.get("id"))
        made = instant(meta.get("timestamp")) if made is None else made
        if made is not None:
            for line in LineReader(self._file.path, defects=Counter()):
                if turn_instant(*unwrap(line.value)) is not None:
                    return made
        # A record that says where the own turns begin may still be written: until then nothing is settled.
        self._unsure = self._lines.before()
        self.defects["fork_without_turn_ids"] += 1
        return None

    def _read_item(self, item: JsonObject, line: Line) -> None:
        kind = as_word(item.get("type"))
        if kind == "message":
            self._read_message(item, line)
        elif kind == "reasoning":
            self._read_reasoning(item, line)
        elif kind in CALLS:
            self._read_call(item, line)
        elif kind in OUTPUTS:
            self._read_output(item, line)
        elif kind == "image_generation_call":
            self._read_generated_image(item, line)
        elif kind == "agent_message":
            name = self._name(item.get("id"), item, line)
            if name is not None:
                self._put(EventKind.CONTEXT, "\n".join(self._message_texts(item)), "agent_message", line, name)
        elif kind in ITEM_NOISE:
            self.skipped[f"response_item/{kind}"] += 1
        else:
            self._count_unknown("response_item", kind)

    def _read_message(self, item: JsonObject, line: Line) -> None:
        name = self._name(item.get("id"), item, line)
        if name is None:
            return
        role = item.get("role")
        parts = self._items.content(item.get("content"))
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        if not parts:
            self.skipped["empty_message"] += 1
        elif role == "assistant":
            self._hear(ASSISTANT, "\n".join(texts))
            self._answer(parts, line, name)
        elif role == "user":
            self._read_user(parts, texts, line, name)
        else:
            self._put(EventKind.CONTEXT, "\n".join(texts), "instructions", line, name)

    def _read_user(self, parts: list[Part], texts: list[str], line: Line, name: RecordName) -> None:
        """Split a user message into what was injected and a person's own words."""
        own: list[Part] = []
        for part in parts:
            if not isinstance(part, TextPart):
                own.append(part)
                continue
            for words in split_words(part.text):
                if words.label is None:
                    own.append(TextPart(text=words.text))
                else:
                    kind = EventKind.AUDIT if words.label == INTERRUPTED else EventKind.CONTEXT
                    self._put(kind, words.text, words.label, line, name)
        if own:
            said = "\n".join(part.text for part in own if isinstance(part, TextPart))
            self._hear(USER, said, "\n".join(texts))
            self._prompt(own, name, instant(line.value.get("timestamp")))

    def _read_reasoning(self, item: JsonObject, line: Line) -> None:
        if item.get("encrypted_content"):
            self.skipped["encrypted_content"] += 1
        texts: list[str] = []
        for key in ("summary", "content"):
            found = (self._items.text(part) for part in as_items(item.get(key)))
            texts += [text for text in found if text]
        if not texts:
            self.skipped["empty_reasoning"] += 1
            return
        name = self._name(item.get("id"), item, line)
        if name is not None:
            text = "\n\n".join(texts)
            self._hear(REASONING, text)
            self._answer([ReasoningPart(text=fit_text(text, self.defects))], line, name)

    def _read_call(self, item: JsonObject, line: Line) -> None:
        call_id = bounded_id(item.get("call_id"))
        name = self._name(item.get("id") or (call_id and f"{call_id}=call"), item, line)
        if name is None:
            return
        part = self._items.call(item, line.offset)
        self._answer([part], line, name)
        if as_word(item.get("type")) in HOSTED_CALLS:
            self.skipped["hosted_call_result"] += 1
            self._turns.expect_no_result(part.call_id)

    def _read_output(self, item: JsonObject, line: Line) -> None:
        call_id = bounded_id(item.get("call_id"))
        name = self._name(item.get("id") or (call_id and f"{call_id}=output"), item, line)
        if name is None:
            return
        self._result(self._items.output(item, line.offset), line, name)

    def _read_generated_image(self, item: JsonObject, line: Line) -> None:
        name = self._name(item.get("id"), item, line)
        if name is None:
            return
        call_id = bounded_id(item.get("id")) or f"call@{line.offset}"
        prompt = text_of(item.get("revised_prompt"))
        arguments = {"prompt": fit_text(prompt, self.defects)} if prompt else {}
        self._answer([ToolCallPart(call_id=call_id, name="image_generation", arguments=arguments)], line, name)
        self._result(self._items.generated_image(item, call_id), line, name)

    def _read_event(self, payload: JsonObject, line: Line) -> None:
        kind = as_word(payload.get("type"))
        said = (as_object(payload.get("item")) if kind == "item_completed" else None) or payload
        role = ECHO_ROLES.get(as_word(said.get("type")))
        if role is not None:
            self._read_echo(role, said, line)
        elif kind == "turn_aborted":
            reason = text_of(payload.get("reason")) or "unknown"
            self._put(EventKind.AUDIT, f"The turn was aborted: {reason}", "turn_aborted", line, self._named(line))
            self._aborted = True
        elif kind in EVENT_ERRORS:
            text = text_of(payload.get("message")) or str(kind)
            self._put(EventKind.ERROR, text, "api_error", line, self._named(line))
        elif kind in EVENT_NOISE:
            self.skipped[f"event_msg/{kind}"] += 1
        else:
            self._count_unknown("event_msg", kind)

    def _read_echo(self, role: str, payload: JsonObject, line: Line) -> None:
        values = (payload.get("message"), payload.get("text"), payload.get("content"), payload.get("summary_text"))
        value = next((value for value in values if value), None)
        found = (self._items.text(item) for item in as_items(value))
        text = "\n".join(text for text in found if text)
        if not text.strip():
            self.skipped["event_msg/empty"] += 1
            return
        if role == USER:
            self._aborted = False
        echo = Echo(role, text, payload, self._lines.before(), instant(line.value.get("timestamp")))
        if self._echoes.repeats(echo):
            self.skipped[f"event_msg/{role}_repeated"] += 1
            return
        if role == USER:
            self._release(USER, ASSISTANT, REASONING)
            self._echoes.forget()
        # An event never spans the place of a waiting echo: the safe offset may lie there.
        self._turns.end_answer()
        self._echoes.add(echo)
        for late in self._echoes.overdue():
            self._speak(late)

    def _read_compaction(self, payload: JsonObject, line: Line) -> None:
        history = as_list(payload.get("replacement_history"))
        if history:
            self.skipped["replacement_history"] += len(history)
        text = text_of(payload.get("message"))
        if text is None:
            self._put(EventKind.AUDIT, "The agent compacted it.", "compact_boundary", line, self._named(line))
        else:
            self._put(EventKind.CONTEXT, text, IMPORTED_SUMMARY, line, self._named(line))

    def _hear(self, role: str, *texts: str) -> None:
        """A response item said this. Its echoes go; a person's words that only an echo holds come before an answer."""
        dropped = sum(self._echoes.heard(role, text) for text in texts)
        if dropped:
            self.skipped[f"event_msg/{role}_repeated"] += dropped

    def _prompt(self, parts: list[Part], name: RecordName, occurred_at: int | None) -> None:
        self._release(USER, ASSISTANT, REASONING)
        self._echoes.forget()
        for part in parts:
            if isinstance(part, TextPart):
                self._echoes.heard(USER, part.text)
                self._offer_title(part.text)
        self._aborted = False
        kind, label = (EventKind.CONTEXT, "agent_prompt") if self._is_subagent else (EventKind.USER, None)
        event = make_event(kind, parts, name, label=label, occurred_at=occurred_at)
        for piece in split_event(event, name):
            if self._is_subagent:
                self._turns.context(piece)
            else:
                self._turns.prompt(piece)

    def _answer(self, parts: list[Part], line: Line, name: RecordName) -> None:
        self._release(USER)
        self._count_after_abort()
        for part in parts:
            self._turns.answer(part, key=None, name=name, occurred_at=instant(line.value.get("timestamp")))

    def _result(self, parts: list[Part], line: Line, name: RecordName) -> None:
        self._release(USER)
        self._count_after_abort()
        event = make_event(EventKind.TOOL, parts, name, occurred_at=instant(line.value.get("timestamp")))
        first, *rest = split_event(event, name)
        head = parts[0]
        self._turns.result(first, head.call_id if isinstance(head, ToolResultPart) else "unknown")
        for piece in rest:
            self._turns.note(piece)

    def _count_after_abort(self) -> None:
        if self._aborted:
            self.defects["after_abort"] += 1

    def _release(self, *roles: str) -> None:
        for echo in self._echoes.release(*roles):
            self._speak(echo)

    def _speak(self, echo: Echo) -> None:
        """Make an event of an echo whose response item never came."""
        self.defects["echo_without_item"] += 1
        self._say_echo(echo)
        self._turns.begin_at(echo.start)

    def _say_echo(self, echo: Echo) -> None:
        name = RecordName(f"@{echo.start.offset}")
        text = fit_text(echo.text, self.defects)
        if echo.role != USER:
            part: Part = TextPart(text=text) if echo.role == ASSISTANT else ReasoningPart(text=text)
            self._turns.answer(part, key=None, name=name, occurred_at=echo.occurred_at)
            return
        own: list[Part] = [TextPart(text=words.text) for words in split_words(text) if words.label is None]
        own += [self._media.from_url(url) for url in as_list(echo.payload.get("images")) or []]
        if own:
            self._prompt(own, name, echo.occurred_at)

    def _put(self, kind: EventKind, text: str, label: str, line: Line, name: RecordName) -> None:
        """Add a text event that is neither a person's nor a model's."""
        if not text.strip():
            self.skipped[f"empty_{label}"] += 1
            return
        parts: list[Part] = [TextPart(text=fit_text(text, self.defects))]
        event = make_event(kind, parts, name, label=label, occurred_at=instant(line.value.get("timestamp")))
        if kind is EventKind.CONTEXT:
            self._turns.context(event)
        else:
            self._turns.note(event)

    def _named(self, line: Line) -> RecordName:
        return RecordName(f"@{line.offset}")

    def _message_texts(self, item: JsonObject) -> list[str]:
        found = (self._items.text(part) for part in as_items(item.get("content")))
        return [text for text in found if text]

    def _offer_title(self, text: str) -> None:
        if self._words is None:
            self._words = clean_title(next((words.text for words in split_words(text) if not words.label), None))
