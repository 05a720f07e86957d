"""`emelex service print` and `service install`: files for whoever keeps the pool running and the clock.

The module owns these invariants:

- Nothing is started, enabled or reloaded: the next commands are printed, for a person to run.
- A file that is there and says something else is never written over without --force.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from emelex_cli import services
from emelex_cli.call import Call
from emelex_cli.jobs_cmd import choice
from emelex_cli.output import one_line, path_text
from emelex_cli.services import Manager, ServiceFile
from emelex_core import home as homes
from emelex_core.errors import NotFound, Refused, Storage, UsageError

BEGIN: Final = "# >>> emelex memory >>>"
END: Final = "# <<< emelex memory <<<"
FILE_MODE: Final = 0o644


def show(call: Call, *, manager: str, system: bool = False, program: str | None = None) -> int:
    """Print the files of a manager, each under its name."""
    found = _files(call, _manager(manager), system=system, program=program)
    if call.out.json:
        for file in found:
            call.out.record({"type": "service_file", "name": file.name, "text": file.text})
        return 0
    for number, file in enumerate(found):
        if len(found) > 1:
            call.out.line(("\n" if number else "") + f"#==> {file.name}")
        call.out.write(file.text)
    return 0


def install(
    call: Call,
    *,
    manager: str,
    system: bool = False,
    program: str | None = None,
    to: str | None = None,
    force: bool = False,
) -> int:
    """Put the files of a manager into place and print what to run next."""
    chosen = _manager(manager)
    found = _files(call, chosen, system=system, program=program)
    if chosen is Manager.CRON and to is None:
        states = [("crontab", _merge_crontab(found[0].text))]
    else:
        directory = call.place(to) if to is not None else _directory(chosen, system=system)
        states = [(path_text(directory / file.name), _put(directory / file.name, file.text, force)) for file in found]
    follow = _next(chosen, system=system, directory=to)
    if call.out.json:
        files = [{"path": path, "state": state} for path, state in states]
        call.out.record({"type": "service_installed", "manager": chosen.value, "files": files, "next": follow})
        return 0
    for path, state in states:
        call.out.line(f"{state}: {one_line(path)}")
    for command in follow:
        call.out.note(f"next: {command}")
    return 0


def _files(call: Call, manager: Manager, *, system: bool, program: str | None) -> list[ServiceFile]:
    place = services.folder(manager, system=system)
    return services.files(place, program=services.this_program(program), home=call.home.root)


def _manager(text: str) -> Manager:
    chosen = choice(Manager, text, "MANAGER")
    assert chosen is not None
    return chosen


def _directory(manager: Manager, *, system: bool) -> Path:
    """Where a manager looks for its files. Raises: UsageError, NotFound."""
    user = homes.locate().root.parent if not os.environ.get("HOME") else Path(os.environ["HOME"])
    match manager:
        case Manager.SYSTEMD if system:
            return Path("/etc/systemd/system")
        case Manager.SYSTEMD:
            return Path(os.environ.get("XDG_CONFIG_HOME") or user / ".config") / "systemd" / "user"
        case Manager.LAUNCHD:
            return user / "Library" / "LaunchAgents"
        case _:
            for usual in (Path("/etc/supervisor/conf.d"), Path("/etc/supervisord.d")):
                if usual.is_dir():
                    return usual
            raise NotFound(
                f"{manager} has no usual place for its files on this machine",
                hint="name the folder that its configuration includes: --to DIR",
            )


def _put(path: Path, text: str, force: bool) -> str:
    """Write one file; say whether it was written or there already. Raises: Refused, Storage."""
    try:
        if path.exists() or path.is_symlink():
            if path.read_text("utf-8") == text:
                return "unchanged"
            if not force:
                raise Refused(f"{path} is there and says something else", hint="look at it, then add --force")
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.new")
        beside.unlink(missing_ok=True)
        with beside.open("x", encoding="utf-8") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except UnicodeDecodeError:
        raise Refused(f"{path} is there and is no text", hint="look at it") from None
    except OSError as error:
        raise Storage(f"cannot write {path}: {error.strerror}") from error
    return "written"


def _merge_crontab(text: str) -> str:
    """Put the lines between two marks into this user's crontab; what stands outside them is kept.

    Raises: NotFound without a crontab program, Storage when it fails, UsageError for marks that do not pair.
    """
    program = shutil.which("crontab")
    if program is None:
        raise NotFound("there is no crontab program on this machine", hint="emelex service print cron")
    before = subprocess.run([program, "-l"], capture_output=True, text=True, check=False)
    # Without a crontab yet, `crontab -l` fails; its own words differ from system to system.
    lines = before.stdout.splitlines() if before.returncode == 0 else []
    if (lines.count(BEGIN), lines.count(END)) not in {(0, 0), (1, 1)}:
        raise UsageError("the marks of Emelex memory in the crontab do not pair", hint="crontab -e")
    block = [BEGIN, *text.splitlines(), END]
    if BEGIN in lines:
        start, end = lines.index(BEGIN), lines.index(END)
        merged = [*lines[:start], *block, *lines[end + 1 :]]
    else:
        merged = [*lines, *block]
    if merged == lines:
        return "unchanged"
    done = subprocess.run([program, "-"], input="\n".join(merged) + "\n", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Storage(f"crontab refused the lines: {done.stderr.strip()[:500]}")
    return "written"


def _next(manager: Manager, *, system: bool, directory: str | None) -> list[str]:
    """The commands that a person runs next."""
    if directory is not None:
        return []
    match manager:
        case Manager.SYSTEMD:
            scope = "" if system else " --user"
            follow = [
                f"systemctl{scope} daemon-reload",
                f"systemctl{scope} enable --now emelex-pool.service emelex-maintain.timer",
            ]
            return follow if system else [*follow, "loginctl enable-linger"]
        case Manager.SUPERVISORD:
            return ["supervisorctl reread", "supervisorctl update"]
        case Manager.LAUNCHD:
            labels = ("org.emelex.memory.pool", "org.emelex.memory.maintain")
            return [f"launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/{label}.plist" for label in labels]
        case Manager.CRON:
            return []
