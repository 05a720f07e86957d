"""What is compared: ways to a Summary and ways to Knowledge, at the same budget of tokens.

| name | what it does |
|---|---|
| head and tail | the first and the last lines of what people and agent said, each half of the budget |
| random lines | lines of it, drawn until the budget is full |
| names alone | the most used names without a word about them |
| one prompt | the whole text in one prompt, what fits of its beginning, and the model's free answer |
| rules | the product without any call of a model |
| product | the product with the model |
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from emelex_core.engine.ports import CancelToken, ChatEngine, Message, Request, Role
from emelex_core.events import EVIDENCE_KINDS
from emelex_core.sessions.records import StoredEvent
from emelex_workers.text import secrets, tokens

Summariser = Callable[[Sequence[StoredEvent], ChatEngine, int], str]
PROMPT = "Summarise the conversation. Keep every name, path, number, decision and rule."


def spoken(events: Iterable[StoredEvent]) -> list[str]:
    """The lines that people and agent said, secrets masked as everywhere."""
    said = (line for event in events if event.kind in EVIDENCE_KINDS for line in event.text.splitlines())
    return [secrets.mask(line) for line in said if line.strip()]


def head_and_tail(events: Sequence[StoredEvent], engine: ChatEngine, budget: int) -> str:
    """The beginning and the end, half of the budget each."""
    said = spoken(events)
    head = _filled(said, engine, budget // 2)
    tail = _filled(reversed(said[len(head) :]), engine, budget - budget // 2)
    return "\n".join([*head, *reversed(tail)])


def random_lines(events: Sequence[StoredEvent], engine: ChatEngine, budget: int) -> str:
    """Lines drawn at random."""
    said = spoken(events)
    random.Random(len(said)).shuffle(said)
    return "\n".join(_filled(said, engine, budget))


def names_alone(events: Sequence[StoredEvent], engine: ChatEngine, budget: int) -> str:
    """Names by how often they are said."""
    counted = Counter(name for line in spoken(events) for name in tokens.names(line))
    return "\n".join(_filled((name for name, _ in counted.most_common()), engine, budget))


def one_prompt(events: Sequence[StoredEvent], engine: ChatEngine, budget: int) -> str:
    """What the model itself writes about as much of the text as its context holds."""
    room = engine.info.context_tokens - budget - engine.count_prompt(_prompt("")) - 8
    text = "\n".join(_filled(spoken(events), engine, room))
    request = Request(messages=_prompt(text), output_tokens_max=budget)
    return engine.generate(request, CancelToken()).text


BASELINES: dict[str, Summariser] = {
    "head and tail": head_and_tail,
    "random lines": random_lines,
    "names alone": names_alone,
}


def _prompt(text: str) -> tuple[Message, ...]:
    return Message(role=Role.SYSTEM, text=PROMPT), Message(role=Role.USER, text=text)


def _filled(said: Iterable[str], engine: ChatEngine, budget: int) -> list[str]:
    chosen: list[str] = []
    for line in said:
        price = engine.count_text(line + "\n")
        if price <= budget:
            chosen.append(line)
            budget -= price
    return chosen
