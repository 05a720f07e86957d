"""Emelex Home: where it is, and whether it can be trusted (contract, "Home, workspace, configuration").

The module owns these invariants:

- Looking is not creating: `locate` touches nothing, `create` makes the directories with their final mode.
- A Home is used through its real path, so that a linked Home works and a link below it does not.
- Every directory on the way down from the Home is ours, a real directory, and not writable by group or others.
- Nobody but root and us can put another directory in the place of one on the way from / to the Home.
- What the system denies us is refused, not taken for a failing disk.
- Lock files are private, never unlinked, and waited for within a bound; failures of the file system name their path.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import stat
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from emelex_core.errors import EmelexError, Invalid, Refused, Storage, StorageBusy, StorageFull, StorageReadOnly

PRIVATE_DIRECTORY: Final = 0o700
PRIVATE_FILE: Final = 0o600

_LOCK_POLL_SECONDS: Final = 0.005
_KINDS: Final[dict[int, type[EmelexError]]] = {
    errno.ENOSPC: StorageFull,
    errno.EDQUOT: StorageFull,
    errno.EROFS: StorageReadOnly,
    errno.EACCES: Refused,
    errno.EPERM: Refused,
}
_ROOT: Final = 0
_WRITABLE_BY_OTHERS: Final = 0o022
_ALL_IDS: Final = 2**32 - 1
_OVERFLOW_ID: Final = Path("/proc/sys/kernel/overflowuid")
_ID_MAP: Final = Path("/proc/self/uid_map")


@dataclass(frozen=True, slots=True)
class Home:
    """The places below one Home. All paths are absolute."""

    root: Path

    @property
    def memory(self) -> Path:
        """The directory of the database."""
        return self.root / "memory"

    @property
    def database(self) -> Path:
        """The database file."""
        return self.memory / "emelex.sqlite3"

    @property
    def models(self) -> Path:
        """Installed and derived models."""
        return self.root / "models"

    @property
    def config(self) -> Path:
        """The user's configuration file."""
        return self.root / "config.toml"


def locate(explicit: str | os.PathLike[str] | None = None) -> Home:
    """Find the Home without touching it: the explicit path, else EMELEX_HOME, else `~/.emelex`.

    An empty EMELEX_HOME or HOME counts as unset; without HOME the password database is asked.
    Raises: Invalid when no absolute place can be found.
    """
    chosen = os.fspath(explicit) if explicit is not None else os.environ.get("EMELEX_HOME", "")
    if explicit is not None and not chosen:
        raise Invalid("the Home's path is empty")
    if "\0" in chosen:
        raise Invalid("the Home's path contains a NUL byte")
    if not chosen:
        chosen = str(_user_directory() / ".emelex")
    try:
        absolute = os.path.abspath(chosen)  # noqa: PTH100 - Path.absolute() keeps `..`, and fails the same way
    except OSError as error:
        raise Invalid(f"the Home {chosen!r} is relative and the current directory is gone: {error.strerror}") from None
    return Home(Path(os.path.realpath(absolute)))


def create(home: Home) -> None:
    """Make the Home and its `memory` directory with mode 0700; existing ones are only checked.

    Raises: Refused for a directory that cannot be trusted, Storage when one cannot be made.
    """
    check_way(home.root)
    for directory in (home.root, home.memory):
        make_private_directory(directory)


def make_private_directory(directory: Path) -> None:
    """Make one directory with mode 0700 and make its name durable; an existing one is only checked."""
    try:
        directory.mkdir(mode=PRIVATE_DIRECTORY)
    except FileExistsError:
        pass
    except OSError as error:
        raise storage_error(error, f"cannot create {directory}") from error
    else:
        # mkdir's mode passes through the umask, which may take bits away but never adds one.
        directory.chmod(PRIVATE_DIRECTORY)
        sync_directory(directory.parent)
    check_directory(directory)


def check_way(directory: Path) -> None:
    """Raise Refused when somebody else could put another directory in the place of this one, or of one above it.

    Each directory from / down to the parent is root's or ours, a real one, and writable by nobody else unless it is
    sticky, where entries are their owners' to rename. The path is absolute and resolved; what is missing is no concern.
    """
    owners = {_ROOT, os.geteuid(), _unmapped_owner()}
    for above in reversed(directory.parents):
        try:
            status = os.lstat(above)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error(error, f"cannot look at {above}") from error
        if stat.S_ISLNK(status.st_mode):
            raise Refused(f"{above}, on the way to {directory}, has become a symbolic link")
        if not stat.S_ISDIR(status.st_mode):
            raise Refused(f"{above}, on the way to {directory}, is not a directory")
        if status.st_uid not in owners:
            raise Refused(
                f"{above}, on the way to {directory}, belongs to user {status.st_uid}, who could put another one there",
                hint="keep the Home below directories of your own: --home PATH, or EMELEX_HOME",
            )
        if status.st_mode & _WRITABLE_BY_OTHERS and not status.st_mode & stat.S_ISVTX:
            raise Refused(
                f"{above}, on the way to {directory}, is writable by group or others "
                f"(mode {stat.S_IMODE(status.st_mode):04o})",
                hint=f"chmod go-w {above}, or keep the Home elsewhere: --home PATH, or EMELEX_HOME",
            )


