"""Scoring by strings alone: no model judges, and nothing of the product is used to tell what a name is."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from generate import ANCHORS, DURABLE, Kind, Plant, Transcript

from emelex_core.events import Event, TextPart, ToolCallPart, ToolResultPart

RESAMPLES = 1_000
_LABELS = re.compile(
    r"^Summary of events .*$|^Left out: .*$|^- \[\d+\] |\(\d+ runs, \d+ failed\)|\d+×|exit \d+|\[secret removed\]",
    re.M,
)
_NAMES = re.compile(
    r"https?://[^\s)>\"'`]+|[\w.-]+(?:/[\w.-]+)+|\b\w+_\w+\b|\b[a-z]+[A-Z]\w+\b|\b[A-Z][a-z]+[A-Z]\w+\b|\d[\d.,:]*\d|\d"
)


@dataclass(slots=True)
class Share:
    """A share over transcripts: how many of how many in each; the unit that is drawn again is the transcript."""

    parts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def add(self, good: int, all_: int) -> None:
        """Count one transcript."""
        self.parts.append((good, all_))

    @property
    def good(self) -> int:
        """How many, in all transcripts."""
        return sum(good for good, _ in self.parts)

    @property
    def total(self) -> int:
        """Of how many."""
        return sum(total for _, total in self.parts)

    @property
    def value(self) -> float:
        """The share over everything."""
        return self.good / self.total if self.total else 1.0

    def interval(self) -> tuple[float, float]:
        """The bootstrap's 95 % interval, with transcripts drawn again; the same figures give the same interval."""
        dice = random.Random(len(self.parts))
        drawn: list[float] = []
        for _ in range(RESAMPLES):
            sample = dice.choices(self.parts, k=len(self.parts))
            total = sum(part[1] for part in sample)
            drawn.append(sum(part[0] for part in sample) / total if total else 1.0)
        drawn.sort()
        return drawn[int(RESAMPLES * 0.025)], drawn[int(RESAMPLES * 0.975)]


def kept(text: str, plants: Iterable[Plant]) -> tuple[int, int]:
    """How many plants a text keeps, every needle of them, and of how many."""
    wanted = list(plants)
    return sum(holds(text, plant) for plant in wanted), len(wanted)


def holds(text: str, plant: Plant) -> bool:
    """Whether a text has every needle of a plant."""
    return all(needle in text for needle in plant.needles)


def anchors(transcript: Transcript) -> list[Plant]:
    """What a Summary of the transcript must keep."""
    return transcript.of(*ANCHORS)


def durable(transcript: Transcript) -> list[Plant]:
    """What is worth remembering of it."""
    return transcript.of(*DURABLE)


def polarity(text: str, transcript: Transcript, negations: Sequence[str]) -> tuple[int, int]:
    """How many constraints stand in a line that still forbids, of how many."""
    wanted = transcript.of(Kind.CONSTRAINT)
    good = 0
    for plant in wanted:
        found = [line for line in re.split(r"\n|(?<=[.!?]) ", text) if holds(line, plant)]
        good += any(any(word in line.lower() for word in negations) for line in found)
    return good, len(wanted)


def invented(text: str, source: str) -> list[str]:
    """Paths, numbers and identifiers of a Summary that its source does not hold."""
    return [name for name in _NAMES.findall(_LABELS.sub(" ", text)) if name.rstrip(".,:") not in source]


def leaked(text: str, transcript: Transcript, *kinds: Kind) -> list[Plant]:
    """Secrets or poison that a derived text holds."""
    return [plant for plant in transcript.of(*kinds) if any(needle in text for needle in plant.needles)]


def source_text(events: Iterable[Event]) -> str:
    """Everything that the events hold, as one text."""
    pieces: list[str] = []
    for event in events:
        for part in event.parts:
            if isinstance(part, TextPart | ToolResultPart):
                pieces.append(part.text)
            elif isinstance(part, ToolCallPart):
                pieces.append(" ".join(map(str, part.arguments.values())))
    return "\n".join(pieces)
