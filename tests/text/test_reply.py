"""Strict reading of JSON replies (behaviours 170, 171, 184; reports.md K5, K10)."""

from __future__ import annotations

import json

import pytest

from emelex_core.engine.ports import FinishReason
from emelex_core.errors import OutputRejected
from emelex_workers.text.reply import finished_text, parse_candidates

from .conftest import generation

GOOD = {"key": "fact.port", "content": "The port is 8081.", "quote": "port is 8081"}


def reply(*entries: dict[str, object], **top: object) -> str:
    return json.dumps({"candidates": list(entries), **top})


@pytest.mark.parametrize(
    "text",
    [
        reply(GOOD),
        f"  {reply(GOOD)}\n",
        f"```json\n{reply(GOOD)}\n```",
        f"```\n{reply(GOOD)}\n```\n",
        f"<think>the port matters</think>\n{reply(GOOD)}",
    ],
)
def test_plain_and_fenced_json_is_accepted(text: str) -> None:
    (candidate,) = parse_candidates(generation(text))
    assert (candidate.key, candidate.operation, candidate.confidence) == ("fact.port", "upsert", None)


def test_nothing_to_remember_is_a_success() -> None:
    assert parse_candidates(generation(reply())) == ()


@pytest.mark.parametrize(
    "text",
    [
        f"Here you are: {reply(GOOD)}",
        f"{reply(GOOD)} Done.",
        f"```json\n{reply(GOOD)}\n``` bye",
        reply(GOOD, note="x"),
        reply({**GOOD, "pinned": True}),
        reply({"key": "a", "content": "b"}),
        reply(GOOD, GOOD),
        reply({**GOOD, "confidence": 1.5}),
        reply({**GOOD, "confidence": True}),
        reply({**GOOD, "confidence": "high"}),
        reply({**GOOD, "key": " "}),
        reply({**GOOD, "key": "k" * 257}),
        reply({**GOOD, "operation": "drop"}),
        reply(*({**GOOD, "key": f"k{index}"} for index in range(129))),
        '{"candidates": [], "candidates": []}',
        '{"candidates": [{"key": "a", "content": "b", "quote": "c", "confidence": NaN}]}',
        '{"candidates": ' + "[" * 5_000,
        "[]",
        "null",
        "{}",
        "[1, 2",
        "",
        " \n",
        "<think>only reasoning</think>",
        "<think>unfinished",
    ],
)
def test_anything_else_is_rejected_whole(text: str) -> None:
    with pytest.raises(OutputRejected):
        parse_candidates(generation(text))


def test_a_reply_cut_at_the_limit_is_rejected_even_when_it_parses() -> None:
    with pytest.raises(OutputRejected, match="truncated"):
        parse_candidates(generation(reply(GOOD), FinishReason.LENGTH))


def test_tool_calls_are_no_reply() -> None:
    with pytest.raises(OutputRejected, match="tool_calls"):
        finished_text(generation("x", FinishReason.TOOL_CALLS))


def test_reasoning_is_cut_and_the_answer_kept() -> None:
    assert finished_text(generation("<think>a</think>Real")) == "Real"


def test_a_message_about_a_reply_holds_no_secret() -> None:
    """Behaviour 187: the unknown field's name is the model's text."""
    with pytest.raises(OutputRejected) as caught:
        parse_candidates(generation('{"candidates": [], "password=hunter2": 1}'))
    assert "hunter2" not in caught.value.message
