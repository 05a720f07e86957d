"""Which format a file of conversations has: a database, a ZIP, or JSON that is told by its first objects.

The module owns one invariant: nothing is written beside a file that is only looked at, and no more of it is read than
one document may have.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from emelex_core import limits
from emelex_core.errors import Invalid
from emelex_core.imports.chatgpt import files as chatgpt_files
from emelex_core.imports.files import foreign_store
from emelex_core.imports.files.json_array import elements
from emelex_core.imports.files.jsonl import open_unpacked
from emelex_core.imports.files.lenient import JsonObject, as_object, load_record
from emelex_core.imports.gemini import reader as gemini
from emelex_core.imports.langgraph import reader as langgraph
from emelex_core.imports.openai import agents as openai_agents
from emelex_core.imports.openai import chat as openai_chat
from emelex_core.imports.records import CHATGPT, GEMINI, LANGGRAPH, OPENAI_AGENTS, OPENAI_CHAT

_ELEMENTS_MAX: Final = 8
_WHITE: Final = b" \t\r\n\xef\xbb\xbf"


def container_format(path: Path) -> str | None:
    """Return the format of a database or ZIP; None for another file, or for one that holds no conversations.

    Raises: NotFound, Invalid for a damaged one, Storage.
    """
    if foreign_store.is_database(path):
        tables = foreign_store.tables_of(path)
        if tables.get(langgraph.TABLE, frozenset()) >= langgraph.COLUMNS:
            return LANGGRAPH
        return OPENAI_AGENTS if openai_agents.message_tables(tables) else None
    if chatgpt_files.is_zip(path):
        export = chatgpt_files.ZipExport(path)
        export.close()
        return CHATGPT if export.conversations else None
    return None


def document_format(value: JsonObject) -> str | None:
    """Return the format that a JSON object belongs to, or None when it could be anybody's."""
    if as_object(value.get("mapping")) is not None:
        return CHATGPT
    if gemini.session_shape(value):
        return GEMINI
    return OPENAI_CHAT if openai_chat.conversation_shape(value) else None


def json_format(path: Path) -> str | None:
    """Return the format of a file that is one JSON document, or lines of lists; None where no object tells it.

    Raises: NotFound, Invalid on opening, and for JSON that does not end.
    """
    with open_unpacked(path) as stream:
        if stream.read(limits.KIB).strip(_WHITE)[:1] not in (b"{", b"["):
            return None
    with open_unpacked(path) as stream:
        for _, data in islice(elements(_Head(stream), Counter(), what=str(path)), _ELEMENTS_MAX):
            value = load_record(data, Counter())
            found = None if value is None else document_format(value)
            if found is not None:
                return found
    return None


def why_unknown(path: Path) -> str | None:
    """Say why a file that looks like JSON has no format, where it is for its JSON. Raises: NotFound, Invalid."""
    try:
        json_format(path)
    except Invalid as error:
        return error.message.removeprefix(f"{path}: ")
    return None


class _Head:
    """As much of a stream as one document may have."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left = limits.IMPORT_LINE_BYTES_MAX + limits.KIB

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        return data
