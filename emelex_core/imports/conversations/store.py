"""Storing conversations: each branch of one becomes a Session, and grows by what the source holds beyond it.

The module owns these invariants:

- A message is stored once in its Session, by its id. Importing again claims nothing and writes nothing.
- A source that was changed changes nothing that is stored: what it says now branches off, and what it no longer says
  is counted.
- A Session and its first turns are one transaction; a parent stands before its branches.
- A storer that does not write (a dry run) counts the same things and touches nothing.
- A conversation whose main Session was removed here is not read, so that its media stay away too. A branch that was
  removed stays away with those that part from it and are not stored. Asked for again, all come back.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, cast

from emelex_core import identity, limits
from emelex_core.db.statements import load
from emelex_core.engine.cancel import CancelToken
from emelex_core.errors import SessionBusy
from emelex_core.events import EventKind, TextPart
from emelex_core.imports.conversations.branching import Branch, Branches
from emelex_core.imports.conversations.conversation import Conversation, Message, message_of
from emelex_core.imports.conversations.playing import Player
from emelex_core.imports.reading.reader import clean_title
from emelex_core.imports.records import Position, SessionHeader
from emelex_core.imports.storing.appender import Appender, Overtaken
from emelex_core.imports.storing.marks import Mark, get_mark
from emelex_core.imports.storing.writer import Stored
from emelex_core.sessions import append
from emelex_core.sessions.records import ImportSource, Session
from emelex_core.store import MemoryStore

SQL: Final = load("emelex_core", "imports")
_UNREAD: Final = Mark(read=Position(offset=0, sha256=hashlib.sha256().digest()), settled_offset=0, settled_sequence=0)
"""These files are read whole each time: their messages' ids say what is known."""
_BUSY_WAIT_SECONDS: Final = 30.0
_BUSY_LOOK_SECONDS: Final = 0.2
_BRANCH_TITLE: Final = "{} (branch)"


