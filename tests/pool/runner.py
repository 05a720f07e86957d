"""Run a real pool in this process, as a specification says; its events go to stdout, one JSON object a line.

    python -P runner.py '{"home": …, "options": {…}, "limits": {…}, "real": false}'

With `"drain": true` it is one drain instead, which SIGTERM stops. With `"clock"` the time is what that file says, and
each look for a slot of maintenance and each run is written to the file `log`.

The work of a job is one model call. The scripted model does what the Session's title says:

    quick · hold S · deaf S · die SIGNAL · fail · permanent · fault · grow MIB · locked (once the file `gate` is there)

With `"source": "builtin"` the real model evaluates the title, or for `long prompt` some 2,700 and for `short prompt`
650 tokens; with `"real": true`
the work is the real one, too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from emelex_core import limits

SPEC = json.loads(sys.argv[1])
for _name, _value in SPEC.get("limits", {}).items():
    # Before the workers are imported: some of them take a limit as a default.
    setattr(limits, _name, _value)

from emelex_core import config, home  # noqa: E402 - below the limits
from emelex_core.clock import system_clock  # noqa: E402 - below the limits
from emelex_core.engine.ports import CancelToken, ChatEngine, FinishReason, Generation, Message, Request, Role  # noqa: E402 - below the limits
from emelex_core.errors import Cancelled, EmelexError, EngineFailure, ModelUnusable, PermanentFailure, StorageBusy  # noqa: E402 - below the limits
from emelex_core.store import MemoryStore  # noqa: E402 - below the limits
from emelex_queue.lease import JobLease  # noqa: E402 - below the limits
from emelex_workers import attempt as attempts  # noqa: E402 - below the limits
from emelex_workers import maintain  # noqa: E402 - below the limits
from emelex_workers.drain import DrainOptions, drain  # noqa: E402 - below the limits
from emelex_workers.pool import scheduler  # noqa: E402 - below the limits
from emelex_workers.pool.run import PoolOptions, run_pool  # noqa: E402 - below the limits
from emelex_workers.progress import JobEnded, Listener  # noqa: E402 - below the limits
from emelex_workers.result import JobResult  # noqa: E402 - below the limits
from emelex_workers.text.restate import Usage  # noqa: E402 - below the limits
from scripted import ScriptedEngine, ScriptedSource  # noqa: E402 - below the limits

KEPT: list[bytearray] = []


def work(store: MemoryStore, lease: JobLease, engine: ChatEngine, cancel: CancelToken, *, chunking: bool) -> JobResult:
    """One model call, or none with `"noop": true`."""
    del chunking
    if SPEC.get("noop"):
        return result(lease)
    title = store.get_session(lease.job.session_id).title
    repeats = {"long prompt": 250, "short prompt": 60}.get(title)
    text = title if repeats is None else "The keeper counted the ships that passed the light. " * repeats
    engine.generate(Request(messages=(Message(role=Role.USER, text=text),), output_tokens_max=8), cancel)
    return result(lease)


def result(lease: JobLease) -> JobResult:
    """Nothing to write but who did it."""
    return JobResult(
        apply=lambda transaction: None,
        record={"pid": os.getpid(), "attempt": lease.job.attempt},
        usage=Usage(),
        knowledge_candidates=0,
    )


def write(request: Request, cancel: CancelToken) -> Generation:
    """Do what the title says."""
    verb, _, argument = request.messages[0].text.partition(" ")
    log(f"inside {verb}")
    if verb == "hold" and cancel.wait(float(argument)):
        log("cancelled")
        raise Cancelled("the generation was cancelled")
    if verb == "quick" and cancel.wait(random.uniform(0.001, 0.02)):
        raise Cancelled("the generation was cancelled")
    if verb == "deaf":
        time.sleep(float(argument))
    if verb == "die":
        os.kill(os.getpid(), signal.Signals[argument])
        time.sleep(60)
    if verb == "fail":
        raise EngineFailure("the scripted engine failed")
    if verb == "permanent":
        raise PermanentFailure("the scripted source never fits")
    if verb == "fault":
        raise ValueError("a fault in the job's code")
    if verb == "locked":
        while not Path(SPEC["gate"]).exists():
            if cancel.wait(0.01):
                raise Cancelled("the generation was cancelled")
        raise StorageBusy("the scripted database is locked")
    if verb == "grow":
        KEPT.append(bytearray(os.urandom(1) * (int(argument) << 20)))
    return Generation(text="", finish_reason=FinishReason.STOP, prompt_tokens=1, output_tokens=1, seconds=0.0)


def log(line: str) -> None:
    """Append one line that survives this process."""
    if "log" in SPEC:
        descriptor = os.open(SPEC["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{os.getpid()} {line}\n".encode())
        os.close(descriptor)


class Unusable(ScriptedSource):
    """A model that cannot be loaded."""

    def load(self) -> ScriptedEngine:
        raise ModelUnusable("the scripted weights are gone", hint="get them again")


class Mortal(ScriptedSource):
    """A model that kills whoever loads it."""

    def load(self) -> ScriptedEngine:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().load()


SOURCES = {"scripted": ScriptedSource, "unusable": Unusable, "mortal": Mortal, "builtin": None}


def _scripted(source: type[ScriptedSource]) -> ScriptedSource:
    return source(ScriptedEngine(write=write))


def told_time() -> int:
    """The instant that a file says: all pools have the same, and a test moves it."""
    return int(Path(SPEC["clock"]).read_text())


def watch_maintenance() -> None:
    """Look for slots often, and log each look when it is over, and each run."""
    look, run = maintain.run_due, maintain._run

    def looked(store: MemoryStore, **options: object) -> object:
        found = look(store, **options)
        log("looked")
        return found

    def ran(store: MemoryStore, *arguments: object, **options: object) -> object:
        log("maintained")
        return run(store, *arguments, **options)

    maintain.run_due, maintain._run = looked, ran
    scheduler.Keeper = partial(maintain.Keeper, look_seconds=0.02)


def drained(place: home.Home, listen: Listener, stop: CancelToken) -> int:
    """Run one drain with the scripted model; SIGTERM stops it."""
    signal.signal(signal.SIGTERM, lambda number, frame: stop.cancel())
    with MemoryStore.open(place) as store:
        drain(store, DrainOptions(), engines=_scripted(ScriptedSource), listen=listen, stop=stop)
    return 0


def main() -> int:
    """Run the pool and return its exit code."""
    place = home.locate(SPEC["home"])
    stop = CancelToken()
    ended = 0

    def listen(event: object) -> None:
        nonlocal ended
        sys.stdout.write(json.dumps({"event": type(event).__name__, "at": time.monotonic(), **asdict(event)}) + "\n")
        sys.stdout.flush()
        ended += isinstance(event, JobEnded)
        if ended >= SPEC.get("stop_after", float("inf")):
            stop.cancel()
        if ended >= SPEC.get("break_after", float("inf")):
            raise BrokenPipeError

    engines = None
    if not SPEC.get("real"):
        attempts._work = work
    if "clock" in SPEC:
        watch_maintenance()
    source = None if SPEC.get("real") else SOURCES[SPEC.get("source", "scripted")]
    if source is not None:
        engines = partial(_scripted, source)
    try:
        if SPEC.get("drain"):
            return drained(place, listen, stop)
        return run_pool(
            place,
            config.load(place, environment={}),
            PoolOptions(**SPEC.get("options", {})),
            listen=listen,
            stop=stop,
            engines=engines,
            clock=told_time if "clock" in SPEC else system_clock,
        )
    except BrokenPipeError:
        return 0
    except EmelexError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
