"""An engine that keeps count of what a job cost, also of one that was broken off, and tells how far it is.

The rooms that make Summaries and Knowledge know nothing of it; they see a `ChatEngine`. Each call is a sign of life
(issue 7, watchdog and progress).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Self

from emelex_core.engine.ports import CancelToken, ChatEngine, EngineInfo, Generation, Message, Request
from emelex_workers.progress import JobStep

_SECONDS_BETWEEN: Final = 1.0


class MeteredEngine:
    """Passes everything on to another engine. `tell` gets a JobStep at most once a second.

    `seconds` is the time inside generations, that of a cancelled one included; `prompt_tokens` and `output_tokens` are
    the engine's own counts of those that came to an end.
    """

    def __init__(
        self, engine: ChatEngine, job: str, *, calls_max: int, tell: Callable[[JobStep], None] | None = None
    ) -> None:
        self._engine = engine
        self._job = job
        self._calls_max = calls_max
        self._tell = tell
        self._calls = 0
        self._due = time.monotonic() + _SECONDS_BETWEEN
        self.seconds = 0.0
        self.prompt_tokens = 0
        self.output_tokens = 0

    @property
    def info(self) -> EngineInfo:
        """What the engine runs."""
        return self._engine.info

    def count_text(self, text: str) -> int:
        """Tokens of plain text."""
        self._live()
        return self._engine.count_text(text)

    def count_prompt(self, messages: tuple[Message, ...]) -> int:
        """Tokens of the whole prompt."""
        self._live()
        return self._engine.count_prompt(messages)

    def generate(self, request: Request, cancel: CancelToken) -> Generation:
        """Run one generation. Raises: as the engine does."""
        began = time.monotonic()
        try:
            made = self._engine.generate(request, cancel)
        finally:
            self.seconds += time.monotonic() - began
        self.prompt_tokens += made.prompt_tokens
        self.output_tokens += made.output_tokens
        self._calls += 1
        self._live()
        return made

    def close(self) -> None:
        """Do nothing: whoever loaded the engine closes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _live(self) -> None:
        now = time.monotonic()
        if self._tell is not None and now >= self._due:
            self._due = now + _SECONDS_BETWEEN
            self._tell(JobStep(job=self._job, done=min(self._calls, self._calls_max), total=self._calls_max))
