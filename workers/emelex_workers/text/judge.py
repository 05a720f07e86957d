"""A model's judgement of one line, for models that were certified for it: does it say something that lasts?

The module owns these invariants (issue 8, item 5):

- A call is one line and one word of two under a grammar; what is not exactly one of them keeps the line, since rules
  chose it.
- A judge can only leave out. It never adds, words or ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from emelex_core.engine.ports import CancelToken, ChatEngine, FinishReason, Message, Request, Role
from emelex_core.errors import Cancelled

PROMPT_VERSION: Final = "judge-1"
CALLS_MAX: Final = 24
_KEEP: Final = "keep"
_DROP: Final = "drop"
GRAMMAR: Final = f'root ::= "{_KEEP}" | "{_DROP}"'
_OUTPUT_TOKENS: Final = 8

INSTRUCTION: Final = (
    "You sort single lines of a conversation. Answer keep for a line that states a lasting fact, rule, decision or "
    "preference. Answer drop for small talk, questions, guesses and what is only done now. One word."
)


@dataclass(slots=True)
class Judge:
    """Asks one engine about lines, one call a line."""

    engine: ChatEngine
    cancel: CancelToken
    calls: int = 0
    dropped: int = 0

    def keeps(self, line: str) -> bool:
        """Whether the line stands. Raises: Cancelled; PermanentFailure; EngineFailure."""
        if self.cancel.cancelled:
            raise Cancelled("cancelled while lines were judged")
        if self.calls >= CALLS_MAX:
            return True
        self.calls += 1
        messages = Message(role=Role.SYSTEM, text=INSTRUCTION), Message(role=Role.USER, text=line)
        request = Request(messages=messages, output_tokens_max=_OUTPUT_TOKENS, grammar=GRAMMAR)
        made = self.engine.generate(request, self.cancel)
        drops = made.finish_reason is FinishReason.STOP and made.text.strip() == _DROP
        self.dropped += drops
        return not drops

    def provenance(self) -> dict[str, Any]:
        """Return what repeats this run."""
        return {"prompt_version": PROMPT_VERSION, "calls": self.calls, "dropped": self.dropped}
