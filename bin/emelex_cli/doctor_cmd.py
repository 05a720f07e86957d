"""`emelex doctor`, first form: what Emelex memory needs of this machine. It looks and changes nothing.

The module owns these invariants:

- Each check tells ok, warn or fail with a fact; a check that breaks is a fail of its own and stops no other.
- The native library is asked in a process of its own: built for another processor, it would take ours down.
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from emelex_cli import sqlite_release
from emelex_cli.call import Call, has_database
from emelex_cli.output import counted, one_line, path_text
from emelex_cli.shapes import size
from emelex_core import home as homes
from emelex_core import limits
from emelex_core.db.filesystem import NETWORK
from emelex_core.errors import EmelexError

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"

_PYTHON_MIN: Final = (3, 11)
_PASSING: Final = frozenset({"tmpfs", "ramfs"})
_FREE_BYTES_FAIL: Final = 64 * limits.MIB
_FREE_BYTES_WARN: Final = 1024 * limits.MIB
_MEMORY_BYTES_WARN: Final = 768 * limits.MIB
"""The built-in model takes about 340 MB with a full context (measured.md)."""
_PROBE_SECONDS: Final = 60
_PROBE: Final = (
    "from emelex_core.engine import native\n"
    "library = native.bindings()\n"
    "print(native.version())\n"
    "print(library.llama_print_system_info().decode('utf-8', 'replace'))\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the report. `state` is ok, warn or fail."""

    name: str
    state: str
    detail: str
    hint: str | None = None


def doctor(call: Call) -> int:
    """Print every check; return 1 when one fails."""
    found: list[Check] = []
    for check in (_python, _sqlite, _config, _home, _database, _file_system, _cores, _memory, _model, _engine):
        for result in _tried(check, call):
            found.append(result)
            if not call.out.json:
                _tell(call, result)
                call.out.flush()
    failed = any(check.state == FAIL for check in found)
    if call.out.json:
        call.out.record({"ok": not failed, "checks": [asdict(check) for check in found]})
    return 1 if failed else 0


def _tried(check: Callable[[Call], Iterator[Check]], call: Call) -> Iterator[Check]:
    name = check.__name__.removeprefix("_").replace("_", " ")
    try:
        yield from check(call)
    except EmelexError as error:
        yield Check(name=name, state=FAIL, detail=error.message, hint=error.hint)
    except (OSError, subprocess.SubprocessError) as error:
        yield Check(name=name, state=FAIL, detail=f"it cannot be told: {error}")


def _tell(call: Call, check: Check) -> None:
    call.out.line(f"{check.state:4}  {check.name:12} {one_line(check.detail)}")
    if check.hint is not None:
        call.out.line(f"{'':19}hint: {one_line(check.hint)}")


def _python(call: Call) -> Iterator[Check]:
    del call
    state = OK if sys.version_info >= _PYTHON_MIN else FAIL
    yield Check(name="python", state=state, detail=f"{platform.python_version()} on {platform.machine()}")


def _sqlite(call: Call) -> Iterator[Check]:
    del call
    import apsw

    version = apsw.sqlite_lib_version()
    fault = sqlite_release.fault(version)
    yield Check(
        name="sqlite",
        state=OK if fault is None else WARN,
        detail=fault or f"{version}, with apsw {apsw.apsw_version()}",
    )


def _config(call: Call) -> Iterator[Check]:
    changed = sorted(key for key, origin in call.config.origins.items() if origin != "default")
    yield Check(name="config", state=OK, detail=f"set: {', '.join(changed)}" if changed else "all defaults")


def _home(call: Call) -> Iterator[Check]:
    root = call.home.root
    if not os.path.lexists(root):
        yield Check(name="home", state=OK, detail=f"{path_text(root)} does not exist yet; the first import makes it")
        return
    homes.check_directory(root)
    mode = stat.S_IMODE(root.stat().st_mode)
    private = mode == homes.PRIVATE_DIRECTORY
    yield Check(
        name="home",
        state=OK if private else WARN,
        detail=f"{path_text(root)}, mode {mode:04o}",
        hint=None if private else f"chmod 700 {path_text(root)}",
    )


def _database(call: Call) -> Iterator[Check]:
    if not has_database(call.home):
        yield Check(name="database", state=OK, detail="none yet")
        return
    with call.must_read() as store:
        totals = store.totals()
    detail = f"schema {totals.schema_version}, {counted(totals.sessions, 'Session')}, {size(totals.database_bytes)}"
    yield Check(name="database", state=OK, detail=detail)


