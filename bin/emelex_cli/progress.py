"""A progress bar on stderr, where a person can see one; rich is imported for nobody else."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from emelex_cli.output import one_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar(Protocol):
    """What long work tells of itself."""

    def update(self, text: str, *, done: float, total: float | None) -> None:
        """Say what is going on, and how much of it is done."""
        ...

    def pause(self) -> None:
        """Take the bar away, so that a line can be written; the next update brings it back."""
        ...


class _Silent:
    def update(self, text: str, *, done: float, total: float | None) -> None:
        del text, done, total

    def pause(self) -> None:
        return


class _Shown:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._runs = False

    def update(self, text: str, *, done: float, total: float | None) -> None:
        self._progress.update(self._task, description=one_line(text)[:60], completed=done, total=total)
        if not self._runs:
            self._progress.start()
            self._runs = True

    def pause(self) -> None:
        if self._runs:
            self._progress.stop()
            self._runs = False


@contextmanager
def bar() -> Generator[Bar]:
    """Show a bar while the block lasts when stderr is a terminal that can move its cursor; else show nothing."""
    if not can_show():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    # Markup is off: a title may hold square brackets.
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    progress = Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    shown = _Shown(progress, progress.add_task("", total=None))
    try:
        yield shown
    finally:
        shown.pause()


def can_show() -> bool:
    """Whether stderr is a terminal that can move its cursor."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
