"""CompactionPolicy: when a Session is too long for its model, and where to cut (behaviours 114 to 118, 175, 176).

Sizes are real tokens of the model's own tokenizer. Pure: it sees numbers, never the database. "Nothing to gain" is an
answer, and no job is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from emelex_core import limits
from emelex_core.errors import Invalid

_SUMMARY_TOKENS_MIN: Final = 64
"""A Summary below this says too little to replace a history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSize:
    """One atomic turn past the newest Summary: its last sequence, and its tokens as the model would read it."""

    last_sequence: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """Compact events 1 to `through_sequence` into at most `target_tokens`; `kept_tokens` stay raw behind it."""

    through_sequence: int
    target_tokens: int
    session_tokens: int
    kept_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """Compact at `trigger_percent` of the context window down to `target_percent`, keeping the newest turns whole."""

    context_tokens: int
    trigger_percent: int = limits.COMPACTION_TRIGGER_PERCENT
    target_percent: int = limits.COMPACTION_TARGET_PERCENT
    keep_turns: int = limits.COMPACTION_KEEP_TURNS

    def __post_init__(self) -> None:
        if self.context_tokens < 1:
            raise Invalid(f"context_tokens is {self.context_tokens}; it must be positive")
        if not 0 < self.target_percent < self.trigger_percent <= 100:
            raise Invalid("the target must be below the trigger, and both within 1 to 100 percent")
        if not 1 <= self.keep_turns <= limits.COMPACTION_KEEP_TURNS_MAX:
            raise Invalid(f"keep_turns must be 1 to {limits.COMPACTION_KEEP_TURNS_MAX}")

    @property
    def trigger_tokens(self) -> int:
        """Due at this size: the percentage of the context, rounded up."""
        return -(-self.context_tokens * self.trigger_percent // 100)

    @property
    def target_tokens(self) -> int:
        """The size to come down to: the percentage of the context, rounded down."""
        return self.context_tokens * self.target_percent // 100

    def plan(self, turns: Sequence[TurnSize], *, carried_tokens: int = 0) -> CompactionPlan | None:
        """Choose a boundary, or None when nothing is due or nothing can be gained.

        `turns` are the removable turns in order, those after the newest Summary; `carried_tokens` is what stands before
        them (that Summary and the turns between it and its boundary) and is folded into the new one. The boundary keeps
        as many newest turns as the target allows beside a Summary, and never fewer than `keep_turns`.
        """
        total = carried_tokens + sum(turn.tokens for turn in turns)
        if total < self.trigger_tokens or len(turns) <= self.keep_turns:
            return None
        kept = sum(turn.tokens for turn in turns[-self.keep_turns :])
        room = self.target_tokens - kept
        if room < _SUMMARY_TOKENS_MIN:
            return None
        reserve = min(limits.OUTPUT_TOKENS_MAX, max(_SUMMARY_TOKENS_MIN, self.target_tokens // 4), room)
        cut = len(turns) - self.keep_turns
        while cut > 1 and kept + turns[cut - 1].tokens + reserve <= self.target_tokens:
            cut -= 1
            kept += turns[cut].tokens
        return CompactionPlan(
            through_sequence=turns[cut - 1].last_sequence,
            target_tokens=reserve,
            session_tokens=total,
            kept_tokens=kept,
        )
