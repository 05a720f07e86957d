"""The state machine of a job, once. The schema's CHECKs, ARCHITECTURE.md's diagram and the tests agree with this table.

`fail` and `expire` always count an attempt; `release` never does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from emelex_core.jobs.kinds import JobState


class Verb(StrEnum):
    """What moves a job. `fail_last` is the failure that makes it terminal: the third, or a permanent one."""

    CLAIM = "claim"
    COMPLETE = "complete"
    FAIL = "fail"
    FAIL_LAST = "fail_last"
    EXPIRE = "expire"
    EXPIRE_LAST = "expire_last"
    RELEASE = "release"
    RETRY = "retry"


TRANSITIONS: Final[dict[tuple[JobState, Verb], JobState]] = {
    (JobState.PENDING, Verb.CLAIM): JobState.RUNNING,
    (JobState.RUNNING, Verb.COMPLETE): JobState.COMPLETED,
    (JobState.RUNNING, Verb.FAIL): JobState.PENDING,
    (JobState.RUNNING, Verb.FAIL_LAST): JobState.FAILED,
    (JobState.RUNNING, Verb.EXPIRE): JobState.PENDING,
    (JobState.RUNNING, Verb.EXPIRE_LAST): JobState.FAILED,
    (JobState.RUNNING, Verb.RELEASE): JobState.PENDING,
    (JobState.FAILED, Verb.RETRY): JobState.PENDING,
}
"""Every legal move; all others are refused by a guarded WHERE and tested to be."""

COUNTED: Final = frozenset({Verb.FAIL, Verb.FAIL_LAST, Verb.EXPIRE, Verb.EXPIRE_LAST})
"""The moves that add one to `failure_count`."""


def mermaid() -> str:
    """The diagram of TRANSITIONS, as ARCHITECTURE.md carries it; a test compares the two."""
    lines = ["stateDiagram-v2", "    [*] --> pending: publish"]
    lines += [f"    {start} --> {end}: {verb}" for (start, verb), end in TRANSITIONS.items()]
    lines += ["    completed --> [*]"]
    return "\n".join(lines)
