"""What has been read of a Session, as lines that may stand in its Summary, in bounded memory.

The module owns these invariants (behaviours 174, 175, 185, 188):

- Each line is the source's own words, or a command, a file, a step of a plan or an error line; it carries its event.
- A question that the user has answered and a step of an older plan are no longer open.
- Names of the source's prose, and of the prior Summary, that no line holds are listed with their event, most used
  first.
- What is dropped to stay in memory is counted.
- The leaves follow each other without gap: what is skipped between two, such as a Summary, belongs to the later.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from emelex_core.engine.ports import ChatEngine
from emelex_core.events import EVIDENCE_KINDS, EventKind, ToolCallPart
from emelex_core.jobs.ledger import Leaf
from emelex_core.sessions.records import StoredEvent
from emelex_workers.text import cues, durable, lines, outline, secrets, tokens
from emelex_workers.text.actions import ActionLog
from emelex_workers.text.anchors import Anchor, AnchorKind, anchors
from emelex_workers.text.cues import Cue
from emelex_workers.text.foreign import ForeignWords
from emelex_workers.text.outline import Line, Outline, Section
from emelex_workers.text.windows import Window

LINE_CHARACTERS_MAX: Final = 400
"""A line in its source's own words is cut here, at a sentence or clause."""
REQUEST_CHARACTERS_MAX: Final = 480
"""A user's own words get more room."""
POOL_LINES_MAX: Final = 4_000
"""Lines held while folding; beyond it the lowest-ranked go, counted, so that memory stays flat."""

_SECTIONS: Final = {
    AnchorKind.ORDER: Section.REQUESTS,
    AnchorKind.CONSTRAINT: Section.CONSTRAINTS,
    AnchorKind.FACT: Section.FACTS,
    AnchorKind.DECISION: Section.DECISIONS,
    AnchorKind.QUESTION: Section.OPEN,
    AnchorKind.OPEN: Section.OPEN,
    AnchorKind.STATEMENT: Section.STATEMENTS,
    AnchorKind.ERROR: Section.ERRORS,
}
_ASKS: Final = "assistant asks: "
_PLAN: Final = "plan: "
_MEDIA: Final = "media shown: "
_COUNTED: Final = re.compile(r"(\d{1,9})× ([\w.+-]+/[\w.+-]+)")
NAMES_BETWEEN: Final = " · "
_NAMES_PER_LINE_MAX: Final = 12
_NAMES_MAX: Final = 400


