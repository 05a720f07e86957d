"""What holds for every test: the processes that it started end with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from processes import end_all


@pytest.fixture(autouse=True)
def processes_end() -> Iterator[None]:
    yield
    end_all()
