"""The files that service managers read: templates beside this module, filled with a program and a Home.

The module owns these invariants:

- One source: what `service print` writes and what stands in ops/ come from the same templates; a test holds them equal.
- A path is quoted as its reader wants it. What no quoting can carry (a line break, a control character) is refused.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from emelex_core.errors import Invalid, UsageError


class Manager(StrEnum):
    """Who runs it."""

    SYSTEMD = "systemd"
    SUPERVISORD = "supervisord"
    CRON = "cron"
    LAUNCHD = "launchd"


FOLDERS: Final = ("systemd-user", "systemd-system", "supervisord", "cron", "launchd")
SHARED: Final = {"systemd-user": ("systemd-timers",), "systemd-system": ("systemd-timers",)}
"""Folders of templates that several places have in common."""
USUAL_PROGRAM: Final = "/usr/local/bin/emelex"
USUAL_HOMES: Final = {
    "systemd-user": "%h/.emelex",
    "systemd-system": "/var/lib/emelex",
    "supervisord": "/var/lib/emelex",
    "cron": '"$HOME"/.emelex',
    "launchd": "/usr/local/var/emelex",
}
"""What stands in ops/, as each reader spells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFile:
    """One file to put into place."""

    name: str
    text: str


def folder(manager: Manager, *, system: bool) -> str:
    """The folder of a manager's templates. Raises: UsageError for a system variant where there is none."""
    if manager is Manager.SYSTEMD:
        return "systemd-system" if system else "systemd-user"
    if system:
        raise UsageError(f"--system is for systemd, not for {manager}", hint="leave it out")
    return manager.value


def files(place: str, *, program: Path, home: Path) -> list[ServiceFile]:
    """The files of a folder for real paths. Raises: Invalid for a path that cannot be written there."""
    return render(place, program=_quoted(place, program), home=_quoted(place, home))


def usual_files(place: str) -> list[ServiceFile]:
    """The files of a folder for the usual places: those of ops/."""
    return render(place, program=USUAL_PROGRAM, home=USUAL_HOMES[place])


def render(place: str, *, program: str, home: str) -> list[ServiceFile]:
    """Fill the templates of a folder with texts that are quoted already."""
    root = resources.files("emelex_cli") / "service"
    entries = [entry for folder in (place, *SHARED.get(place, ())) for entry in (root / folder).iterdir()]
    found = sorted((entry.name, entry.read_text("utf-8")) for entry in entries if entry.is_file())
    return [
        ServiceFile(name=name, text=text.replace("@PROGRAM@", program).replace("@HOME@", home)) for name, text in found
    ]


def this_program(given: str | None) -> Path:
    """The absolute path of the program that a manager shall run: the given one, else this one.

    Raises: UsageError when there is none that could be started.
    """
    sibling = str(Path(sys.executable).parent / "emelex")
    candidates = [given] if given else [_own_name(), shutil.which("emelex"), sibling]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK) and Path(candidate).is_file():
            return Path(os.path.abspath(candidate))  # noqa: PTH100 - links stay: they outlive what they point to
    raise UsageError(
        f"{given} cannot be started" if given else "the installed program cannot be found",
        hint="name it: --program /path/to/emelex",
    )


def _own_name() -> str | None:
    return sys.argv[0] if Path(sys.argv[0]).name == "emelex" else None


def _quoted(place: str, path: Path) -> str:
    text = str(path)
    if not text.isprintable():
        raise Invalid(f"a service file cannot carry the path {text!r}", hint="use one without control characters")
    match place:
        case "systemd-user" | "systemd-system":
            return _systemd(text)
        case "supervisord":
            return shlex.quote(text).replace("%", "%%").replace(";", "\\;")
        case "cron":
            return shlex.quote(text).replace("%", "\\%")
        case _:
            return escape(text)


def _systemd(text: str) -> str:
    """As systemd.syntax(7) and systemd.unit(5) want it: specifiers and variables doubled, a blank in quotes."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"' if any(character in text for character in " '\"\\;") else text