def check_directory(directory: Path) -> None:
    """Raise Refused unless it is a real directory of ours that neither group nor others can write."""
    try:
        status = os.lstat(directory)
    except OSError as error:
        raise storage_error(error, f"cannot read {directory}") from error
    if stat.S_ISLNK(status.st_mode):
        raise Refused(f"{directory} is a symbolic link; only the Home itself may be one")
    if not stat.S_ISDIR(status.st_mode):
        raise Refused(f"{directory} is not a directory")
    if status.st_uid != os.geteuid():
        raise Refused(f"{directory} belongs to user {status.st_uid}, not to you ({os.geteuid()})")
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise Refused(
            f"{directory} is writable by group or others (mode {stat.S_IMODE(status.st_mode):04o})",
            hint=f"chmod go-w {directory}",
        )


def check_asset_directory(directory: Path) -> None:
    """Raise Refused unless the directory is ours with mode exactly 0700 and no access list; a missing one is fine."""
    if not exists(directory):
        return
    check_directory(directory)
    mode = stat.S_IMODE(os.lstat(directory).st_mode)
    if mode != PRIVATE_DIRECTORY:
        raise Refused(
            f"asset directory {directory} has mode {mode:04o}; it must be exactly 0700",
            hint=f"look why it changed, then chmod 700 {directory}",
        )
    if _access_lists(directory):
        raise Refused(f"asset directory {directory} carries an access list", hint=f"setfacl -b {directory}")


def exists(path: Path) -> bool:
    """Whether something has this name, a dangling link too. What cannot be looked at is an error, never "not there".

    Raises: Refused where the system denies it, Storage.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise storage_error(error, f"cannot look at {path}") from error
    return True


def check_private_file(path: Path, *, what: str) -> os.stat_result:
    """Return the status of a regular file of ours with mode exactly 0600 and one name; raise Refused otherwise."""
    try:
        status = os.lstat(path)
    except OSError as error:
        raise storage_error(error, f"cannot read {what} {path}") from error
    if stat.S_ISLNK(status.st_mode):
        raise Refused(f"{what} {path} is a symbolic link")
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{what} {path} is not a regular file")
    if status.st_uid != os.geteuid():
        raise Refused(f"{what} {path} belongs to user {status.st_uid}, not to you ({os.geteuid()})")
    if stat.S_IMODE(status.st_mode) != PRIVATE_FILE:
        raise Refused(
            f"{what} {path} has mode {stat.S_IMODE(status.st_mode):04o}; it must be exactly 0600",
            hint=f"look why it changed, then chmod 600 {path}",
        )
    if status.st_nlink > 1:
        raise Refused(f"{what} {path} has {status.st_nlink} names (hard links)")
    return status


def open_private(path: Path, *, what: str) -> int:
    """Open a private never-unlinked file for reading and writing, making it with mode 0600 when it is missing.

    Raises: Refused, naming it, for a link, a foreign owner or another mode; Storage when it cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, PRIVATE_FILE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused(f"{what} {path} is a symbolic link") from None
        raise storage_error(error, f"cannot open {what} {path}") from error
    try:
        # What was opened is what the name stands for: both are looked at, so that no swap between them goes unseen.
        if not os.path.samestat(check_private_file(path, what=what), os.fstat(descriptor)):
            raise Refused(f"{what} {path} was replaced while it was opened")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def lock_within(descriptor: int, path: Path, *, seconds: float) -> None:
    """Take a file's kernel lock, which no crash leaves behind, by asking again and again.

    A blocking flock would wait for a stopped process for ever. Raises: StorageBusy after the bound, Refused where the
    file system cannot lock.
    """
    deadline = time.monotonic() + seconds
    while not try_lock(descriptor, path):
        if time.monotonic() >= deadline:
            raise StorageBusy(f"another process has held {path} for {seconds:.1f} seconds")
        time.sleep(_LOCK_POLL_SECONDS)


def try_lock(descriptor: int, path: Path) -> bool:
    """Take a file's kernel lock if nobody has it; return whether it is held now. Raises: Refused as `lock_within`."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise Refused(
            f"the file system of {path} cannot lock files: {error.strerror}",
            hint="keep the Home on a local file system",
        ) from error
    return True


def storage_error(error: OSError, what: str) -> EmelexError:
    """The member of the tree that a failed system call stands for; `what` says what failed, and on which path.

    Refused for what the system denies, else Storage or one of its kind.
    """
    kind = _KINDS.get(error.errno or 0, Storage)
    return kind(f"{what}: {error.strerror}", hint="free space, then try again" if kind is StorageFull else None)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable. Raises: Storage."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise storage_error(error, f"cannot sync {directory}") from error


@cache
def _unmapped_owner() -> int:
    """The id that stands for every user whom a container's user namespace does not know; root's where all are known.

    There / itself belongs to that id. Whoever made the container owns it, and could do as he likes anyway.
    """
    try:
        known = sum(int(line.split()[2]) for line in _ID_MAP.read_text("utf-8").splitlines())
        return _ROOT if known >= _ALL_IDS else int(_OVERFLOW_ID.read_text("utf-8"))
    except (OSError, ValueError, IndexError):
        return _ROOT


def _access_lists(directory: Path) -> list[str]:
    """The names of POSIX access lists on a directory; none where the file system keeps none."""
    if not hasattr(os, "listxattr"):
        return []
    try:
        return [name for name in os.listxattr(directory) if name.startswith("system.posix_acl")]
    except OSError:
        return []


def _user_directory() -> Path:
    named = os.environ.get("HOME", "")
    if named:
        return Path(named)
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        raise Invalid(
            "HOME is unset and the password database does not know this user", hint="pass --home PATH"
        ) from None
