"""Named fault points between durable steps (house habit 13).

`reach(point)` does nothing in normal life. A crash test sets the environment variable EMELEX_FAULT to `point` or
`point:n`; the process then kills itself with SIGKILL the first or n-th time that it gets there. EMELEX_FAULT_ACTION set
to `stop` makes it stop itself instead (SIGSTOP) and go on when the test lets it, so that a race happens when it should.
The registry below is what the tests enumerate; reaching a point that is not registered is a programming error.
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
        "journal.before_commit",
        "snapshot.stored",
        "turn.begun",
        "turn.planned",
        "turn.asked",
        "turn.decided",
        "tool.started",
        "tool.completed",
        "turn.checkpointed",
        "turn.finished",
        "turn.failed",
        "recover.accepted",
        "recover.settled",
        "recover.published",
        "asset.written",
        "asset.published",
        "asset.cataloged",
        "collect.rows_removed",
        "collect.file_removed",
        "session.deleted",
        "job.claimed",
        "fold.leaf",
        "call.kept",
        "job.inferred",
        "job.settling",
        "job.settled",
        "rebind.before_commit",
        "backup.copied",
        "restore.assets_copied",
        "restore.database_copied",
        "import.batch_committed",
        "import.before_distillation",
        "model.staged",
        "model.copied",
        "model.recorded",
        "model.published",
        "model.quarantined",
        "bind.validated",
        "bind.committed",
    }
)

_ARMED: Final = os.environ.get("EMELEX_FAULT", "")
_point, _, _nth = _ARMED.partition(":")
_remaining = int(_nth) if _nth.isdecimal() else 1
_SIGNAL: Final = signal.SIGSTOP if os.environ.get("EMELEX_FAULT_ACTION") == "stop" else signal.SIGKILL


def reach(point: str) -> None:
    """Say that execution got to a named point; die here when a crash test armed it."""
    global _remaining
    if point not in POINTS:
        raise LookupError(f"fault point {point!r} is not registered in emelex_core/faults.py")
    if point != _point:
        return
    _remaining -= 1
    if _remaining == 0:
        os.kill(os.getpid(), _SIGNAL)
