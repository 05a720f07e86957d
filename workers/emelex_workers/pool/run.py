"""`emelex memory pool`: a long-lived pool of workers (issue 7; behaviour 190; contract, "Three ways it is run").

huey's Consumer is the supervisor of processes and their clock; the `jobs` table is the only authority (ADR 0002).
Several pools and drains may run at once on one Home.

    if __name__ == "__main__":
        raise SystemExit(run_pool(home, config, PoolOptions(workers=2), listen=print_event))
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from huey import Huey

from emelex_core import clock as clocks
from emelex_core import limits
from emelex_core.clock import Clock
from emelex_core.config import Config
from emelex_core.engine.ports import CancelToken
from emelex_core.errors import UsageError
from emelex_core.home import Home
from emelex_core.models.resolve import ResolvedEndpoint, ResolvedModel, resolve_model
from emelex_core.retention.records import RetentionPolicy
from emelex_core.store import MemoryStore
from emelex_queue.huey_storage import IdentitySerializer, JobTableStorage
from emelex_workers.engines import EngineSource, configured_engines
from emelex_workers.maintain import check_schedule
from emelex_workers.overrides import PolicyOverrides
from emelex_workers.pool import recycle, respawn
from emelex_workers.pool import size as sizes
from emelex_workers.pool.child import PoolPlan
from emelex_workers.pool.consumer import Listener, PoolConsumer
from emelex_workers.pool.events import PoolStarted

GRACE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """What a pool may do. None stands for the configuration's value, and for `workers`, for what the machine carries.

    `in_flight` is how many jobs one worker may have waiting for an endpoint at once; a local model has one.
    `grace_seconds` is how long running jobs may go on after the pool was told to stop; `growth_bytes_max` bounds the
    growth of a worker's private memory since its first job; `deaths_max` is how often one worker may die in a row.
    `maintenance` is a schedule of five crontab fields, UTC, on which the pool maintains its store; None is never.
    """

    workers: int | None = None
    model: str | None = None
    threads: int | None = None
    in_flight: int | None = None
    nice: int | None = None
    grace_seconds: float = GRACE_SECONDS
    maintenance: str | None = None
    growth_bytes_max: int = recycle.GROWTH_BYTES_MAX
    deaths_max: int = respawn.DEATHS_MAX

    def check(self) -> None:
        """Raise UsageError naming the first option that is out of range."""
        if self.workers is not None and not 1 <= self.workers <= sizes.WORKERS_MAX:
            raise UsageError(f"{self.workers} workers; it must be 1 to {sizes.WORKERS_MAX}")
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"{self.threads} threads a worker; at least one is needed")
        if self.in_flight is not None and not 1 <= self.in_flight <= limits.IN_FLIGHT_MAX:
            raise UsageError(f"{self.in_flight} jobs in flight; it must be 1 to {limits.IN_FLIGHT_MAX}")
        if self.nice is not None and not 0 <= self.nice <= 19:
            raise UsageError(f"niceness {self.nice}; it must be 0 to 19")
        if not (math.isfinite(self.grace_seconds) and 0 <= self.grace_seconds <= 86_400):
            raise UsageError(f"a grace of {self.grace_seconds} seconds; it must be 0 to 86,400")
        if self.growth_bytes_max < 1 or self.deaths_max < 1:
            raise UsageError("bounds of growth and of deaths must be positive")
        if self.maintenance is not None:
            check_schedule(self.maintenance)


def run_pool(
    home: Home,
    config: Config,
    options: PoolOptions,
    *,
    listen: Listener,
    each_round: Callable[[], None] = lambda: None,
    stop: CancelToken | None = None,
    engines: Callable[[], EngineSource] | None = None,
    clock: Clock = clocks.system_clock,
) -> int:
    """Run a pool until a signal, until `stop` is set, or until its workers cannot work; return the exit code.

    0 when `stop` ended it, 130 after SIGINT, 143 after SIGTERM or SIGHUP (running jobs finished or released uncounted),
    else that of the error which the workers' WorkerFault named. A missing store is made.

    The calling process must have no other thread and no open store: it forks, and forks again whenever a worker died.
    `listen` is called in it, between its rounds, and must not start one; `each_round` is called once a round. `engines`
    takes the configuration's place; it is called in each worker.

    Raises: UsageError; Invalid for a process with threads; ModelUnusable and NotFound for the model; as
    `MemoryStore.open`; and what `listen` raised, when no child is left.
    """
    options.check()
    threads = options.threads or config.worker.threads
    model = None if engines is not None else _resolved(home, config, options)
    in_flight = _in_flight(model, options)
    size = sizes.choose_size(
        sizes.this_machine(),
        workers=options.workers,
        threads=threads,
        weights_bytes=0 if model is None else sizes.weights_bytes(model),
    )
    MemoryStore.open(home, create=True, clock=clock).close()
    plan = PoolPlan(
        home=home,
        clock=clock,
        engines=engines or (lambda: configured_engines(config, home, model=options.model, threads=threads)),
        policy=PolicyOverrides.configured(config.compaction),
        chunking=config.worker.chunking,
        threads=threads,
        in_flight=in_flight,
        nice=config.worker.nice if options.nice is None else options.nice,
        grace_seconds=options.grace_seconds,
        growth_bytes_max=options.growth_bytes_max,
        deaths_max=options.deaths_max,
        maintenance=options.maintenance,
        retention=RetentionPolicy().configured(config.retention),
        parent=os.getpid(),
    )
    # huey's log repeats what its tasks are called with; the pool has its own events, and a program its own handlers.
    logging.getLogger("huey").addHandler(logging.NullHandler())
    consumer = PoolConsumer(_new_huey(), plan, workers=size.workers, listen=listen, each_round=each_round)
    listen(
        PoolStarted(
            pid=plan.parent,
            workers=size.workers,
            threads=size.threads,
            in_flight=in_flight,
            reason=size.reason,
        )
    )
    with (stop or CancelToken()).watched(consumer.request_stop):
        consumer.run()
    return consumer.exit_code


def _resolved(home: Home, config: Config, options: PoolOptions) -> ResolvedModel:
    reference = options.model or config.models.default
    return resolve_model(reference, models_dir=home.models, endpoints=config.models.endpoint)


def _in_flight(model: ResolvedModel | None, options: PoolOptions) -> int:
    """How many jobs a worker may have at once. Raises: UsageError when a local model is to have several."""
    if isinstance(model, ResolvedEndpoint):
        return options.in_flight or model.config.in_flight
    asked = options.in_flight or 1
    if model is not None and asked > 1:
        raise UsageError(
            f"{model.reference} runs in the worker itself, one job at a time",
            hint="only an endpoint: takes several; --workers runs more processes",
        )
    return asked


def _new_huey() -> Huey:
    return Huey("emelex", results=False, serializer=IdentitySerializer(), storage_class=JobTableStorage)
