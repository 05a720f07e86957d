"""Where collection stopped, kept beside the assets so that the next pass of any process goes on there.

The note is advice: one that is lost or torn makes the next pass begin at the beginning, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from emelex_core import home
from emelex_core.errors import Refused, Storage

NAME: Final = ".collect-cursor"
_BYTES_MAX: Final = 4_096


class Cursor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last digest of the catalog and the last name of the directory that were looked at; empty: none."""

    catalog: str = ""
    directory: str = ""


def load(directory: Path) -> Cursor:
    """Return the place where the last pass stopped, or the beginning."""
    path = directory / NAME
    try:
        home.check_private_file(path, what="collection's note")
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_BYTES_MAX), type=Cursor)
    except (OSError, Storage, Refused, msgspec.MsgspecError):
        return Cursor()


def save(directory: Path, cursor: Cursor) -> None:
    """Note where this pass stopped, as far as that can be written."""
    path = directory / NAME
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with contextlib.suppress(OSError):
        if cursor == Cursor():
            path.unlink(missing_ok=True)
            return
        descriptor = os.open(path, flags, home.PRIVATE_FILE)
        try:
            os.write(descriptor, msgspec.json.encode(cursor))
        finally:
            os.close(descriptor)
