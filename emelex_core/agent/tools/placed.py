"""Tools that are given a path: outside places, secrets and files of several names need approval, each time."""

from __future__ import annotations

import os
import stat
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from emelex_core.agent.tools.rooted import Place, Root
from emelex_core.agent.tools.secrets import is_secret
from emelex_core.agent.tools.typed import TypedTool
from emelex_core.errors import ToolError

PathText: TypeAlias = Annotated[
    str, msgspec.Meta(min_length=1, max_length=4_095, description="a path, relative to the working directory")
]

Typed = TypeVar("Typed", bound=msgspec.Struct)


class PlacedTool(TypedTool[Typed]):
    """A tool whose arguments have a `path`."""

    def __init__(self, root: Root) -> None:
        self.root = root

    def careful(self, arguments: Typed) -> str | None:
        """Outside of the root, for what usually holds secrets, and for files of several names, somebody approves."""
        path: Any = getattr(arguments, "path")  # noqa: B009 - a struct of some descendant
        try:
            return caution_about(self.root, self.root.place(path))
        except ToolError:
            # What is no path at all is refused when it is used.
            return None


def caution_about(root: Root, place: Place) -> str | None:
    """Why a place is special, in one line."""
    if place.outside:
        return f"/{'/'.join(place.parts)} lies outside of the working directory"
    if is_secret(place.parts):
        return f"{'/'.join(place.parts)} is likely to hold secrets"
    if _names_of(root, place) > 1:
        return f"{'/'.join(place.parts)} has other names, and one of them may be a secret's or lie outside"
    return None


def _names_of(root: Root, place: Place) -> int:
    """How many names the file has that stands there; 0 where none does, or what does is no file."""
    try:
        with root.parent(place) as parent:
            found = os.stat(place.name, dir_fd=parent, follow_symlinks=False)
    except (OSError, ToolError):
        return 0
    return found.st_nlink if stat.S_ISREG(found.st_mode) else 0
