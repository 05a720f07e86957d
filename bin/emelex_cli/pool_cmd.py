"""`emelex memory pool`: the long-lived pool, for a supervisor or a terminal.

The module owns these invariants:

- This process forks: nothing here starts a thread or opens the store. Metrics have a process of their own.
- Logs go to stderr, as JSON under a supervisor, and hold no word of any message. With --json they are data, on stdout.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from emelex_cli import durations
from emelex_cli.call import Call
from emelex_cli.output import say
from emelex_core.clock import system_clock

if TYPE_CHECKING:
    from emelex_workers.pool.events import PoolEvent

GRACE: Final = "30s"


def pool(
    call: Call,
    *,
    workers: int | None = None,
    model: str | None = None,
    in_flight: int | None = None,
    grace: str = GRACE,
    metrics: str | None = None,
    no_maintenance: bool = False,
) -> int:
    """Run a pool until it is told to stop; return the exit code of what ended it."""
    from emelex_workers.maintain import SCHEDULE
    from emelex_workers.observe import narrate
    from emelex_workers.observe.export import Exporter
    from emelex_workers.observe.notify import Notifier, Supervision
    from emelex_workers.pool.run import PoolOptions, run_pool
    from emelex_workers.progress import JobStep

    options = PoolOptions(
        workers=workers,
        model=model,
        in_flight=in_flight,
        grace_seconds=durations.seconds(grace, option="--grace"),
        maintenance=None if no_maintenance else SCHEDULE,
    )
    options.check()
    config = call.config
    supervision = Supervision(Notifier())
    as_json = call.out.json or narrate.is_supervised()
    with ExitStack() as stack:
        exporter = None
        if metrics is not None:
            exporter = Exporter(call.home, metrics)
            stack.callback(exporter.close)

        def listen(event: PoolEvent) -> None:
            supervision.hear(event)
            if exporter is not None:
                exporter.hear(event)
            if isinstance(event, JobStep):
                return
            line = narrate.line(event, now=system_clock(), as_json=as_json)
            if call.out.json:
                call.out.record(json.loads(line), now=True)
            else:
                say(line)

        return run_pool(call.home, config, options, listen=listen, each_round=supervision.tick)
