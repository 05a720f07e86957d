"""`emelex memory work`: run jobs until nothing is runnable (behaviours 163, 164, 167; contract, "The queue").

This is the door: it looks whether there is anything to do before it imports what does it, since most runs of a
scheduled drain find nothing.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from emelex_core.store import MemoryStore
from emelex_queue import idle
from emelex_workers.drain.options import DrainOptions
from emelex_workers.progress import DrainReport, Listener

if TYPE_CHECKING:
    from emelex_core.engine.ports import CancelToken
    from emelex_workers.engines import EngineSource

__all__ = ["DrainOptions", "drain"]


def drain(
    store: MemoryStore, options: DrainOptions, *, engines: EngineSource, listen: Listener, stop: CancelToken
) -> DrainReport:
    """Run jobs until nothing is runnable, a bound is met or `stop` is set; return the counts.

    A job that runs when `stop` is set is released uncounted. Raises: ModelUnusable before any job is claimed;
    StaleJobLease when this process lost its authority; Storage.
    """
    if idle.is_idle(store.database, options.kinds, clock=store.clock, session_id=options.session_id):
        return _nothing_done(store, options)
    from emelex_workers.drain.run import DrainRun

    run = DrainRun(store, options, engines, listen, stop)
    with ExitStack() as stack:
        run.work(stack)
    return run.report()


def _nothing_done(store: MemoryStore, options: DrainOptions) -> DrainReport:
    return DrainReport(
        compactions=0,
        distillations=0,
        knowledge_candidates=0,
        retries_scheduled=0,
        failed_jobs=0,
        released_jobs=0,
        remaining_jobs=idle.remaining_jobs(store.database, kind=options.kind, session_id=options.session_id),
    )
