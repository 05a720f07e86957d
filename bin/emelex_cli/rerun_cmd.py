"""`emelex memory jobs rerun JOB --dry-run`: a completed job beside what a model makes of it now (issue 4, item 6)."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from emelex_cli.call import Call
from emelex_cli.output import neutralise, one_line, to_json
from emelex_core.errors import Cancelled, UsageError

if TYPE_CHECKING:
    from emelex_workers.rerun import Difference


def rerun(call: Call, *, job: str, model: str | None = None, dry_run: bool = False) -> int:
    """Run a completed job again without storing anything, and print how the results differ."""
    if not dry_run:
        raise UsageError("a completed job is only compared, never replaced", hint="add --dry-run")
    from emelex_cli.signals import stopping
    from emelex_workers.engines import configured_engines
    from emelex_workers.rerun import reference_of
    from emelex_workers.rerun import rerun as compare

    with call.must_read() as store, stopping() as stop:
        reference = model or reference_of(store, job.lower())
        engines = configured_engines(call.config, call.home, model=reference)
        try:
            found = compare(store, job.lower(), engines, cancel=stop.token)
        except Cancelled:
            if stop.exit_code is None:
                raise
            return stop.exit_code
    if call.out.json:
        call.out.record({"type": "rerun_job", **asdict(found)})
    else:
        _tell(call, found, reference)
    return 0


def _tell(call: Call, found: Difference, reference: str) -> None:
    call.out.line(
        f"{found.kind} {found.job_id} with {one_line(reference)}: "
        + ("the same, byte for byte" if found.same else "another result")
    )
    for change in found.changed:
        call.out.line(f"  {change.field}: {_plain(change.then)} -> {_plain(change.now)}")
    if found.then is None:
        call.out.note("the stored result is not there any more as it was made; this is the new one")
        call.out.line(neutralise(found.now))
    for line in found.lines:
        call.out.line(one_line(line))


def _plain(value: object) -> str:
    return "-" if value is None else one_line(value) if isinstance(value, str) else neutralise(to_json(value))
