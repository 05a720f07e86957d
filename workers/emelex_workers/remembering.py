"""An engine that a killed worker's successor does not ask again: each call's end is written down in the job's ledger.

The module owns these invariants:

- A call is remembered under everything that decides its text: messages, bound, grammar, stops, sampling, the exact
  weights, the program that ran them and its window.
- A lock that others hold for long costs the memory of a call, never the call.
- What is remembered is given back as it was, tokens included, but for its seconds, which nobody spent again.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import asdict, replace
from typing import Self

import msgspec

from emelex_core import faults
from emelex_core.db.database import Database
from emelex_core.engine.ports import CancelToken, ChatEngine, EngineInfo, Generation, Message, Request
from emelex_core.errors import StorageBusy
from emelex_core.jobs import ledger


class RememberingEngine:
    """Passes calls on to another engine, unless this job has made them before."""

    def __init__(self, engine: ChatEngine, database: Database, job_id: str) -> None:
        self._engine = engine
        self._database = database
        self._job_id = job_id

    @property
    def info(self) -> EngineInfo:
        """What the engine runs."""
        return self._engine.info

    def count_text(self, text: str) -> int:
        """Tokens of plain text."""
        return self._engine.count_text(text)

    def count_prompt(self, messages: tuple[Message, ...]) -> int:
        """Tokens of the whole prompt."""
        return self._engine.count_prompt(messages)

    def generate(self, request: Request, cancel: CancelToken) -> Generation:
        """Give back what an earlier attempt was given, or run the generation. Raises: as the engine does; Storage."""
        digest = _digest(request, self.info)
        known = ledger.find_call(self._database, self._job_id, digest)
        if known is not None:
            return replace(msgspec.json.decode(known, type=Generation), seconds=0.0)
        made = self._engine.generate(request, cancel)
        with contextlib.suppress(StorageBusy):
            ledger.keep_call(self._database, self._job_id, digest, msgspec.json.encode(made))
        faults.reach("call.kept")
        return made

    def close(self) -> None:
        """Do nothing: whoever loaded the engine closes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _digest(request: Request, info: EngineInfo) -> str:
    decided_by = (asdict(request), info.snapshot_id, info.engine, info.context_tokens)
    return hashlib.sha256(msgspec.json.encode(decided_by, order="deterministic")).hexdigest()
