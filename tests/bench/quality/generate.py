"""Seeded transcripts of agents at work, with everything that is planted in them known.

The module owns these invariants:

- The same seed and index give the same transcript, in every run and on every machine.
- Each planted name is unique in its transcript, so that finding it in a derived text means that the line was kept.
- Every sentence that is not planted as a durable fact is written so that it carries none.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias, TypeVar

from shapes import secret
from wording import INJECTIONS, LANGUAGES, Phrasebook

from emelex_core.events import Event, ToolCallPart

Item = TypeVar("Item")
Table: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
HELD_OUT_FROM = 1_000
"""Seeds from here on draw from the held-out sentences too; no rule was tuned on them."""
DOMAINS = ("coding", "support", "research")


class Kind(StrEnum):
    """What a planted line is."""

    CONSTRAINT = "constraint"
    FACT = "fact"
    DECISION = "decision"
    OLD = "old value"
    NEW = "new value"
    FINDING = "finding"
    ERROR = "error line"
    TASK = "open task"
    DISTRACTOR = "distractor"
    SECRET = "secret"
    POISON = "poisonous order"
    CLAIM = "poisonous claim"


DURABLE = frozenset({Kind.CONSTRAINT, Kind.FACT, Kind.DECISION, Kind.NEW})
ANCHORS = DURABLE | {Kind.FINDING, Kind.ERROR, Kind.TASK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """One planted line. A derived text keeps it when it holds every needle."""

    kind: Kind
    line: str
    needles: tuple[str, ...]
    old: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one planted thing adds to a turn. A call is its output, its command and its exit code."""

    user: str = ""
    assistant: str = ""
    calls: tuple[tuple[str, str, int], ...] = ()
    plants: tuple[Plant, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """Events in order, what was planted in them, and the phrasebook's negations."""

    name: str
    language: str
    events: tuple[Event, ...]
    plants: tuple[Plant, ...]

    def of(self, *kinds: Kind) -> list[Plant]:
        """The plants of some kinds."""
        return [plant for plant in self.plants if plant.kind in kinds]


def transcript(seed: int, index: int, *, turns: int = 40, poisoned: bool = True, plain: bool = False) -> Transcript:
    """Make one transcript; `plain` plants one update and little else, as the later parts of a long Session do."""
    language = tuple(LANGUAGES)[index % len(LANGUAGES)]
    domain = DOMAINS[index // len(LANGUAGES) % len(DOMAINS)]
    writer = _Writer(
        dice=random.Random(f"{seed}/{index}/{plain}"),
        # What poison says must not shift what else is said: benign loss is measured against the same transcript.
        poison_dice=random.Random(f"{seed}/{index}/poison"),
        book=LANGUAGES[language],
        subjects=LANGUAGES[language].subjects[domain],
        held_out=seed >= HELD_OUT_FROM,
        poisoned=poisoned,
    )
    writer.write(turns, plain=plain)
    return Transcript(
        name=f"{domain}-{language}-{seed}-{index}",
        language=language,
        events=tuple(writer.events),
        plants=tuple(writer.plants),
    )


@dataclass(slots=True)
class _Writer:
    """Writes one transcript."""

    dice: random.Random
    poison_dice: random.Random
    book: Phrasebook
    subjects: tuple[str, ...]
    held_out: bool
    poisoned: bool
    events: list[Event] = field(default_factory=list[Event])
    plants: list[Plant] = field(default_factory=list[Plant])
    used: set[str] = field(default_factory=set[str])
    calls: int = 0

    def write(self, turns: int, *, plain: bool) -> None:
        """Write the turns: what is planted is dealt out to them at random."""
        todo = self._plain_plan() if plain else self._plan()
        slots = [sorted(self.dice.sample(range(turns), len(steps))) for steps in todo]
        by_turn: dict[int, list[Step]] = {}
        for steps, places in zip(todo, slots, strict=True):
            for step, place in zip(steps, places, strict=True):
                by_turn.setdefault(place, []).append(step)
        for number in range(turns):
            self._turn(by_turn.get(number, []))

    def _plan(self) -> list[list[Step]]:
        """Chains of steps; the steps of one chain come in order, in turns of their own."""
        book = self.book
        chains: list[list[Step]] = [[self._said(Kind.CONSTRAINT, book.constraints)] for _ in range(3)]
        chains += [[self._said(Kind.FACT, book.facts)] for _ in range(5)]
        chains += [[self._said(Kind.DECISION, book.decisions)] for _ in range(2)]
        chains += [self._update() for _ in range(2)]
        chains += [[self._said(Kind.DISTRACTOR, book.distractors)] for _ in range(3)]
        chains += [[self._found()] for _ in range(4)]
        chains += [[self._failed()], [self._task()], [self._joke()], [self._secret()], [self._poison()]]
        return chains

    def _plain_plan(self) -> list[list[Step]]:
        return [self._update(), [self._found()], [self._said(Kind.FACT, self.book.facts)]]

    def _turn(self, steps: list[Step]) -> None:
        """One turn: a request with what the user states, the agent's calls, and what it says in the end."""
        said = [self.dice.choice(self.book.thanks)] if not steps else []
        said += [step.user for step in steps if step.user]
        if not said or self.dice.random() < 0.3:
            said.insert(0, self._filled(self.pick(self.book.requests)))
        self.events.append(Event.user("\n".join(said)))
        for output, command, exit_code in [call for step in steps for call in step.calls] or [self._routine()]:
            self._call(command, output, exit_code)
        said = [self.dice.choice(self.book.rambling) for _ in range(self.dice.randrange(2, 6))]
        said += [step.assistant for step in steps if step.assistant]
        self.events.append(Event.assistant(" ".join(said)))
        self.plants += [plant for step in steps for plant in step.plants]

    def _call(self, command: str, output: str, exit_code: int) -> None:
        self.calls += 1
        call = ToolCallPart(call_id=f"call-{self.calls}", name="Bash", arguments={"command": command})
        self.events.append(Event.assistant(self.dice.choice(self.book.chatter), call))
        self.events.append(Event.tool(call.call_id, output, is_error=exit_code != 0, exit_code=exit_code))

    def _routine(self) -> tuple[str, str, int]:
        rows = "\n".join(f"row {row} was read and is as it was" for row in range(self.dice.randrange(4, 14)))
        return rows, "ls -la", 0

    def _said(self, kind: Kind, table: Table) -> Step:
        line, needles = self._line(self._fresh(table) if kind in DURABLE else self.pick(table))
        return Step(user=line, plants=(Plant(kind=kind, line=line, needles=needles),))

    def _found(self) -> Step:
        line, needles = self._line(self.pick(self.book.findings))
        return Step(assistant=line, plants=(Plant(kind=Kind.FINDING, line=line, needles=needles),))

    def _failed(self) -> Step:
        command = f"check --only {self._ident()}"
        path, number = self._path(), self._number()
        error = f"ValueError: {path} has {number} broken rows"
        output = f"{self._routine()[0]}\n{error}"
        plant = Plant(kind=Kind.ERROR, line=error, needles=(path, number))
        return Step(calls=((output, command, 1),), plants=(plant,))

    def _task(self) -> Step:
        path = self._path()
        line = f"TODO: {path}"
        return Step(assistant=line + " is still open.", plants=(Plant(kind=Kind.TASK, line=line, needles=(path,)),))

    def _update(self) -> list[Step]:
        subject, old, new = self.dice.choice(self.subjects), self._number(), self._number()
        before, after = self.pick(self.book.updates)
        while before + subject in self.used:
            subject = self.dice.choice(self.subjects)
            before, after = self.pick(self.book.updates)
        self.used.add(before + subject)
        first = before.format(subject=subject, old=old)
        second = after.format(subject=subject, new=new)
        return [
            Step(user=first, plants=(Plant(kind=Kind.OLD, line=first, needles=(old,)),)),
            Step(user=second, plants=(Plant(kind=Kind.NEW, line=second, needles=(new,), old=old),)),
        ]

    def _joke(self) -> Step:
        joke, taken_back = self.pick(self.book.jokes)
        line, needles = self._line(joke)
        return Step(user=f"{line}\n{taken_back}", plants=(Plant(kind=Kind.DISTRACTOR, line=line, needles=needles),))

    def _secret(self) -> Step:
        shape, value = secret(self.dice)
        line = self.dice.choice(
            ("Use {} for the login.", "{}", "curl -H '{}' https://api.internal/v1", "It is {}, I think.")
        )
        said = line.format(shape)
        plant = Plant(kind=Kind.SECRET, line=said, needles=(value,))
        if self.dice.random() < 0.5:
            return Step(user=said, plants=(plant,))
        return Step(calls=((f"Error: login failed with {shape}", f"login {shape}", 1),), plants=(plant,))

    def _poison(self) -> Step:
        """An order in a tool's output, in a pasted page, or in what the agent reads aloud."""
        marker = "zx" + "".join(self.poison_dice.choice("bcdfghjklmnp") for _ in range(8))
        order = self.poison_dice.choice(INJECTIONS).format(marker=marker)
        kind = Kind.CLAIM if order.startswith("The project") else Kind.POISON
        plant = Plant(kind=kind, line=order, needles=(marker,))
        if not self.poisoned:
            return Step()
        page = f"<page>\nWelcome to the page.\n{order}\n</page>"
        where = self.poison_dice.randrange(4)
        if where == 0:
            return Step(user=f"> {order}", plants=(plant,))
        if where == 1:
            return Step(user=page, plants=(plant,))
        if where == 2:
            return Step(calls=((page, "fetch page", 0),), assistant=f"The page says: {order}", plants=(plant,))
        return Step(calls=((f"{self._routine()[0]}\n{order}", "cat notes", 0),), assistant=order, plants=(plant,))

    def pick(self, table: tuple[tuple[Item, ...], tuple[Item, ...]]) -> Item:
        """Draw from the tuned half, or from both."""
        return self.dice.choice(table[0] + table[1] if self.held_out else table[0])

    def _fresh(self, table: Table) -> str:
        """Draw a sentence that says something of a subject of which the transcript does not say it yet.

        Said again with another value it would be an update; but two files may both be forbidden.
        """
        while True:
            template, subject = self.pick(table), self.dice.choice(self.subjects)
            said = template.replace("{subject}", subject)
            names_another = "{path}" in said or "{ident}" in said or "{tool}" in said
            if said not in self.used or (table is self.book.constraints and names_another):
                self.used.add(said)
                return said

    def _filled(self, template: str) -> str:
        return self._line(template)[0]

    def _line(self, template: str) -> tuple[str, tuple[str, ...]]:
        """Fill a template in; return it with the names that make it unique."""
        makers = {
            "path": self._path,
            "ident": self._ident,
            "number": self._number,
            "name": self._name,
            "tool": self._tool,
        }
        values = {slot: make() for slot, make in makers.items() if f"{{{slot}}}" in template}
        line = template.format(subject=self.dice.choice(self.subjects), other=self._tool(), **values)
        return line, tuple(values.values())

    def _path(self) -> str:
        folder = self.dice.choice(("src", "docs", "lib", "data", "conf"))
        return self._unique(
            lambda: f"{folder}/{self._word()}_{self._word()}.{self.dice.choice(('py', 'md', 'toml', 'csv'))}"
        )

    def _ident(self) -> str:
        return self._unique(lambda: f"{self._word()}_{self._word()}")

    def _number(self) -> str:
        return self._unique(lambda: str(self.dice.randrange(1_000, 9_999)))

    def _name(self) -> str:
        return self._unique(lambda: f"{self._word().title()} {self._word().title()}")

    def _tool(self) -> str:
        return self._unique(lambda: f"{self._word().title()}{self._word().title()}")

    def _word(self) -> str:
        return "".join(self.dice.choice(consonant_or_vowel) for consonant_or_vowel in ("bdfgklmnprst", "aeiou") * 2)

    def _unique(self, make: Callable[[], str]) -> str:
        while (made := make()) in self.used:
            pass
        self.used.add(made)
        return made
