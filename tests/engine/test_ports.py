"""The cancel token: whoever watches is told once it is set, whenever that is."""

from __future__ import annotations

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
