"""A model's visible reasoning, which some models put before their answer, is no part of the answer."""

from __future__ import annotations

from typing import Final

OPEN: Final = "<think>"
CLOSE: Final = "</think>"


def without_reasoning(text: str) -> str:
    """Return the text after its leading `<think>…</think>`; a text that never gets past its reasoning is empty.

    Only reasoning that opens the text counts, so that an answer which mentions the tags keeps them.
    """
    return split_reasoning(text)[1]


def split_reasoning(text: str) -> tuple[str, str]:
    """Return a text's leading reasoning, without its tags, and the answer behind it (`without_reasoning`)."""
    thoughts: list[str] = []
    answer = text
    while answer.lstrip().startswith(OPEN):
        thought, closed, answer = answer.partition(CLOSE)
        thoughts.append(thought.lstrip().removeprefix(OPEN).strip())
        if not closed:
            return "\n".join(thoughts), ""
    return "\n".join(thoughts), answer if answer is text else answer.lstrip()
