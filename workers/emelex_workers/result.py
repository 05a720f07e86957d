"""What an attempt at a job made, before it is settled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from emelex_core.db.database import Transaction
from emelex_workers.text.restate import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """`apply` writes the result in the settlement's transaction, `record` says what made it, `usage` what it cost."""

    apply: Callable[[Transaction], None]
    record: dict[str, Any]
    usage: Usage
    knowledge_candidates: int
