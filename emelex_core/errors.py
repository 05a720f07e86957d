"""The error tree. Every failure that leaves Emelex memory is a member of it.

    EmelexError
    ├── Invalid                 what the caller passed cannot be accepted; state as before            exit 1
    │   ├── UsageError          a command line or configuration that cannot be understood             exit 2
    │   ├── ReplayRequired      an append before the history was replayed
    │   ├── TurnUnfinished      an append, or a new turn, while another turn is under way or interrupted
    │   └── StaleReplay         the tail moved behind a lease; replay again
    ├── NotFound                nothing under that name                                               exit 3
    │   └── AmbiguousId         a prefix that fits several                                            exit 2
    ├── Busy                    somebody holds it, until `held_until`                                 exit 4
    │   └── SessionBusy
    ├── StaleLease              the authority was lost: expired, taken over or released               exit 4
    │   ├── StaleSessionLease
    │   └── StaleJobLease
    ├── NeedsAcceptance         unknown effects must be accepted explicitly                           exit 5
    │   └── UncertainToolInvocations   calls that had started when their process ended; `calls` names them
    ├── Refused                 owner, mode, symlink, file system or schema is not to be trusted      exit 6
    │   ├── WorkspaceMismatch
    │   ├── SnapshotMismatch    the configuration or authority is not the one that the Session was begun with
    │   ├── MissingModelIdentity   a Session that no model was bound to cannot be resumed with one
    │   ├── SessionModelMismatch   the model is not the one that the Session is bound to
    │   └── NewerSchema
    ├── Corrupt                 stored state contradicts itself                                       exit 7
    ├── Storage                 the disk or file system failed                                        exit 75
    │   ├── StorageBusy         a lock was not had within its bounded wait
    │   ├── StorageFull
    │   └── StorageReadOnly
    ├── Cancelled               asked to stop; nothing was counted                                    exit 130
    ├── Poisoned                an agent's turn was left midway; only a resume can tell what is durable  exit 1
    ├── ToolError               a tool could not do what a call asks; the model hears it as the answer  exit 1
    ├── ToolFailed              a tool broke while it ran; its effect is unknown                      exit 1
    └── JobFailure              one attempt at a job failed                                           exit 1
        ├── RetryableFailure    may succeed another time
        │   ├── EngineFailure       the engine, its model or its server failed
        │   └── OutputRejected      the model's text did not pass its checks
        └── PermanentFailure    cannot succeed by trying again
            └── ModelUnusable       the model file or endpoint is missing, altered or unfit
                └── ModelSnapshotInvalid   an installed model is gone, or is not what was installed

Facts are attributes, never only words in a message; `exit_code` of each class is the contract's exit code. A module may
derive a class of its own for what it catches itself; outside, `kind` names the member of this tree that it is.
"""

from __future__ import annotations

from typing import ClassVar


class EmelexError(Exception):
    """Base of the tree. `hint` is one sentence on what to do next, or None."""

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "EmelexError"
    """The class's name, or that of the nearest class of this tree: what those who read errors as data are told."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__ == __name__:
            cls.kind = cls.__name__

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Invalid(EmelexError):
    """What the caller passed cannot be accepted. Nothing was written."""


class UsageError(Invalid):
    """A command line or a configuration that cannot be understood."""

    exit_code = 2


class ReplayRequired(Invalid):
    """A lease on a Session with history must replay it before its first append."""


class StaleReplay(Invalid):
    """The Session's tail advanced behind this lease's cursor: replay again."""


class TurnUnfinished(Invalid):
    """The Session has a turn that is under way or was interrupted; it is finished or recovered first."""


class NotFound(EmelexError):
    """Nothing is stored under that name."""

    exit_code = 3


class AmbiguousId(NotFound):
    """An id prefix that fits more than one row. `candidates` are full ids."""

    exit_code = 2

    def __init__(self, message: str, *, candidates: tuple[str, ...]) -> None:
        super().__init__(message, hint="type more characters of the id")
        self.candidates = candidates


class Busy(EmelexError):
    """Somebody holds it. `held_until` is milliseconds since the epoch, UTC."""

    exit_code = 4

    def __init__(self, message: str, *, held_until: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.held_until = held_until


class SessionBusy(Busy):
    """A live lease holds the Session."""


class StaleLease(EmelexError):
    """The authority was lost: it expired, was taken over, or was released."""

    exit_code = 4


class StaleSessionLease(StaleLease):
    """The Session lease no longer holds its Session."""


class StaleJobLease(StaleLease):
    """The worker's lease no longer holds its job."""


class NeedsAcceptance(EmelexError):
    """Tool calls with unknown effects must be accepted explicitly."""

    exit_code = 5


class UncertainToolInvocations(NeedsAcceptance):
    """Tool calls had started when their process ended. `calls` are pairs of call id and tool name, in order."""

    def __init__(self, message: str, *, calls: tuple[tuple[str, str], ...], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.calls = calls


class Refused(EmelexError):
    """Owner, mode, link, file system or identity is not what it must be."""

    exit_code = 6


class WorkspaceMismatch(Refused):
    """The directory is not the one that the Session is bound to."""


class SnapshotMismatch(Refused):
    """Configuration or authority differ from the Session's snapshot. `difference` says where, as `path: a != b`."""

    def __init__(self, message: str, *, difference: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.difference = difference


class MissingModelIdentity(Refused):
    """The Session has history and no model is bound to it, so that none can be told to be the same."""


class SessionModelMismatch(Refused):
    """The model is not the one that the Session is bound to."""


class NewerSchema(Refused):
    """The database was written by a newer release, or by Emelex 1.x."""


class Corrupt(EmelexError):
    """Stored state contradicts itself. Nothing was repaired or shortened."""

    exit_code = 7


class Storage(EmelexError):
    """The disk or the file system failed. The last committed state stands."""

    exit_code = 75


class StorageBusy(Storage):
    """A lock was not had within its bounded wait."""


class StorageFull(Storage):
    """No space is left."""


class StorageReadOnly(Storage):
    """The database or its file system cannot be written."""


class Cancelled(EmelexError):
    """Asked to stop. Claims are released and nothing is counted."""

    exit_code = 130


class Poisoned(EmelexError):
    """A turn was left midway, or its journal failed: what is durable is only known after the Session is resumed."""


class ToolError(EmelexError):
    """A tool could not do what a call asks. The model hears the message as the call's answer."""


class ToolFailed(EmelexError):
    """A tool broke while it ran. `tool` names it; what it did before is unknown."""

    def __init__(self, message: str, *, tool: str) -> None:
        super().__init__(message)
        self.tool = tool


class JobFailure(EmelexError):
    """One attempt at a job failed."""


class RetryableFailure(JobFailure):
    """The attempt may succeed another time."""


class EngineFailure(RetryableFailure):
    """The engine, its model or its server failed while it ran."""


class OutputRejected(RetryableFailure):
    """The model's text did not pass its checks; nothing of it was applied."""


class PermanentFailure(JobFailure):
    """Trying again cannot help."""


class ModelUnusable(PermanentFailure):
    """The model file or endpoint is missing, altered or unfit for the work."""


class ModelSnapshotInvalid(ModelUnusable):
    """An installed model is gone, or is not what was installed: its record, its file or its target changed."""
