"""Reader of the session store of the OpenAI Agents SDK (SQLite).

The module owns these invariants:

- Tables are known by their columns: their names can be configured.
- A row's id is its message's; rows that were popped leave gaps and are not missed, but a Session that held them keeps
  them, and what was said instead becomes a branch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from emelex_core.imports.conversations.conversation import Conversation, ConversationReader, Message, content_digest
from emelex_core.imports.files.foreign_store import CELL_BYTES_MAX, ForeignStore, load_foreign, opened
from emelex_core.imports.files.lenient import as_object, bounded_id, load_record
from emelex_core.imports.openai.items import ItemReader
from emelex_core.imports.reading.media import MediaReader
from emelex_core.imports.reading.parts import PartReader
from emelex_core.imports.reading.reader import instant

SQL: Final = load_foreign("openai_agents")
_MESSAGES: Final = "agent_messages"
_SESSIONS: Final = "agent_sessions"
_MESSAGE_COLUMNS: Final = frozenset({"id", "session_id", "message_data", "created_at"})
_SESSION_COLUMNS: Final = frozenset({"session_id", "created_at", "updated_at"})


class OpenAIAgentsReader(ConversationReader):
    """Iterates the sessions of one store, those of every pair of tables in it."""

    def __iter__(self) -> Iterator[Conversation]:
        with opened(self._path) as store:
            tables = store.tables()
            named = message_tables(tables)
            for table in named:
                for session_id, _ in store.rows(_over(SQL["sessions"], table)):
                    yield self._conversation(store, table, session_id, several=len(named) > 1)
            self._count_empty(store, tables)
        self.done_bytes = self._path.stat().st_size

    def _conversation(self, store: ForeignStore, table: str, session_id: Any, *, several: bool) -> Conversation:
        skipped: Counter[str] = Counter()
        defects: Counter[str] = Counter()
        parts = PartReader(MediaReader(self._media, defects), skipped, defects)

        def paths() -> Iterator[Sequence[Message]]:
            yield list(self._messages(store, table, session_id, parts))

        own = bounded_id(session_id) or content_digest(str(session_id))
        return Conversation(
            source_id=f"{table}/{own}" if several else own, paths=paths(), skipped=skipped, defects=defects
        )

    def _messages(self, store: ForeignStore, table: str, session_id: Any, parts: PartReader) -> Iterator[Message]:
        items = ItemReader(parts)
        parameters = {"session_id": session_id, "bytes_max": CELL_BYTES_MAX}
        for place, (row_id, data, created_at) in enumerate(store.rows(_over(SQL["messages"], table), parameters)):
            self.pulse()
            if not isinstance(data, bytes):
                parts.defects["oversized_record"] += 1
                continue
            item = as_object(load_record(data, parts.defects))
            if item is not None:
                message = items.message(item, place=place, native=str(row_id), occurred_at=_instant(created_at))
                if message is not None:
                    yield message

    def _count_empty(self, store: ForeignStore, tables: dict[str, frozenset[str]]) -> None:
        """Count sessions in which nobody says anything, where the tables are those of the SDK's own names."""
        if tables.get(_SESSIONS, frozenset()) >= _SESSION_COLUMNS and _MESSAGES in message_tables(tables):
            ((empty,),) = store.rows(SQL["count_sessions"])
            if empty:
                self.skipped["empty_conversation"] += empty


def message_tables(tables: dict[str, frozenset[str]]) -> list[str]:
    """Return the tables that hold messages, told by their columns."""
    return [name for name, columns in tables.items() if columns >= _MESSAGE_COLUMNS]


def _over(statement: str, table: str) -> str:
    """Return a statement over another table: SQLite binds values, and no names."""
    return statement.replace(_MESSAGES, '"' + table.replace('"', '""') + '"')


def _instant(value: Any) -> int | None:
    """SQLite's CURRENT_TIMESTAMP is UTC, in whole seconds, and says neither."""
    text = value if isinstance(value, str) else ""
    return instant(text) if "+" in text or text.endswith("Z") else instant(f"{text}+00:00")
