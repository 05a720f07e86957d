"""How many workers, and how many threads in each: from cores and free memory (issue 7, item 1; measured.md, "Speed").

One process a core with one thread each gave the most jobs a minute; two threads collapse when anybody else wants a
core. One core stays free for whoever uses the machine. A number that somebody asked for is taken as it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from emelex_core import limits
from emelex_core.models.resolve import ResolvedFile, ResolvedModel

WORKERS_MAX: Final = 64
"""More processes than this on one SQLite file wait for each other's commits."""

_CGROUP: Final = Path("/sys/fs/cgroup")
_WORKER_BYTES: Final = 192 * limits.MIB
"""A Python process with a context of 4,096 tokens, beside the weights: 180 MiB measured with the built-in model."""
_PRIVATE_SHARE: Final = 0.6
"""What a worker needs beside that, as a share of the weights: larger models have larger caches and buffers."""
_MEMORY_SHARE: Final = 0.8
"""Of the free memory; the rest is for whoever uses the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a pool may use: processor cores, and memory in bytes that could be had now."""

    cores: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """How many workers with how many threads each; `reason` says what decided."""

    workers: int
    threads: int
    reason: str


def this_machine() -> Machine:
    """Look at the cores and the memory that this process may use, within its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    free = int(psutil.virtual_memory().available)
    quota, bound = _cpu_quota(), _memory_left()
    return Machine(
        cores=cores if quota is None else max(1, min(cores, int(quota))),
        free_bytes=free if bound is None else min(free, bound),
    )


def choose_size(machine: Machine, *, workers: int | None, threads: int, weights_bytes: int) -> PoolSize:
    """Choose the number of workers, unless one was asked for. Weights are mapped once for all of them."""
    if workers is not None:
        return PoolSize(workers=workers, threads=threads, reason="as asked for")
    by_cores = max(1, (machine.cores - 1) // threads)
    each = _WORKER_BYTES + int(_PRIVATE_SHARE * weights_bytes)
    by_memory = max(1, (int(_MEMORY_SHARE * machine.free_bytes) - weights_bytes) // each)
    count = min(by_cores, by_memory, WORKERS_MAX)
    if by_memory < by_cores:
        reason = f"{machine.free_bytes // limits.MIB} MiB of memory are free and a worker needs {each // limits.MIB}"
    else:
        reason = f"{machine.cores} cores, of which one stays free"
    return PoolSize(workers=count, threads=threads, reason=reason)


def weights_bytes(model: ResolvedModel) -> int:
    """The size of a model's weights in memory; 0 for one that runs elsewhere or cannot be looked at."""
    if not isinstance(model, ResolvedFile):
        return 0
    try:
        size = model.path.stat().st_size
    except OSError:
        return 0
    # The faster copy of the built-in model holds eight bits a weight instead of four and a half.
    return size if model.derived_directory is None else size * 3 // 2


def _cpu_quota() -> float | None:
    """Cores' worth of time that a control group grants (cgroup v2, `cpu.max`), or None."""
    words = _words(_CGROUP / "cpu.max")
    if len(words) != 2 or words[0] == "max":
        return None
    return int(words[0]) / int(words[1])


def _memory_left() -> int | None:
    """Bytes below a control group's bound (cgroup v2, `memory.max`), or None."""
    bound, used = _words(_CGROUP / "memory.max"), _words(_CGROUP / "memory.current")
    if not bound or bound[0] == "max" or not used:
        return None
    return max(0, int(bound[0]) - int(used[0]))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").split()
    except (OSError, ValueError):
        return []