@dataclass(slots=True)
class Fold:
    """What has been read so far, in bounded memory."""

    prior: Outline | None
    leaves: list[Leaf] = field(default_factory=list[Leaf])
    tokens: int = 0
    found: list[Line] = field(default_factory=list[Line])
    log: ActionLog = field(default_factory=ActionLog)
    foreign: ForeignWords = field(default_factory=ForeignWords)
    names: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    skipped: Counter[str] = field(default_factory=Counter[str])
    media: Counter[str] = field(default_factory=Counter[str])
    media_sequence: int = 0
    dropped: int = 0
    last_user_sequence: int = 0

    def __post_init__(self) -> None:
        """Remember the names of the prior Summary: a line of it that has no room any more leaves its names behind."""
        if self.prior is not None and not self.names:
            for line in self.prior.lines:
                self._remember_names(line.text, line.sequence)

    def add(self, window: Window) -> None:
        """Take in one leaf."""
        first = self.leaves[-1].last_sequence + 1 if self.leaves else window.first_sequence
        self.leaves.append(
            Leaf(
                first_sequence=first,
                last_sequence=window.last_sequence,
                events=len(window.events),
                tokens=window.tokens,
            )
        )
        self.tokens += window.tokens
        for index, event in enumerate(window.events):
            self._event(event, is_last_word=_is_last_word(window.events, index))
        if len(self.found) > 2 * POOL_LINES_MAX:
            self._shrink()

    def candidates(self) -> list[Line]:
        """Return every line that may stand, superseded ones dropped."""
        prior = [line for line in (self.prior.lines if self.prior else ()) if not line.text.startswith(_MEDIA)]
        candidates = outline.merge((*prior, *self.found, *_action_lines(self.log), *self._media_lines()))
        return list(outline.without_repeats(line for line in candidates if not self._is_settled(line)))

    def can_wait(self, line: Line) -> bool:
        """Whether a line of the Summary that is folded in may go first: a wish that was uttered, or one lone name.

        What a person said without asking for anything may be a fact that no rule knows.
        """
        if line.sequence >= self.leaves[0].first_sequence:
            return False
        lone = line.section is Section.MENTIONED and NAMES_BETWEEN not in line.text
        return lone or (line.section is Section.REQUESTS and durable.asks(line.text))

    def prior_tokens(self, engine: ChatEngine) -> int:
        """Return the size of the Summary that is folded in."""
        return engine.count_text(outline.render(self.prior)) if self.prior else 0

    def _event(self, event: StoredEvent, *, is_last_word: bool) -> None:
        self.log.add(event)
        self.foreign.add(event)
        if event.media:
            self.media.update(ref.media_type for ref in event.media)
            self.media_sequence = event.sequence
        if event.kind is EventKind.USER and event.text.strip():
            self.last_user_sequence = event.sequence
        if event.kind is EventKind.ERROR:
            self._error(event)
        if event.kind not in EVIDENCE_KINDS:
            self.skipped[event.kind.value] += 1
            return
        own = tuple(lines.spans(event))
        for anchor in anchors(own, speaker=event.kind, is_last_word=is_last_word):
            if not self._is_foreign(anchor):
                self.found.append(_line(anchor))
        for span in own:
            named = span.shape in lines.PROSE and any(map(tokens.is_telling, tokens.tokens(span.safe)))
            if named and not self._repeats(span.speaker, span.safe):
                self._remember_names(span.safe, event.sequence)

    def _media_lines(self) -> Iterator[Line]:
        """Say that media were there, the prior Summary's included: no word of it can stand for an image."""
        told = [line for line in (self.prior.lines if self.prior else ()) if line.text.startswith(_MEDIA)]
        total = self.media.copy()
        for line in told:
            total.update({kind: int(count) for count, kind in _COUNTED.findall(line.text)})
        if total:
            shown = ", ".join(f"{count}× {media_type}" for media_type, count in sorted(total.items()))
            sequence = max([self.media_sequence, *(line.sequence for line in told)])
            yield Line(section=Section.WORK, sequence=sequence, text=f"{_MEDIA}{shown}", score=42.0)

    def _is_foreign(self, anchor: Anchor) -> bool:
        """Whether an assistant only repeats somebody's rule, decision or order: it would read as this Session's."""
        repeats = anchor.speaker is EventKind.ASSISTANT and anchor.kind is not AnchorKind.STATEMENT
        return self._repeats_an_order(anchor.speaker, anchor.text) or (repeats and self.foreign.holds(anchor.text))

    def _repeats(self, speaker: EventKind, text: str) -> bool:
        return self._repeats_an_order(speaker, text) or (speaker is EventKind.ASSISTANT and self.foreign.holds(text))

    def _repeats_an_order(self, speaker: EventKind, text: str) -> bool:
        if speaker is not EventKind.ASSISTANT:
            return False
        if cues.has(text, Cue.QUOTING):
            return any(cues.has(text, cue) for cue in (Cue.INSTRUCTION, Cue.CONSTRAINT, Cue.DECISION))
        return cues.has(text, Cue.INSTRUCTION) and self.foreign.holds(text)

    def _error(self, event: StoredEvent) -> None:
        """Take in a failure that the Session recorded of itself; it may hold foreign words, so orders stay out."""
        stated = lines.cut(secrets.mask(lines.plain(event.text[:2_048])), LINE_CHARACTERS_MAX)
        if stated and not cues.has(stated, Cue.INSTRUCTION):
            self.found.append(Line(section=Section.ERRORS, sequence=event.sequence, text=stated, score=25.0))

    def _remember_names(self, text: str, sequence: int) -> None:
        for token in filter(tokens.is_telling, tokens.tokens(text)):
            times = self.names.pop(token.text, (0, 0))[0]
            self.names[token.text] = (times + 1, sequence)
        while len(self.names) > POOL_LINES_MAX:
            self.names.pop(next(iter(self.names)))

    def _shrink(self) -> None:
        merged = sorted(outline.merge(self.found), key=lambda line: (-line.score, -line.sequence, line.text))
        self.dropped += max(len(merged) - POOL_LINES_MAX, 0)
        self.found = merged[:POOL_LINES_MAX]

    def _is_settled(self, line: Line) -> bool:
        """Whether a later event made an open line of an earlier one pointless."""
        if line.section is not Section.OPEN:
            return False
        if line.text.startswith(_ASKS):
            return line.sequence < self.last_user_sequence
        return line.text.startswith(_PLAN) and line.sequence < self.log.plan_sequence


