"""Which Session `emelex resume` goes on with: a chat belongs to the directory that it was begun in."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from emelex_cli.call import Call
from emelex_cli.output import path_text
from emelex_core.errors import NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from emelex_core.sessions.records import Session
    from emelex_core.store import MemoryStore

OWN_SOURCE: Final = "emelex"
NEWEST: Final = ""
"""What `--resume` without a Session asks for."""


def chosen(call: Call, store: MemoryStore, wanted: str) -> Session:
    """The Session to go on with. Raises: NotFound, WorkspaceMismatch, before any model is looked at."""
    if wanted != NEWEST:
        session = call.session(store, wanted, everywhere=False)
    else:
        found = _newest(store, call.directory)
        if found is None:
            raise _none_here(store, call.directory)
        session = found
    store.validate_workspace(session, call.directory)
    return session


def _newest(store: MemoryStore, directory: Path) -> Session | None:
    """The newest chat that was begun in a directory."""
    return next((session for session in store.list_sessions(directory) if session.source == OWN_SOURCE), None)


def _none_here(store: MemoryStore, directory: Path) -> NotFound:
    """Say the rule, and the nearest directory above that has chats."""
    message = "no chat was begun in this directory, and a chat belongs to the directory that it was begun in"
    for parent in directory.parents:
        if _newest(store, parent) is not None:
            name = path_text(parent)
            return NotFound(f"{message}; {name} has some", hint=f"emelex resume -C {shlex.quote(name)}")
    return NotFound(message, hint="`emelex chat` begins one")