def _file_system(call: Call) -> Iterator[Check]:
    import psutil

    place = next(place for place in (call.home.root, *call.home.root.parents) if place.exists())
    mounted = [mount for mount in psutil.disk_partitions(all=True) if place.is_relative_to(mount.mountpoint)]
    kind = max(mounted, key=lambda mount: len(mount.mountpoint)).fstype if mounted else "unknown"
    free = shutil.disk_usage(place).free
    detail = f"{kind}, {size(free)} free"
    if kind in NETWORK:
        hint = "keep the Home on a local file system: --home or EMELEX_HOME"
        yield Check(name="file system", state=FAIL, detail=f"{detail}; it is a network file system", hint=hint)
    elif free < _FREE_BYTES_FAIL:
        yield Check(name="file system", state=FAIL, detail=f"{detail}; that is too little")
    elif free < _FREE_BYTES_WARN or kind in _PASSING:
        why = "what is there is gone after a restart" if kind in _PASSING else "that is little"
        yield Check(name="file system", state=WARN, detail=f"{detail}; {why}")
    else:
        yield Check(name="file system", state=OK, detail=detail)


def _cores(call: Call) -> Iterator[Check]:
    import psutil

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1
    threads = call.config.worker.threads
    if threads >= usable > 1 or threads > usable:
        detail = f"{usable} usable, all of them given to inference ({threads} threads)"
        yield Check(name="cores", state=WARN, detail=detail, hint="lower worker.threads: leave one core free")
    else:
        yield Check(name="cores", state=OK, detail=f"{usable} usable, {threads} for inference")


def _memory(call: Call) -> Iterator[Check]:
    del call
    import psutil

    memory = psutil.virtual_memory()
    state = OK if memory.available >= _MEMORY_BYTES_WARN else WARN
    yield Check(name="memory", state=state, detail=f"{size(memory.available)} available of {size(memory.total)}")


def _model(call: Call) -> Iterator[Check]:
    from emelex_core.models import files
    from emelex_core.models.resolve import ResolvedFile, resolve_model

    models = call.config.models
    resolved = resolve_model(models.default, models_dir=call.home.models, endpoints=models.endpoint)
    if isinstance(resolved, ResolvedFile):
        verified = files.verify(resolved.path, resolved.sha256, hint=resolved.hint)
        detail = f"{resolved.reference}, {size(verified.size)}, sha256 {verified.sha256}, as it must be"
        yield Check(name="model", state=OK, detail=detail)
    else:
        detail = f"{resolved.reference} at {resolved.config.base_url} (not asked)"
        yield Check(name="model", state=OK, detail=detail)


def _engine(call: Call) -> Iterator[Check]:
    """Load the native library in a child and read which instructions it was built for."""
    del call
    probe = subprocess.run(
        [sys.executable, "-P", "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
    )
    if probe.returncode < 0:
        detail = f"llama.cpp ends by signal {-probe.returncode} when it is loaded: built for another processor?"
        yield Check(
            name="engine", state=FAIL, detail=detail, hint="install llama-cpp-python again, built on this machine"
        )
        return
    lines = probe.stdout.splitlines()
    if probe.returncode or len(lines) < 2:
        last = (probe.stderr.strip().splitlines() or ["it says nothing"])[-1]
        yield Check(name="engine", state=FAIL, detail=f"llama.cpp cannot be loaded: {last}")
        return
    built = [word.strip() for word in lines[1].replace("|", ":").split(":")]
    used = [word.removesuffix(" = 1") for word in built if word.endswith(" = 1")]
    missing = sorted(_processor_flags() & {"avx2", "fma", "f16c"} - {word.lower() for word in used})
    detail = f"llama.cpp {lines[0]}, built with {' '.join(used) or 'no extensions'}"
    if missing:
        hint = "build llama-cpp-python with them: prompts are read several times as fast"
        yield Check(name="engine", state=WARN, detail=f"{detail}; without {' '.join(missing)}", hint=hint)
    else:
        yield Check(name="engine", state=OK, detail=detail)


def _processor_flags() -> set[str]:
    """The processor's instruction sets, by their Linux names; empty where that cannot be read."""
    try:
        text = Path("/proc/cpuinfo").read_text("ascii", "replace")
    except OSError:
        return set()
    lines = (line.partition(":")[2] for line in text.splitlines() if line.startswith("flags"))
    return set(next(lines, "").split())
