"""`memory compact` says whose count decided: a server without a tokenizer is measured, not believed (176, ADR 0024)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from chat_endpoint import Reply, serving
from emelex_core import Session
from program import Program

CONTEXT = 9_000
"""What a talk of some turns fills in bytes."""

Talk = Callable[..., Session]


def test_estimates_are_said(emelex: Program, talk: Talk) -> None:
    """In the record of a compaction and of none; and to a person."""
    session = talk(12)
    with serving(Reply(text="Fine.")) as endpoint:
        endpoint.configure(emelex.home, context_tokens=1_000_000)
        nothing = emelex("memory", "compact", session.id, "--json").json
        assert (nothing["type"], nothing["estimated"]) == ("nothing_to_compact", True)
        assert "estimate" in nothing["reason"]
        endpoint.configure(emelex.home, context_tokens=CONTEXT)
        published = emelex("memory", "compact", session.id, "--json").json
        assert (published["type"], published["estimated"]) == ("published_job", True), published
        assert published["created"]
        assert "estimate" in emelex("memory", "compact", session.id).out
        asked = json.dumps(endpoint.asked)
    assert session.id not in asked
    assert all(body["max_tokens"] == 1 for body in endpoint.asked), "only measures were taken"


@pytest.mark.model
def test_the_models_own_counts_are_no_estimates(emelex: Program, talk: Talk) -> None:
    """And nothing is said of estimates."""
    nothing = emelex("memory", "compact", talk(2).id, "--json").json
    assert (nothing["estimated"], "estimate" in nothing["reason"]) == (False, False)
