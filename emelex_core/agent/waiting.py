"""Waiting on the event loop for what a `CancelToken` may end: the token belongs to threads and signal handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from emelex_core.engine.cancel import CancelToken
from emelex_core.errors import Cancelled

Result = TypeVar("Result")


async def unless_cancelled(work: Coroutine[Any, Any, Result], cancel: CancelToken, *, what: str) -> Result:
    """Await `work`; when the token is cancelled first, end it.

    Raises: Cancelled naming `what`; whatever `work` raises. A cancellation of the waiting task itself passes through.
    """
    if cancel.cancelled:
        work.close()
        raise Cancelled(f"{what} was cancelled before it began")
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    with cancel.watched(lambda: _end(loop, task)):
        try:
            return await task
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is not None and waiting.cancelling():
                raise
            raise Cancelled(f"{what} was cancelled") from None


async def cancelled(cancel: CancelToken) -> None:
    """Return when the token is cancelled."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    with cancel.watched(lambda: _wake(loop, asked)):
        await asked.wait()


def _end(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    # Only appends to the loop's queue and wakes it, so it may run inside a signal handler.
    loop.call_soon_threadsafe(task.cancel)


def _wake(loop: asyncio.AbstractEventLoop, asked: asyncio.Event) -> None:
    loop.call_soon_threadsafe(asked.set)
