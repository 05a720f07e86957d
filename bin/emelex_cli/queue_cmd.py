"""`emelex memory compact` and `distill`: plan and publish a job; `work` runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emelex_cli import shapes
from emelex_cli.call import Call
from emelex_cli.output import one_line
from emelex_core.errors import Refused

if TYPE_CHECKING:
    from emelex_core.publish import PublishedJob


def compact(call: Call, *, session: str, model: str | None = None, everywhere: bool = False) -> int:
    """Measure a Session with the model's tokenizer and publish its compaction, or say why there is none."""
    from emelex_cli.work_cmd import policy
    from emelex_core.publish import PublishedJob
    from emelex_workers.engines import configured_engines
    from emelex_workers.planning import plan_session

    config = call.config
    with call.writing() as store:
        found = call.session(store, session, everywhere=everywhere)
        engines = configured_engines(config, call.home, model=model, threads=None)
        outcome = plan_session(store, found.id, engines, policy(config))
    if isinstance(outcome, PublishedJob):
        _published(call, outcome)
    elif call.out.json:
        call.out.record(
            {"type": "nothing_to_compact", "session": found.id, "tokens": outcome.tokens, "reason": outcome.reason}
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


def _published(call: Call, job: PublishedJob) -> None:
    if call.out.json:
        call.out.record(shapes.published(job))
        return
    state = "queued" if job.created else f"was queued before and is {job.state}"
    call.out.line(f"{job.kind} {job.id} {state}")
    if job.state == "pending":
        call.out.note("`emelex memory work` runs it")