def _line(anchor: Anchor) -> Line:
    """Turn an anchor into a line in the source's own words."""
    bound = REQUEST_CHARACTERS_MAX if anchor.speaker is EventKind.USER else LINE_CHARACTERS_MAX
    text = lines.cut(anchor.text, bound)
    if anchor.kind is AnchorKind.QUESTION:
        text = _ASKS + text
    elif anchor.speaker is EventKind.ASSISTANT and anchor.kind in {AnchorKind.CONSTRAINT, AnchorKind.DECISION}:
        text = f"assistant: {text}"
    return Line(
        section=_SECTIONS[anchor.kind],
        sequence=anchor.sequence,
        text=text,
        score=anchor.score,
        position=anchor.position,
    )


def _action_lines(log: ActionLog) -> Iterator[Line]:
    for touch in log.files.values():
        verbs = ", ".join(f"{verb} {times}×" if times > 1 else verb for verb, times in touch.verbs.items())
        yield Line(
            section=Section.WORK,
            sequence=touch.sequence,
            text=f"{touch.path}: {verbs}",
            score=45.0 if touch.changed else 12.0,
        )
    for command in log.commands.values():
        ended = "no result" if not command.finished else command.failure or "ok"
        runs = f" ({command.runs} runs, {command.failed_runs} failed)" if command.runs > 1 else ""
        yield Line(
            section=Section.WORK,
            sequence=command.sequence,
            text=f"$ {command.text} → {ended}{runs}",
            score=40.0 if command.failure else 22.0,
        )
    for purpose, sequence in log.delegations.items():
        yield Line(section=Section.WORK, sequence=sequence, text=f"delegated: {purpose}", score=30.0)
    for text, sequence in log.errors.items():
        yield Line(section=Section.ERRORS, sequence=sequence, text=text, score=20.0)
    for task in log.tasks.values():
        if task.is_open:
            status = task.status.replace("_", " ")
            yield Line(section=Section.OPEN, sequence=task.sequence, text=f"{_PLAN}{task.text} ({status})", score=60.0)


def mentioned(fold: Fold, text: str) -> Iterator[Line]:
    """Names of the source's prose that no candidate line holds, by the event that named them last (behaviour 188)."""
    lost = [(name, *seen) for name, seen in fold.names.items() if len(name) >= 3 and not tokens.holds(text, name)]
    lost.sort(key=lambda item: (-item[1], -item[2], item[0]))
    by_event: dict[int, list[str]] = {}
    for name, _, sequence in lost[:_NAMES_MAX]:
        by_event.setdefault(sequence, []).append(name)
    for sequence, names in sorted(by_event.items()):
        for index in range(0, len(names), _NAMES_PER_LINE_MAX):
            shown = lines.cut(NAMES_BETWEEN.join(names[index : index + _NAMES_PER_LINE_MAX]), LINE_CHARACTERS_MAX)
            yield Line(section=Section.MENTIONED, sequence=sequence, text=shown, score=10.0)


def _is_last_word(events: tuple[StoredEvent, ...], index: int) -> bool:
    """Whether an assistant's event sums up its turn: it proposes no call, and the assistant does not go on."""
    event = events[index]
    if event.kind is not EventKind.ASSISTANT or any(isinstance(part, ToolCallPart) for part in event.parts):
        return False
    following = events[index + 1] if index + 1 < len(events) else None
    return following is None or following.kind is not EventKind.ASSISTANT
