"""What holds for every test: the processes that it started end with it, and it collects its own garbage only."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from processes import end_all

if TYPE_CHECKING:
    from emelex_core.engine.ports import ChatEngine


@pytest.fixture(autouse=True)
def processes_end() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture(autouse=True)
def older_objects_rest() -> Iterator[None]:
    """Set aside what other tests have left: a test that drops leases collects hundreds of times, half a second each."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def builtin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatEngine]:
    """The real built-in model, one thread, as a worker runs it."""
    from emelex_core.models.load import load_engine
    from emelex_core.models.resolve import BUILTIN_REFERENCE, resolve_model

    models_dir = tmp_path_factory.mktemp("home") / "models"
    models_dir.mkdir(mode=0o700)
    resolved = resolve_model(BUILTIN_REFERENCE, models_dir=models_dir, endpoints={})
    with load_engine(resolved, threads=1, context_tokens=4_096) as engine:
        yield engine