class ConversationStorer:
    """Stores the conversations of one file. `form` is the format's name, as the command line spells it."""

    def __init__(
        self,
        store: MemoryStore | None,
        *,
        form: str,
        workspace_for: Callable[[SessionHeader], str],
        writes: bool,
        distill: bool,
        again: bool,
        stop: CancelToken,
    ) -> None:
        self._store = store
        self._form = form
        self._workspace_for = workspace_for
        self._writes = writes and store is not None
        self._distill = distill
        self._again = again
        self._stop = stop

    def store(self, conversation: Conversation) -> list[Stored]:
        """Store what is new of a conversation; return its Sessions, the main one first; none for an empty one.

        Of those that were removed here and stay away, the result says only that. Another import of the same
        conversation is waited for.

        Raises: Invalid, SessionBusy, WorkspaceMismatch, Storage; Cancelled when asked to stop.
        """
        if self._is_away(conversation.source_id):
            title = conversation.title or clean_title(conversation.source_id) or self._form
            branch = Branch(conversation.source_id, None, [])
            return [Stored.away(self._header(conversation, branch, title))]
        paths = [list(path) for path in conversation.paths]
        patience = time.monotonic() + _BUSY_WAIT_SECONDS
        while True:
            # A second try plays the messages again: what was odd about that counts once.
            played: Counter[str] = Counter()
            try:
                stored = self._store_once(conversation, paths, played)
            except (SessionBusy, Overtaken) as error:
                if time.monotonic() > patience or self._stop.cancelled:
                    raise
                if isinstance(error, SessionBusy):
                    self._stop.wait(_BUSY_LOOK_SECONDS)
            else:
                conversation.defects.update(played)
                return stored

    def _store_once(
        self, conversation: Conversation, paths: Sequence[Sequence[Message]], played: Counter[str]
    ) -> list[Stored]:
        held: dict[str, set[str]] = {}

        def look(source_id: str) -> list[str]:
            records = self._records(source_id)
            held[source_id] = set(records)
            return list(dict.fromkeys(map(message_of, records)))

        branches = Branches(conversation.source_id, look)
        for path in paths:
            branches.follow(path)
        for name, number in (("no_longer_in_source", branches.vanished), ("duplicate_record", branches.repeated)):
            if number:
                played[name] += number
        title = conversation.title or _first_words(paths) or clean_title(conversation.source_id) or self._form
        stored: list[Stored] = []
        away: set[str | None] = set()
        for branch in branches:
            header = self._header(conversation, branch, title)
            if self._is_away(branch.source_id) or (branch.parent in away and not held[branch.source_id]):
                away.add(branch.source_id)
                stored.append(Stored.away(header))
            else:
                stored.append(self._store_branch(branch, header, held[branch.source_id], played))
        return stored

    def _header(self, conversation: Conversation, branch: Branch, title: str) -> SessionHeader:
        source = ImportSource(
            source=self._form,
            source_id=branch.source_id,
            cwd=conversation.cwd,
            parent_source_id=branch.parent or conversation.parent_source_id,
        )
        if branch.parent is not None:
            title = clean_title(_BRANCH_TITLE.format(title)) or title
        return SessionHeader(source=source, title=title)

    def _store_branch(self, branch: Branch, header: SessionHeader, held: set[str], played: Counter[str]) -> Stored:
        session = self._find(header.source.source_id)
        workspace = identity.inspect(self._workspace_for(header)).path if session is None else session.workspace_path
        appender, mark = self._appender(header, session, workspace)
        turns = events = assets = size = 0
        try:
            for said in Player(played).turns(branch.messages):
                new = [event for event in said if event.source_record not in held]
                if not new:
                    continue
                turn = append.prepare(new)
                turns, events = turns + 1, events + len(turn)
                assets += sum(len(item.media) for item in turn)
                if appender is not None and self._writes:
                    if appender.batch and size + append.size_of(turn) > limits.IMPORT_BATCH_BYTES_MAX:
                        appender.commit(mark)
                        size = 0
                    appender.batch.append(turn)
                    size += append.size_of(turn)
            job = None
            if appender is not None and self._writes:
                if appender.pending:
                    appender.commit(mark)
                appender.settle(header, mark)
                job = appender.let_go(distill=self._distill)
                session = appender.session
        finally:
            if appender is not None:
                appender.abandon()
        return Stored(
            session_id="" if session is None else session.id,
            header=header,
            workspace=workspace,
            parent_session_id=None if appender is None else appender.parent_id(),
            created=session is None if appender is None or not self._writes else appender.created,
            changed=events > 0,
            turns=turns,
            events=events,
            assets=assets,
            distillation=None if job is None else job.id,
        )

    def _appender(self, header: SessionHeader, session: Session | None, workspace: str) -> tuple[Appender | None, Mark]:
        if self._store is None:
            return None, _UNREAD
        mark = None
        if session is not None:
            with self._store.database.read() as transaction:
                mark = get_mark(transaction, session.id)
        return Appender(self._store, header, session, mark, workspace, again=self._again), mark or _UNREAD

    def _records(self, source_id: str) -> list[str]:
        """Return the names of the events that a Session holds, in order; none for one that does not exist."""
        session = self._find(source_id)
        if session is None or self._store is None:
            return []
        with self._store.database.read() as transaction:
            return [cast(str, row[0]) for row in transaction.all(SQL["records"], {"session_id": session.id})]

    def _is_away(self, source_id: str) -> bool:
        if self._store is None or self._again:
            return False
        return self._find(source_id) is None and self._store.find_removed(self._form, source_id) is not None

    def _find(self, source_id: str) -> Session | None:
        return None if self._store is None else self._store.find_imported(self._form, source_id)


def _first_words(paths: Sequence[Sequence[Message]]) -> str | None:
    """Return the first prompt of the main path as a title."""
    for said in (said for message in (paths[0] if paths else ()) for said in message.said):
        if said.kind is EventKind.USER:
            title = clean_title(next((part.text for part in said.parts if isinstance(part, TextPart)), None))
            if title is not None:
                return title
    return None
