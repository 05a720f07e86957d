"""What an attempt at a job made, before it is settled, and what made it (issue 4, item 6)."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from emelex_core.db.database import Transaction
from emelex_core.engine.ports import ChatEngine
from emelex_core.errors import OutputRejected, StorageBusy
from emelex_core.jobs import ledger
from emelex_core.store import MemoryStore
from emelex_queue.records import ClaimedJob
from emelex_workers.certify import abilities
from emelex_workers.remembering import RememberingEngine
from emelex_workers.text.restate import Try, Usage


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


Result = TypeVar("Result")


def tried(store: MemoryStore, job: ClaimedJob, engine: ChatEngine, run: Callable[[Try, ChatEngine], Result]) -> Result:
    """Run one attempt at a job over an engine that remembers; a refusal by the gate is noted for the next one.

    Raises: as `run`.
    """
    able = abilities.of(engine, None if store.home is None else store.home.models)
    this = Try(attempt=job.attempt, refusals=ledger.refusals(store.database, job.id), able=able)
    try:
        return run(this, RememberingEngine(engine, store.database, job.id))
    except OutputRejected:
        with contextlib.suppress(StorageBusy):
            ledger.count_refusal(store.database, job.id)
        raise


def ran(engine: ChatEngine) -> dict[str, Any]:
    """What of an engine decides its output, beside the model: the program with its version and threads, the window."""
    return {"engine": engine.info.engine, "context_tokens": engine.info.context_tokens}


def result_digest(text: str) -> str:
    """The SHA-256 of a result's text, by which a run that is repeated is compared, as 64 lower-case hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()
