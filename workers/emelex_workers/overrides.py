"""What a configuration says of the compaction policy, before a model's own window is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from emelex_core.compaction_policy import CompactionPolicy
    from emelex_core.config import Compaction
    from emelex_workers.engines import EngineSource


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOverrides:
    """None stands for the default, and for the context, the model's own.

    A user may state more than that, for a chat's larger model; `context_capped` says that a project did, who may not.
    """

    context_tokens: int | None = None
    context_capped: bool = False
    trigger_percent: int | None = None
    target_percent: int | None = None
    keep_turns: int | None = None

    @classmethod
    def configured(cls, compaction: Compaction) -> Self:
        """What a configuration's `[compaction]` states."""
        return cls(
            context_tokens=compaction.context_tokens,
            context_capped=compaction.context_capped,
            trigger_percent=compaction.trigger_percent,
            target_percent=compaction.target_percent,
            keep_turns=compaction.keep_turns,
        )

    def policy(self, engines: EngineSource) -> CompactionPolicy:
        """The policy for one model. Raises: Invalid for percentages or turns out of range."""
        from emelex_core.compaction_policy import CompactionPolicy

        stated = {
            "trigger_percent": self.trigger_percent,
            "target_percent": self.target_percent,
            "keep_turns": self.keep_turns,
        }
        chosen = {name: value for name, value in stated.items() if value is not None}
        own = engines.context_tokens()
        context_tokens = own if self.context_tokens is None else self.context_tokens
        if self.context_capped:
            context_tokens = min(context_tokens, own)
        return CompactionPolicy(context_tokens=context_tokens, **chosen)
