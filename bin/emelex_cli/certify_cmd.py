"""`emelex models verify --certify`: put a model through the trials, keep the certificate, and say what it earned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emelex_cli.call import Call

if TYPE_CHECKING:
    from emelex_core.models.certificates import Certificate, Grade


def certify(call: Call, reference: str) -> None:
    """Run every trial with one thread, as a job would. Raises: ModelUnusable, EngineFailure, Storage."""
    from emelex_cli.progress import bar
    from emelex_core.clock import system_clock
    from emelex_core.engine.ports import CancelToken
    from emelex_core.models import certificates
    from emelex_workers.certify.judging import certify as judged
    from emelex_workers.engines import configured_engines

    with bar() as shown, configured_engines(call.config, call.home, model=reference, threads=1).load() as engine:
        made = judged(
            engine,
            clock=system_clock,
            cancel=CancelToken(),
            tell=lambda done, total: shown.update(f"certifying {reference}", done=done, total=total),
        )
        shown.pause()
    certificates.write(call.home.models, made)
    _tell(call, reference, made)


def _tell(call: Call, reference: str, made: Certificate) -> None:
    if call.out.json:
        call.out.record(
            {
                "type": "certified_model",
                "reference": reference,
                "snapshot": made.snapshot_id,
                "engine": made.engine,
                "words": _shape(made.words),
                "judges": _shape(made.judges),
                "writes": _shape(made.writes),
            }
        )
        return
    for ability, grade in (("words", made.words), ("judges", made.judges), ("writes", made.writes)):
        call.out.line(f"      {ability:6}  {grade.form or 'no':12}  {grade.good} of {grade.trials}")


def _shape(grade: Grade) -> dict[str, object]:
    return {"form": grade.form, "good": grade.good, "trials": grade.trials}
