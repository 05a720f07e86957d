"""`emelex memory compact` and `distill` put a job into the queue; `pause` and `resume` stop and start its claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emelex_cli import shapes
from emelex_cli.call import Call, typed
from emelex_cli.jobs_cmd import choice
from emelex_cli.output import one_line
from emelex_core.errors import Refused

if TYPE_CHECKING:
    from emelex_core.jobs.kinds import JobKind
    from emelex_core.publish import PublishedJob


def compact(call: Call, *, session: str, model: str | None = None, everywhere: bool = False) -> int:
    """Measure a Session with the model's tokenizer and publish its compaction, or say why there is none."""
    from emelex_workers.engines import configured_engines
    from emelex_workers.overrides import PolicyOverrides
    from emelex_workers.planning import PlannedCompaction, plan_session

    config = call.config
    with call.writing() as store:
        found = call.session(store, session, everywhere=everywhere)
        engines = configured_engines(config, call.home, model=model, threads=None)
        outcome = plan_session(store, found.id, engines, PolicyOverrides.configured(config.compaction))
    if isinstance(outcome, PlannedCompaction):
        _published(call, outcome, estimated=outcome.estimated)
    elif call.out.json:
        call.out.record(
            {
                "type": "nothing_to_compact",
                "session": found.id,
                "tokens": outcome.tokens,
                "reason": outcome.reason,
                "estimated": outcome.estimated,
            }
        )
    else:
        call.out.line(f"no compaction: {one_line(outcome.reason)} ({outcome.tokens} tokens)")
    return 0


def distill(call: Call, *, session: str, everywhere: bool = False) -> int:
    """Publish the distillation of what was said in a Session."""
    config = call.config
    if not config.distillation.enabled:
        origin = config.origins["distillation.enabled"]
        raise Refused(f"distillation is turned off here by {origin}")
    with call.writing() as store:
        found = call.session(store, session, everywhere=everywhere)
        job = store.queue_distillation(found.id)
    if job is not None:
        _published(call, job)
    elif call.out.json:
        call.out.record({"type": "nothing_to_distill", "session": found.id, "reason": "nothing was said in it"})
    else:
        call.out.line("nothing to distill: nothing was said in this Session")
    return 0


def pause(call: Call, *, kind: str | None = None, reason: str | None = None) -> int:
    """Stop claims of one kind or of all, and say what is paused. Raises: UsageError, Invalid for the reason."""
    from emelex_queue import pausing

    kinds = _kinds(kind)
    with call.writing() as store:
        standing = pausing.pause(
            store.database, kinds, reason=None if reason is None else typed(reason), clock=store.clock
        )
    for found in standing:
        if found.kind not in kinds:
            continue
        if call.out.json:
            call.out.record({"type": "paused_queue", **shapes.pause(found)})
        else:
            call.out.line(shapes.pause_line(found))
    return 0


def resume(call: Call, *, kind: str | None = None) -> int:
    """Let claims go on, and say of which kinds. Raises: UsageError."""
    from emelex_queue import pausing

    with call.writing() as store:
        resumed = pausing.resume(store.database, _kinds(kind))
    for found in resumed:
        if call.out.json:
            call.out.record({"type": "resumed_queue", "kind": found.value})
        else:
            call.out.line(f"{found} goes on")
    if not resumed:
        call.out.note("nothing was paused")
    return 0


def _kinds(kind: str | None) -> tuple[JobKind, ...]:
    from emelex_core.jobs.kinds import JobKind

    chosen = choice(JobKind, kind, "--kind")
    return tuple(JobKind) if chosen is None else (chosen,)


def _published(call: Call, job: PublishedJob, *, estimated: bool | None = None) -> None:
    if call.out.json:
        call.out.record(shapes.published(job, estimated=estimated))
        return
    state = "queued" if job.created else f"was queued before and is {job.state}"
    call.out.line(f"{job.kind} {job.id} {state}")
    if estimated:
        call.out.note("by an estimate: the model's server has no tokenizer")
    if job.state == "pending":
        call.out.note("`emelex memory work` runs it")
