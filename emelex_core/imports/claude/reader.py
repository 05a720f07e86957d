"""Reader of Claude Code transcripts (JSON Lines, versions 1.x to 2.1).

The module owns these invariants:

- File order stands; the graph of parents is used only to tell inline sidechains apart.
- The Session's id is the file's name where that is a session id, since resumed files quote older ids in their rows.
  A file of another name may hold several Sessions, put together by somebody: each becomes a Session of its own.
- Words that another agent gave to a subagent are `context`, never `user`: no person said them.
- A compaction inside the transcript becomes a note and an imported summary; it is never a Summary of ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from emelex_core.events import Event, EventKind, Part, TextPart
from emelex_core.imports.claude import rows
from emelex_core.imports.claude.blocks import CALL_TYPES, BlockReader, agent_label, holds_float
from emelex_core.imports.claude.rows import Silent
from emelex_core.imports.claude.titles import Titles
from emelex_core.imports.files.jsonl import Line
from emelex_core.imports.files.lenient import JsonObject, as_items, as_object, as_word, bounded_id, fit_text, load_exact
from emelex_core.imports.reading.reader import Reader, clean_title, instant, make_event, text_of
from emelex_core.imports.reading.recent import Recent
from emelex_core.imports.reading.speech import IMPORTED_SUMMARY, INTERRUPTED, split_words
from emelex_core.imports.reading.turns import RecordName, TurnAssembler, split_event
from emelex_core.imports.records import CLAUDE_CODE, MediaSink, SessionHeader, TranscriptFile
from emelex_core.sessions.records import ImportSource

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_AGENT_FILE: Final = re.compile(r"agent-[A-Za-z0-9_-]+")
_MACHINES: Final = frozenset(
    {"agent", "channel", "coordinator", "hook", "peer", "system", "task-notification", "teammate"}
)
"""Origins of a user-role row that are no person."""


@dataclass(slots=True)
class _Branch:
    """A Session beside the file's first one: a sidechain of `parent`, or another Session of the file."""

    parent: str | None
    cwd: str | None
    title: str | None = None


