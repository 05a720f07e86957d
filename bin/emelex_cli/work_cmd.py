"""`emelex memory work`: a one-shot drain, told line by line (contract, "JSON of the main job").

The module owns these invariants:

- A reader that goes away, and a full disk below stdout, stop the drain like Ctrl-C does: the job is released uncounted.
- The exit code tells what happened in this run: a signal, else 8 when a job became terminal, else 0.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from emelex_cli import durations, shapes
from emelex_cli.call import Call, has_database
from emelex_cli.jobs_cmd import choice
from emelex_cli.output import ReaderGone, one_line, path_text
from emelex_core.clock import iso
from emelex_core.errors import Cancelled, NotFound, Storage, UsageError

if TYPE_CHECKING:
    from emelex_cli.progress import Bar
    from emelex_core.engine.ports import CancelToken
    from emelex_workers.observe.export import Recorder
    from emelex_workers.progress import DrainReport, JobEnded, Listener, WorkEvent

TERMINAL: Final = 8
"""The exit code of a run in which at least one job became terminal."""


def work(
    call: Call,
    *,
    max_jobs: int | None = None,
    max_time: str | None = None,
    kind: str | None = None,
    session: str | None = None,
    model: str | None = None,
    no_chunking: bool = False,
    metrics: str | None = None,
) -> int:
    """Drain the queue; return the exit code of what happened."""
    from emelex_core.jobs.kinds import JobKind
    from emelex_workers.drain import DrainOptions, drain
    from emelex_workers.progress import DrainReport

    wanted = choice(JobKind, kind, "--kind")
    limit = None if max_time is None else durations.seconds(max_time, option="--max-time")
    config = call.config
    recording = nullcontext() if metrics is None else _recording(call, metrics)
    if not has_database(call.home):
        call.out.note(f"nothing is stored yet in {path_text(call.home.root)}")
        _tell(call, DrainReport(**dict.fromkeys(DrainReport.__slots__, 0)))
        return 0
    from emelex_cli.progress import bar
    from emelex_cli.signals import stopping
    from emelex_workers.engines import configured_engines
    from emelex_workers.overrides import PolicyOverrides

    _be_nice(config.worker.nice)
    with stopping() as stop, recording as record, call.writing() as store, bar() as shown:
        options = DrainOptions(
            max_jobs=max_jobs,
            max_seconds=limit,
            kind=wanted,
            session_id=None if session is None else store.get_session(session.lower()).id,
            chunking=config.worker.chunking and not no_chunking,
            policy=PolicyOverrides.configured(config.compaction),
        )
        engines = configured_engines(config, call.home, model=model, threads=None)
        told = _Told(call, shown, stop.token, record)
        try:
            report = drain(store, options, engines=engines, listen=told.hear, stop=stop.token)
        except Cancelled:
            if stop.exit_code is None:
                raise
            return stop.exit_code
    told.finish(report)
    if stop.exit_code is not None:
        return stop.exit_code
    return TERMINAL if report.failed_jobs else 0


@contextmanager
def _recording(call: Call, metrics: str) -> Generator[Listener]:
    """Count what the block tells, and add it to the file when it ends, however it ends.

    Raises: UsageError for what is no path, NotFound for its directory, Storage.
    """
    from emelex_workers.observe.export import Recorder, parse_target

    target = parse_target(metrics).file
    if target is None:
        raise UsageError("a drain ends before anybody could ask it for metrics", hint="--metrics takes a path here")
    path = call.place(str(target))
    if not path.parent.is_dir():
        raise NotFound(f"there is no directory {path.parent}")
    recorder = Recorder(call.home)
    try:
        yield recorder.hear
    except BaseException:
        # The block's own error tells more.
        with suppress(Storage):
            _add_to(path, recorder)
        raise
    _add_to(path, recorder)


def _add_to(path: Path, recorder: Recorder) -> None:
    """The file is read as late as can be: another drain may have added to it meanwhile."""
    recorder.go_on_from(path)
    recorder.write(path)


class _Told:
    """The listener of one drain. A line that cannot be written stops the drain and is raised when it has ended."""

    def __init__(self, call: Call, shown: Bar, stop: CancelToken, record: Listener | None) -> None:
        self._call = call
        self._shown = shown
        self._stop = stop
        self._record = record
        self._ended = 0
        self._unwritten: ReaderGone | Storage | None = None

    def hear(self, event: WorkEvent) -> None:
        """Tell one event. Never raises, so that no lease is left unsettled for the sake of a line."""
        if self._record is not None:
            self._record(event)
        if self._unwritten is not None:
            return
        try:
            self._hear(event)
        except (ReaderGone, Storage) as error:
            self._unwritten = error
            self._stop.cancel()

    def finish(self, report: DrainReport) -> None:
        """Tell the counts. Raises: what could not be written before."""
        if self._unwritten is not None:
            raise self._unwritten
        _tell(self._call, report)

    def _hear(self, event: WorkEvent) -> None:
        from emelex_workers.progress import JobEnded, JobStarted, ModelLoading, PlanningNote

        match event:
            case JobStarted():
                self._line({"type": "job_started", **asdict(event)}, None)
                self._bar(f"{event.kind} of Session {event.session[:8]}", None)
            case JobEnded():
                self._ended += 1
                self._line(ended(event), _sentence(event))
            case ModelLoading():
                self._note_copies()
                self._bar(f"loading {event.reference}", None)
            case PlanningNote() if event.planned or not event.tokens:
                self._shown.pause()
                self._call.out.note(f"Session {event.session[:8]}: {event.reason}")
            case PlanningNote():
                self._bar("measuring Sessions", None)
            case _:
                self._bar(f"job {event.job[:8]}", event.total, event.done)

    def _note_copies(self) -> None:
        """Tell on stderr what the model manager logs: a first run writes a copy of the built-in model."""
        import logging

        class Notes(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                told(record.getMessage())

        def told(message: str) -> None:
            self._shown.pause()
            self._call.out.note(message)

        models = logging.getLogger("emelex_core.models")
        models.setLevel(logging.INFO)
        models.addHandler(Notes())

    def _line(self, record: dict[str, Any], sentence: str | None) -> None:
        out = self._call.out
        if out.json:
            self._shown.pause()
            out.record(record, now=True)
        elif sentence is not None:
            self._shown.pause()
            out.line(sentence)
            out.flush()

    def _bar(self, text: str, total: float | None, done: float = 0) -> None:
        self._shown.update(f"{text} ({self._ended} done)", done=done, total=total)


def ended(event: JobEnded) -> dict[str, Any]:
    """The JSON line of an attempt's end: `job_completed`, `job_retry`, `job_failed` or `job_released`."""
    record: dict[str, Any] = {
        "type": f"job_{event.outcome}",
        "job": event.job,
        "kind": event.kind,
        "session": event.session,
        "attempt": event.attempt,
        "seconds": round(event.seconds, 3),
        "engine_seconds": round(event.engine_seconds, 3),
        "prompt_tokens": event.prompt_tokens,
        "output_tokens": event.output_tokens,
    }
    if event.outcome == "completed":
        record |= {"knowledge_candidates": event.knowledge_candidates, "form": event.form}
    if event.outcome in ("retry", "failed"):
        record |= {"error": event.error, "retry_at": iso(event.retry_at)}
    return record


def _sentence(event: JobEnded) -> str:
    told = (
        f"{event.kind} {event.job[:8]} of Session {event.session[:8]}: {event.outcome} in {event.seconds:.1f} s, "
        f"{event.prompt_tokens} tokens in, {event.output_tokens} out"
    )
    if event.outcome == "retry":
        return f"{told}; again at {shapes.moment(event.retry_at)}: {one_line(event.error or '')}"
    return told if event.error is None else f"{told}: {one_line(event.error)}"


def _tell(call: Call, report: DrainReport) -> None:
    if call.out.json:
        call.out.record({"type": "memory_worker_complete", **asdict(report)}, now=True)
        return
    call.out.line(
        f"{report.compactions} compactions, {report.distillations} distillations, "
        f"{report.knowledge_candidates} Knowledge candidates; {report.retries_scheduled} to retry, "
        f"{report.failed_jobs} failed, {report.released_jobs} released, {report.remaining_jobs} remaining"
    )


def _be_nice(nice: int) -> None:
    """Come down to a niceness; a process that was started with more keeps it."""
    now = os.nice(0)
    if nice > now:
        os.nice(nice - now)
