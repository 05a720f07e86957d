"""Events as log lines: JSON under a supervisor, readable on a terminal, and never a word of any message.

A line names jobs and Sessions by id. Why a job failed stands in its diagnostic (`emelex memory jobs show`): diagnostics
are masked, yet may quote what a model wrote, so that a log keeps only that there is one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from emelex_core.clock import iso
from emelex_workers.pool.events import PoolEvent, WorkerEnded, WorkerFault

SUPERVISED_BY: Final = ("NOTIFY_SOCKET", "JOURNAL_STREAM", "SUPERVISOR_ENABLED", "EMELEX_LOG_JSON")
"""Variables that service managers set for what they run; the last one is for those that set none."""
_WITHHELD: Final = frozenset({"error"})
_ERRORS: Final = frozenset({"killed", "failed"})
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def is_supervised(environment: Mapping[str, str] | None = None) -> bool:
    """Whether a service manager reads what this process logs."""
    given = os.environ if environment is None else environment
    return any(given.get(name) for name in SUPERVISED_BY)


def line(event: PoolEvent, *, now: int, as_json: bool) -> str:
    """One log line for an event. `now` is in milliseconds."""
    record = fields(event)
    name = _CAPITAL.sub("_", type(event).__name__).lower()
    if as_json:
        return json.dumps({"at": iso(now), "level": level(event), "event": name, **record}, separators=(",", ":"))
    told = " ".join(f"{key}={_word(value)}" for key, value in record.items() if value is not None)
    return f"{iso(now)} {level(event):7} {name} {told}".rstrip()


def fields(event: PoolEvent) -> dict[str, Any]:
    """What a log may know of an event: everything but the texts that may quote a transcript."""
    record = {key: _rounded(value) for key, value in asdict(event).items() if key not in _WITHHELD}
    if getattr(event, "error", None) is not None:
        record["has_diagnostic"] = True
    return record


def level(event: PoolEvent) -> str:
    """info, warning or error."""
    if isinstance(event, WorkerFault) or (isinstance(event, WorkerEnded) and event.why in _ERRORS):
        return "error"
    return {"failed": "error", "retry": "warning"}.get(getattr(event, "outcome", ""), "info")


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def _word(value: Any) -> str:
    text = _UNSAFE.sub("?", str(value))
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text