class ClaudeCodeReader(Reader):
    """Iterates the turns of one Claude Code transcript."""

    def __init__(self, file: TranscriptFile, media: MediaSink, *, start_offset: int = 0) -> None:
        super().__init__(file, media, start_offset=start_offset)
        self._blocks = BlockReader(self._media, self.skipped, self.defects)
        stem = file.path.name.partition(".jsonl")[0]
        self._stem = stem
        self._is_agent = file.parent_source_id is not None or _AGENT_FILE.fullmatch(stem) is not None
        self._session_id: str | None = None
        self._cwd: str | None = None
        self._titles = Titles(lambda record: self._records.get(record) is not None)
        self._branch_of: Recent[str] = Recent()
        self._branches: dict[str, _Branch] = {}
        self._may_hold_several = not self._is_agent and _UUID.fullmatch(stem) is None
        self._last_branch: str | None = None

    @property
    def header(self) -> SessionHeader:
        """The Session of the file. A title set in the transcript wins over the first words."""
        parent = (self._file.parent_source_id or self._session_id) if self._is_agent else None
        title = self._titles.best or clean_title(self._stem) or CLAUDE_CODE
        source = ImportSource(source=CLAUDE_CODE, source_id=self._source_id, cwd=self._cwd, parent_source_id=parent)
        return SessionHeader(source=source, title=title)

    @property
    def child_headers(self) -> dict[str, SessionHeader]:
        """The inline sidechains and the further Sessions met so far."""
        return {
            name: SessionHeader(
                source=ImportSource(
                    source=CLAUDE_CODE, source_id=name, cwd=branch.cwd or self._cwd, parent_source_id=branch.parent
                ),
                title=branch.title or (CLAUDE_CODE if branch.parent is None else "Sidechain"),
            )
            for name, branch in self._branches.items()
        }

    @property
    def _source_id(self) -> str:
        if self._is_agent:
            parent = self._file.parent_source_id or self._session_id
            return f"{parent}/{self._stem}" if parent else self._stem
        if _UUID.fullmatch(self._stem):
            return self._stem
        return self._session_id or self._stem

    def _recall(self, line: Line) -> None:
        """Take up header, branches and record names: all that later rows refer to, at several times the speed."""
        row = line.value
        self._learn(row)
        branch = self._branch(row)
        message, attachment = as_object(row.get("message")), as_object(row.get("attachment"))
        kind = row.get("type")
        if kind in ("user", "assistant") and message is not None:
            self._name(row.get("uuid"), message.get("content"), line)
            if kind == "user" and not row.get("isMeta"):
                self._offer_title(message.get("content"), branch)
        elif kind == "attachment" and attachment and not isinstance(rows.attachment_row(attachment), Silent):
            self._name(row.get("uuid"), attachment, line)
        elif kind == "system" and not isinstance(rows.system_row(row), Silent):
            self._name(row.get("uuid"), row.get("content"), line)

    def _read(self, line: Line) -> None:
        row = line.value
        self._learn(row)
        branch = self._branch(row)
        match row.get("type"):
            case "user":
                self._read_user(row, line, branch)
            case "assistant":
                self._read_assistant(row, line, branch)
            case "system":
                self._read_system(row, line, branch)
            case "attachment":
                self._read_attachment(row, line, branch)
            case str() as kind if kind in rows.NOISE:
                self.skipped[kind] += 1
            case kind:
                self._count_unknown(kind)

    def _end(self) -> None:
        if self._titles.of_others:
            self.skipped["summary_of_other_session"] += self._titles.of_others

    def _learn(self, row: JsonObject) -> None:
        """Take up the Session's id, directory and titles, whatever row they stand in."""
        if self._session_id is None and isinstance(row.get("uuid"), str):
            self._session_id = bounded_id(row.get("sessionId"))
        if self._cwd is None:
            self._cwd = text_of(row.get("cwd"))
        if self._may_hold_several and self._other_session(row) is not None:
            return
        self._titles.learn(row)

    def _branch(self, row: JsonObject) -> str | None:
        """Return the branch of a row: None for the first Session, else the id of a sidechain or a further Session."""
        other = self._other_session(row) if self._may_hold_several else None
        if self._is_agent or row.get("isSidechain") is not True:
            return None if other is None else self._know(other, row, parent=None)
        whole = other or self._source_id
        uuid, parent, agent = row.get("uuid"), row.get("parentUuid"), bounded_id(row.get("agentId"))
        branch = self._branch_of.get(parent) if isinstance(parent, str) else None
        if agent is not None:
            branch = f"{whole}/agent-{agent}"
        if branch is None:
            branch = f"{whole}/sidechain-{bounded_id(uuid) or 'unnamed'}"
        if isinstance(uuid, str):
            self._branch_of.put(uuid, branch)
        return self._know(branch, row, parent=whole)

    def _other_session(self, row: JsonObject) -> str | None:
        """Return the Session that a row names, where that is not the file's first one."""
        named = bounded_id(row.get("sessionId"))
        return None if named == self._session_id or self._session_id is None else named

    def _know(self, branch: str, row: JsonObject, *, parent: str | None) -> str:
        if branch not in self._branches:
            self._branches[branch] = _Branch(parent, text_of(row.get("cwd")))
        return branch

    def _at(self, branch: str | None) -> TurnAssembler:
        """Return a branch's assembler. An event never spans rows of another branch: a safe offset may lie there."""
        if branch != self._last_branch:
            self._assembler(self._last_branch).end_answer()
            self._last_branch = branch
        return self._assembler(branch)

    def _read_user(self, row: JsonObject, line: Line, branch: str | None) -> None:
        message = as_object(row.get("message"))
        if message is None:
            self.defects["malformed:user"] += 1
            return
        content = message.get("content")
        name = self._name(row.get("uuid"), content, line)
        if name is None:
            return
        if not row.get("isMeta"):
            self._offer_title(content, branch)
        own: list[Part] = []
        for item in as_items(content):
            block = as_object(item) or {}
            if block.get("type") == "tool_result":
                self._say(own, row, branch, name)
                own = []
                self._result(block, row, branch, name)
            else:
                own += self._user_parts(item, row, branch, name)
        self._say(own, row, branch, name)

    def _user_parts(self, item: Any, row: JsonObject, branch: str | None, name: RecordName) -> list[Part]:
        """Return a block's own words or media; what was injected becomes an event at once."""
        block = as_object(item) or {}
        if block.get("type") in ("image", "document"):
            return [self._blocks.media_part(block)]
        text = block.get("text") if block.get("type") == "text" else item
        if not isinstance(text, str):
            self._count_unknown("block", block.get("type"))
            return []
        if row.get("isCompactSummary") is True:
            self._put(EventKind.CONTEXT, text, IMPORTED_SUMMARY, row, branch, name)
            return []
        own: list[Part] = []
        for words in split_words(text):
            if words.label is None:
                own.append(TextPart(text=fit_text(words.text, self.defects)))
            else:
                kind = EventKind.AUDIT if words.label == INTERRUPTED else EventKind.CONTEXT
                self._put(kind, words.text, words.label, row, branch, name)
        if not text.strip():
            self.skipped["empty_text"] += 1
        return own

    def _say(self, parts: list[Part], row: JsonObject, branch: str | None, name: RecordName) -> None:
        """Add the parts that no injection explains: a person's words, unless the row says that no person spoke."""
        if not parts:
            return
        label = self._machine(row)
        kind = EventKind.USER if label is None else EventKind.CONTEXT
        event = make_event(kind, parts, name, label=label, occurred_at=instant(row.get("timestamp")))
        assembler = self._at(branch)
        for piece in split_event(event, name):
            if label is None:
                assembler.prompt(piece)
            else:
                assembler.context(piece)

    def _machine(self, row: JsonObject) -> str | None:
        """Return what spoke in a user-role row, when it was no person."""
        origin = as_object(row.get("origin")) or {}
        if row.get("isMeta") is True:
            return "meta"
        if row.get("isVisibleInTranscriptOnly") is True:
            return "transcript_only"
        if as_word(origin.get("kind")) in _MACHINES:
            return "notification"
        return "agent_prompt" if row.get("isSidechain") is True or self._is_agent else None

    def _result(self, block: JsonObject, row: JsonObject, branch: str | None, name: RecordName) -> None:
        assembler = self._at(branch)
        call_id = bounded_id(block.get("tool_use_id"))
        if call_id is None:
            self.defects["missing_call_id"] += 1
            call_id = assembler.first_open() or bounded_id(row.get("sourceToolUseID")) or "unknown"
        structured = row.get("toolUseResult")
        if structured is not None:
            self.skipped["toolUseResult"] += 1
        rejected = row.get("toolDenialKind") is not None
        parts = self._blocks.result_parts(block, call_id, rejected=rejected)
        label, occurred_at = agent_label(structured), instant(row.get("timestamp"))
        event = make_event(EventKind.TOOL, parts, name, label=label, occurred_at=occurred_at)
        first, *rest = split_event(event, name)
        if branch is None:
            self._end_idle_branches()
        assembler.result(first, call_id)
        for piece in rest:
            assembler.note(piece)

    def _read_assistant(self, row: JsonObject, line: Line, branch: str | None) -> None:
        message = as_object(row.get("message"))
        if message is None:
            self.defects["malformed:assistant"] += 1
            return
        content = message.get("content")
        name = self._name(row.get("uuid"), content, line)
        if name is None:
            return
        blocks = _blocks(content)
        if row.get("isApiErrorMessage") is True or message.get("model") == "<synthetic>":
            self._synthetic(blocks, row, branch, name)
            return
        if any(as_word(block.get("type")) in CALL_TYPES and holds_float(block.get("input")) for block in blocks):
            blocks = _blocks(load_exact(line.data, row, self.defects)["message"]["content"])
        assembler = self._at(branch)
        key = text_of(message.get("id")) or f"@{line.offset}"
        occurred_at = instant(row.get("timestamp"))
        for place, block in enumerate(blocks):
            if isinstance(block.get("tool_use_id"), str):
                self._result(block, row, branch, name)
                continue
            part = self._blocks.answer_part(block, unnamed=f"call@{line.offset}.{place}")
            if part is not None:
                assembler.answer(part, key=key, name=name, occurred_at=occurred_at)

    def _synthetic(self, blocks: list[JsonObject], row: JsonObject, branch: str | None, name: RecordName) -> None:
        """What the program wrote in the assistant's place: an error of the server, or a note."""
        texts = [block["text"] for block in blocks if text_of(block.get("text"))]
        is_error = row.get("isApiErrorMessage") is True or row.get("error") is not None
        kind, label = (EventKind.ERROR, "api_error") if is_error else (EventKind.AUDIT, "synthetic")
        self._put(kind, "\n".join(texts), label, row, branch, name)

    def _read_system(self, row: JsonObject, line: Line, branch: str | None) -> None:
        said = rows.system_row(row)
        if said is Silent.NOISE:
            self.skipped[f"system/{as_word(row.get('subtype'))}"] += 1
        elif said is Silent.UNKNOWN:
            self._count_unknown("system", row.get("subtype"))
        else:
            name = self._name(row.get("uuid"), row.get("content"), line)
            if name is not None:
                kind, label, text = said
                self._put(kind, text, label, row, branch, name)

    def _read_attachment(self, row: JsonObject, line: Line, branch: str | None) -> None:
        attachment = as_object(row.get("attachment"))
        if attachment is None:
            self.defects["malformed:attachment"] += 1
            return
        said = rows.attachment_row(attachment)
        if said is Silent.NOISE:
            self.skipped[f"attachment/{as_word(attachment.get('type'))}"] += 1
        elif said is Silent.UNKNOWN:
            self._count_unknown("attachment", attachment.get("type"))
        else:
            name = self._name(row.get("uuid"), attachment, line)
            if name is not None and attachment.get("type") == "queued_command":
                self._queued(attachment, row, branch, name)
            elif name is not None:
                self._put(EventKind.CONTEXT, said[1], said[0], row, branch, name)

    def _queued(self, attachment: JsonObject, row: JsonObject, branch: str | None, name: RecordName) -> None:
        """Words typed while the agent worked reach the model as an attachment; they are the person's all the same."""
        origin = as_object(attachment.get("origin")) or {}
        machine = origin.get("kind") not in ("human", "cli", None)
        own: list[Part] = []
        for item in as_items(attachment.get("prompt")):
            own += self._user_parts(item, row, branch, name)
        if not own:
            return
        human = attachment.get("commandMode", "prompt") == "prompt" and not machine and self._machine(row) is None
        kind, label = (EventKind.USER, None) if human else (EventKind.CONTEXT, "queued_command")
        event = make_event(kind, own, name, label=label, occurred_at=instant(row.get("timestamp")))
        assembler = self._at(branch)
        for piece in split_event(event, name):
            if human:
                assembler.prompt(piece, joins=True)
            else:
                assembler.context(piece)

    def _put(
        self, kind: EventKind, text: str, label: str, row: JsonObject, branch: str | None, name: RecordName
    ) -> None:
        """Add a text event that is neither a person's nor a model's."""
        if not text.strip():
            self.skipped[f"empty_{label}"] += 1
            return
        parts: list[Part] = [TextPart(text=fit_text(text, self.defects))]
        event: Event = make_event(kind, parts, name, label=label, occurred_at=instant(row.get("timestamp")))
        if kind is EventKind.CONTEXT:
            self._at(branch).context(event)
        else:
            self._at(branch).note(event)

    def _offer_title(self, content: Any, branch: str | None) -> None:
        """Take the first own words of a branch as its title."""
        if not self._titles.lacks_words if branch is None else self._branches[branch].title:
            return
        texts = ((as_object(item) or {"text": item}).get("text") for item in as_items(content))
        own = (words.text for text in texts if isinstance(text, str) for words in split_words(text) if not words.label)
        title = clean_title(next(own, None))
        if title and branch is None:
            self._titles.offer_words(title)
        elif title and branch is not None:
            self._branches[branch].title = title


def _blocks(content: Any) -> list[JsonObject]:
    """Return a message's content as blocks; plain text is one text block."""
    return [as_object(item) or {"type": "text", "text": item} for item in as_items(content)]
