"""The files of a ChatGPT export: a ZIP, a folder that one was unpacked to, or a conversations file alone.

The module owns these invariants:

- Nothing is unpacked to disk, and a member's name is never a path: files are known by the id that their name holds.
- A member is read to `IMPORT_FILE_BYTES_MAX` bytes at most, and refused when it unpacks to more than `_RATIO_MAX` times
  its size.
- Beside a conversations file, symlinks are not followed.
"""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Final, Protocol

from emelex_core import limits
from emelex_core.assets.media import Readable
from emelex_core.errors import Invalid, NotFound
from emelex_core.imports.files.jsonl import open_unpacked

ZIP_MAGIC: Final = b"PK\x03\x04"
_CONVERSATIONS: Final = re.compile(r"(?:\A|/)conversations(?:[-_][0-9]{1,6})?\.json\Z")
_FILE_ID: Final = re.compile(r"file[-_][A-Za-z0-9]{6,64}")
_ENTRIES_MAX: Final = 200_000
_DEPTH_MAX: Final = 3
_RATIO_MAX: Final = 200
"""Conversations pack ten times smaller. Zeros pack a thousand times."""
_RATIO_FREE_BYTES: Final = 64 * limits.MIB
"""Up to here nothing that is unpacked does harm."""
_ENCRYPTED: Final = 0x1


class ExportFiles(Protocol):
    """Finds the bytes of a file by its id."""

    def opened(self, file_id: str | None) -> contextlib.AbstractContextManager[Readable | None]:
        """Open a file; None for one that is not there. Leaving the block closes it."""
        ...


class ZipExport:
    """An export as it was downloaded."""

    def __init__(self, path: Path) -> None:
        """Read the list of members. Raises: NotFound, Invalid for what is no ZIP or too many members."""
        self._path = path
        self._stream = open_unpacked(path)
        try:
            self._zip = zipfile.ZipFile(self._stream)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            self._stream.close()
            raise Invalid(f"{path}: a ZIP that cannot be read: {error}; was it cut?") from None
        members = self._zip.infolist()
        if len(members) > _ENTRIES_MAX:
            self.close()
            raise Invalid(f"{path}: a ZIP of more than {_ENTRIES_MAX} members")
        self.conversations = sorted(
            (member for member in members if _CONVERSATIONS.search(member.filename)), key=lambda member: member.filename
        )
        self._files: dict[str, zipfile.ZipInfo] = {}
        for member in members:
            if (found := _FILE_ID.search(member.filename.rpartition("/")[2])) is not None:
                self._files.setdefault(found.group(), member)

    def close(self) -> None:
        """Close the file."""
        self._zip.close()
        self._stream.close()

    def member(self, member: zipfile.ZipInfo) -> contextlib.AbstractContextManager[Readable]:
        """Open a member as a bounded stream. Raises: Invalid."""
        if member.flag_bits & _ENCRYPTED:
            raise Invalid(f"{self._path}: {member.filename[:80]!r} in it is encrypted")
        try:
            return _Member(self._zip.open(member), member, self._path)
        except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
            raise Invalid(f"{self._path}: {member.filename[:80]!r} in it cannot be read: {error}") from None

    @contextlib.contextmanager
    def opened(self, file_id: str | None) -> Generator[Readable | None]:
        """Open a file by its id; None for one that is not there."""
        member = self._files.get(_key(file_id))
        if member is None:
            yield None
            return
        with self.member(member) as source:
            yield source


class _Member:
    """Reads a member, counting what it unpacks to."""

    def __init__(self, stream: IO[bytes], member: zipfile.ZipInfo, path: Path) -> None:
        self._stream = stream
        self._what = f"{path}: {member.filename[:80]!r} in it"
        self._done = 0
        self._bytes_max = max(_RATIO_FREE_BYTES, member.compress_size * _RATIO_MAX)

    def __enter__(self) -> Readable:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def read(self, size: int, /) -> bytes:
        """Return the next bytes. Raises: Invalid for a damaged member, or one that unpacks to too much."""
        try:
            data = self._stream.read(size)
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError) as error:
            raise Invalid(f"{self._what} is damaged: {error}") from None
        self._done += len(data)
        if self._done > min(self._bytes_max, limits.IMPORT_FILE_BYTES_MAX):
            raise Invalid(f"{self._what} unpacks to more than {self._done - len(data)} bytes, as no conversation does")
        return data


class FolderExport:
    """The folder of a conversations file. It is listed when the first file is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Path] | None = None

    @contextlib.contextmanager
    def opened(self, file_id: str | None) -> Generator[Readable | None]:
        """Open a file by its id; None for one that is not there."""
        if self._files is None:
            self._files = dict(_named_files(self._folder, 0))
        path = self._files.get(_key(file_id))
        try:
            stream = None if path is None else open_unpacked(path)
        except (Invalid, NotFound):
            stream = None
        try:
            yield stream
        finally:
            if stream is not None:
                stream.close()


def is_zip(path: Path) -> bool:
    """Whether a file begins like a ZIP. Raises: NotFound, Invalid when it cannot be opened."""
    with open_unpacked(path) as stream:
        return stream.read(len(ZIP_MAGIC)) == ZIP_MAGIC


def _key(file_id: str | None) -> str:
    found = _FILE_ID.search(file_id or "")
    return "" if found is None else found.group()


def _named_files(folder: Path, depth: int) -> Iterator[tuple[str, Path]]:
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries[:_ENTRIES_MAX]:
        if entry.is_dir(follow_symlinks=False) and depth < _DEPTH_MAX:
            yield from _named_files(Path(entry.path), depth + 1)
        elif entry.is_file(follow_symlinks=False) and (found := _FILE_ID.search(entry.name)):
            yield found.group(), Path(entry.path)
