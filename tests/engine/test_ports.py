"""The cancel token: whoever watches is told once it is set, whenever that is."""

from __future__ import annotations

import signal
import threading

import pytest

from emelex_core.engine import CancelToken


def test_a_watcher_is_told_while_its_block_lasts() -> None:
    token = CancelToken()
    told: list[str] = []
    with token.watched(lambda: told.append("before")):
        pass
    with token.watched(lambda: told.append("outer")), token.watched(lambda: told.append("inner")):
        assert told == []
        token.cancel()
        assert told == ["outer", "inner"]
    assert token.cancelled


def test_a_late_watcher_is_told_at_once() -> None:
    token = CancelToken()
    token.cancel()
    told: list[str] = []
    with token.watched(lambda: told.append("late")):
        assert told == ["late"]


def test_a_watcher_leaves_with_an_exception() -> None:
    token = CancelToken()
    told: list[str] = []
    with pytest.raises(KeyError), token.watched(lambda: told.append("gone")):
        raise KeyError
    token.cancel()
    assert told == []


def test_waiting_ends_with_the_cancellation() -> None:
    token = CancelToken()
    assert not token.wait(0)
    thread = threading.Thread(target=token.cancel)
    thread.start()
    assert token.wait(10)
    thread.join()


def test_all_who_wait_are_let_go() -> None:
    token = CancelToken()
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(token.wait(30))) for _ in range(4)]
    for thread in threads:
        thread.start()
    token.cancel()
    token.cancel()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
    assert token.wait(30)


def test_a_signal_handler_may_cancel_what_the_main_thread_waits_for() -> None:
    """167: at whatever point of the wait the signal comes; an Event's own lock stood still for ever here."""
    token = CancelToken()
    before = signal.signal(signal.SIGALRM, lambda *_: token.cancel())
    try:
        for round_ in range(3_000):
            token = CancelToken()
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + (round_ % 37) * 1e-5)
            while not token.wait(0.00005):
                pass
    finally:
        signal.signal(signal.SIGALRM, before)
