"""What an attempt at a job made, before it is settled, and what made it (issue 4, item 6)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emelex_core.db.database import Transaction
from emelex_core.engine.ports import ChatEngine
from emelex_workers.text.restate import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """`apply` writes the result in the settlement's transaction, `record` says what made it, `usage` what it cost."""

    apply: Callable[[Transaction], None]
    record: dict[str, Any]
    usage: Usage
    knowledge_candidates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A result as text, a Summary or candidates as JSON, with the record that repeats it. Nothing of it is stored."""

    text: str
    record: dict[str, Any]
    usage: Usage


def ran(engine: ChatEngine) -> dict[str, Any]:
    """What of an engine decides its output, beside the model: the program with its version and threads, the window."""
    return {"engine": engine.info.engine, "context_tokens": engine.info.context_tokens}


def result_digest(text: str) -> str:
    """The SHA-256 of a result's text, by which a run that is repeated is compared, as 64 lower-case hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()
