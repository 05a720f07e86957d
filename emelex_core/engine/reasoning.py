"""A model's visible reasoning, which some models put before their answer, is no part of the answer."""

from __future__ import annotations

from typing import Final

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


def without_reasoning(text: str) -> str:
    """Return the text after its leading `<think>…</think>`; a text that never gets past its reasoning is empty.

    Only reasoning that opens the text counts, so that an answer which mentions the tags keeps them.
    """
    answer = text
    while answer.lstrip().startswith(_OPEN):
        _, closed, answer = answer.partition(_CLOSE)
        if not closed:
            return ""
    return answer if answer is text else answer.lstrip()
