"""What an endpoint's configuration may say, and that it never repeats a secret put in a wrong place."""

from __future__ import annotations

import pytest

from emelex_core.engine import EndpointConfig
from emelex_core.errors import EmelexError

GOOD = {"name": "box", "base_url": "http://127.0.0.1:8080/v1", "model": "m", "context_tokens": 4_096}


def test_reference_and_snapshot_name_all_that_can_be_pinned() -> None:
    config = EndpointConfig(**GOOD)
    assert config.reference == "endpoint:box"
    assert config.snapshot_id == "endpoint:box#m@http://127.0.0.1:8080/v1"


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "x" * 65},
        {"base_url": ""},
        {"base_url": "127.0.0.1:8080"},
        {"base_url": "file:///etc/passwd"},
        {"base_url": "http://"},
        {"base_url": "http://host:99999/v1"},
        {"base_url": "http://host/v1?key=1"},
        {"base_url": "http://user:hunter2@host/v1"},
        {"base_url": "http://" + "h" * 200},
        {"model": " "},
        {"model": "m" * 257},
        {"context_tokens": 0},
        {"timeout_seconds": 0.0},
        {"timeout_seconds": float("nan")},
        {"api_key_env": "hunter2-with-dashes"},
    ],
)
def test_what_cannot_be_right_is_refused_without_repeating_a_secret(change: dict) -> None:
    with pytest.raises(EmelexError) as caught:
        EndpointConfig(**{**GOOD, **change})
    assert "hunter2" not in f"{caught.value}{caught.value.hint}"
