"""One run of the program: its global options, and what they lead to, opened when it is asked for.

The module owns these invariants:

- `--json`, `--home` and `-C` mean the same before and after a command; a later `-C` is relative to an earlier one.
- Looking creates nothing. A Home without a database is an answer; one that cannot be read is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from emelex_cli.output import Output, path_text
from emelex_core import home as homes
from emelex_core.errors import Invalid, NotFound, Refused, UsageError, WorkspaceMismatch

if TYPE_CHECKING:
    from emelex_core.config import Config
    from emelex_core.home import Home
    from emelex_core.sessions.records import Session
    from emelex_core.store import MemoryStore

GLOBAL_OPTIONS: Final = (
    "Everywhere, before or after a command: --json prints JSON; --home PATH chooses the Emelex Home "
    "(else EMELEX_HOME, else ~/.emelex); -C PATH, --directory PATH works in another directory; --help explains."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Globals:
    """The global options as typed."""

    json: bool = False
    home: str | None = None
    directory: str | None = None


class Call:
    """What a command gets: where to write, which Home, which workspace."""

    def __init__(self, options: Globals, out: Output) -> None:
        self.out = out
        self._options = options

    @cached_property
    def home(self) -> Home:
        """The Home; it need not exist. Raises: Invalid."""
        return homes.locate(self._options.home)

    @cached_property
    def directory(self) -> Path:
        """The workspace's directory as an absolute path. Raises: Invalid when the current directory is gone."""
        chosen = self._options.directory
        if chosen is not None and not chosen:
            raise Invalid("-C needs a directory, not an empty text")
        try:
            return Path(os.path.abspath(chosen or os.curdir))  # noqa: PTH100 - keeps links, resolves `..` as shells do
        except OSError as error:
            raise Invalid(f"the current directory cannot be used: {error.strerror}", hint="pass -C PATH") from None

    @cached_property
    def given_directory(self) -> Path | None:
        """The directory that `-C` names, or None without it."""
        return None if self._options.directory is None else self.directory

    def place(self, path: str) -> Path:
        """A file that the command line names; relative to `-C` where that is given, as git does."""
        return Path(path) if self._options.directory is None else self.directory / path

    def new_file(self, name: str) -> Path:
        """A file to make that the command line names. Raises: Invalid when no file can be called that."""
        if not name or "\0" in name or name.endswith("/"):
            raise Invalid(f"{name!r} cannot name a file")
        return self.place(name)

    @cached_property
    def config(self) -> Config:
        """The configuration in effect here. Raises: UsageError, Refused, Storage."""
        from emelex_core import config

        try:
            directory = self.directory
        except Invalid:
            # Without a current directory there is no project around it.
            directory = None
        return config.load(self.home, directory=directory)

    @contextmanager
    def reading(self) -> Generator[MemoryStore | None]:
        """Open the store for reading; None, with a note on stderr, when nothing was ever stored here."""
        if not has_database(self.home):
            self.out.note(f"nothing is stored yet in {path_text(self.home.root)}")
            yield None
            return
        with _open_for_reading(self.home) as store:
            yield store

    @contextmanager
    def must_read(self) -> Generator[MemoryStore]:
        """Open the store for reading. Raises: NotFound when nothing was ever stored here."""
        require_database(self.home)
        with _open_for_reading(self.home) as store:
            yield store

    @contextmanager
    def writing(self, *, create: bool = False) -> Generator[MemoryStore]:
        """Open the store for changes; only `create` makes a missing one. Raises: NotFound and as `MemoryStore.open`."""
        from emelex_core.store import MemoryStore

        if not create:
            require_database(self.home)
        with MemoryStore.open(self.home, create=create) as store:
            yield store

    def session(self, store: MemoryStore, prefix: str, *, everywhere: bool) -> Session:
        """The Session that a prefix names, in this workspace unless `everywhere`.

        Raises: NotFound, AmbiguousId, Invalid; WorkspaceMismatch naming the flag (behaviour 157).
        """
        session = store.get_session(prefix.lower())
        if everywhere:
            return session
        try:
            store.validate_workspace(session, self.directory)
        except WorkspaceMismatch as error:
            raise WorkspaceMismatch(
                f"Session {session.id} belongs to another workspace, {session.workspace_path}",
                hint=f"add --all, or -C {session.workspace_path}",
            ) from error
        return session


Run: TypeAlias = Callable[[Call], int]
"""A command whose own options are bound. It returns the exit code."""


def typed(text: str) -> str:
    """A word of the command line that is stored text, not a path: UTF-8 whatever the locale says."""
    return os.fsencode(text).decode("utf-8", "surrogateescape")


def has_database(home: Home) -> bool:
    """Whether the Home has a database. Raises: Storage, Refused when that cannot be told, or is not ours to tell."""
    try:
        os.lstat(home.database)
    except FileNotFoundError:
        # Somebody else's Home must not look like an empty one.
        for directory in (home.root, home.memory):
            if homes.exists(directory):
                homes.check_directory(directory)
        return False
    except NotADirectoryError:
        raise Refused(f"{home.root} is not a directory, or something above it is none") from None
    except OSError as error:
        raise homes.storage_error(error, f"cannot look into {home.memory}") from error
    return True


def require_database(home: Home) -> None:
    """Raise NotFound when nothing was ever stored in the Home."""
    if not has_database(home):
        raise NotFound(f"nothing is stored yet in {home.root}", hint="`emelex import auto PATH` brings Sessions in")


def _open_for_reading(home: Home) -> MemoryStore:
    """Open read-only; a database of an older schema is brought forward first, which needs writing."""
    from emelex_core.db.schema import Outdated
    from emelex_core.store import MemoryStore

    try:
        return MemoryStore.open(home, read_only=True)
    except Outdated:
        MemoryStore.open(home).close()
        return MemoryStore.open(home, read_only=True)


def take_globals(arguments: Sequence[str]) -> tuple[Globals, list[str]]:
    """Take the global options out of the arguments, wherever they stand before `--`; return them and the rest.

    Raises: UsageError for one without its value.
    """
    json = False
    home: str | None = None
    directory: str | None = None
    rest: list[str] = []
    waiting = list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        if word == "--":
            rest += [word, *reversed(waiting)]
            break
        name, value = _split(word)
        if word == "--json":
            json = True
        elif name in ("--home", "--directory", "-C"):
            if value is None and not waiting:
                raise UsageError(f"{name} needs a path")
            path = waiting.pop() if value is None else value
            if name == "--home":
                home = path
            else:
                directory = path if directory is None else os.path.join(directory, path)  # noqa: PTH118 - plain text
        else:
            rest.append(word)
    return Globals(json=json, home=home, directory=directory), rest


def _split(word: str) -> tuple[str, str | None]:
    """Split `--name=value` and `-Cvalue`."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    if word.startswith("-C") and len(word) > 2:
        return "-C", word[2:]
    return word, None
