"""Named fault points between durable steps (house habit 13).

`reach(point)` does nothing in normal life. A crash test sets the environment variable EMELEX_FAULT to `point` or
`point:n`; the process then kills itself with SIGKILL the first or n-th time that it gets there. The registry below is
what the tests enumerate; reaching a point that is not registered is a programming error.
"""

from __future__ import annotations

import os
import signal
from typing import Final

POINTS: Final = frozenset(
    {
        "create.file_made",
        "migrate.before_commit",
        "session.started",
        "session.claimed",
        "append.before_commit",
        "append.committed",
        "asset.written",
        "asset.published",
        "asset.cataloged",
        "collect.rows_removed",
        "collect.file_removed",
        "session.deleted",
        "job.claimed",
        "job.inferred",
        "job.settling",
        "job.settled",
        "import.batch_committed",
        "import.before_distillation",
    }
)

_ARMED: Final = os.environ.get("EMELEX_FAULT", "")
_point, _, _nth = _ARMED.partition(":")
_remaining = int(_nth) if _nth.isdecimal() else 1


def reach(point: str) -> None:
    """Say that execution got to a named point; die here when a crash test armed it."""
    global _remaining
    if point not in POINTS:
        raise LookupError(f"fault point {point!r} is not registered in emelex_core/faults.py")
    if point != _point:
        return
    _remaining -= 1
    if _remaining == 0:
        os.kill(os.getpid(), signal.SIGKILL)
