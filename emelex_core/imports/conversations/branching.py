"""Which Session each message of a conversation belongs to.

A path is followed message by message along what is stored. Where it goes on behind the stored end, the Session grows;
where it parts from what is stored, the rest becomes a Session of its own with the first one as its parent.

The module owns these invariants:

- A Session only ever grows: nothing that was stored is moved, changed or removed because the source changed.
- The same paths lead to the same Sessions, whatever the order in which they were seen before, since a branch is named
  after its parent and the messages on both sides of the fork.
- What the source no longer holds is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from emelex_core.events import EventKind, TextPart
from emelex_core.imports.conversations.conversation import Message, Said, content_digest
from emelex_core.imports.files.lenient import encoded_bytes

BRANCH_POINT: Final = "branch_point"
_QUOTE_BYTES_MAX: Final = 4_096
_FORKED: Final = "[another version of the conversation that this Session branches off from; it goes on after]\n"

Stored = Callable[[str], Sequence[str]]
"""The ids of the messages that a Session holds, in order, by its source id; none for one that does not exist."""


@dataclass(slots=True)
class Branch:
    """One Session of a conversation: the messages that it holds or gets, in order.

    `parent` is the source id of the Session that it parts from, None for the main one. `messages` begins at the first
    message, and is what the source still holds of `ids`.
    """

    source_id: str
    parent: str | None
    ids: list[str]
    fork: Message | None = None
    messages: list[Message] = field(default_factory=list[Message])


class Branches:
    """Follows the paths of one conversation. `repeated` counts messages that stood twice in one path, and are one."""

    def __init__(self, source_id: str, stored: Stored) -> None:
        self._stored = stored
        self._root = source_id
        self.repeated = 0
        self._branches: dict[str, Branch] = {}
        self._open(source_id, None, None)

    def __iter__(self) -> Iterator[Branch]:
        """The Sessions that messages were found for, each behind its parent."""
        return (branch for branch in self._branches.values() if branch.messages)

    @property
    def vanished(self) -> int:
        """How many stored messages no path led to, in the Sessions that were looked at."""
        return sum(len(branch.ids) - len(branch.messages) for branch in self._branches.values())

    def follow(self, path: Sequence[Message]) -> None:
        """Take in one path."""
        branch, place, before = self._branches[self._root], 0, None
        met: set[str] = set()
        for message in path:
            if message.id in met:
                self.repeated += 1
                continue
            met.add(message.id)
            if place < len(branch.ids) and branch.ids[place] != message.id:
                branch = self._part(branch, before, message)
                place = 0 if branch.fork is None else 1
            if place == len(branch.ids):
                branch.ids.append(message.id)
            if place == len(branch.messages):
                branch.messages.append(message)
            place += 1
            before = message

    def _part(self, branch: Branch, before: Message | None, message: Message) -> Branch:
        """Return the Session that holds what parts from a branch between two messages."""
        fork = content_digest(branch.source_id, None if before is None else before.id, message.id)
        source_id = f"{self._root}/branch-{fork}"
        return self._branches.get(source_id) or self._open(source_id, branch, before)

    def _open(self, source_id: str, parent: Branch | None, fork: Message | None) -> Branch:
        branch = Branch(source_id, None if parent is None else parent.source_id, list(self._stored(source_id)), fork)
        self._branches[source_id] = branch
        if parent is not None and fork is not None:
            # It tells a reader what the first words of the branch answer, without anybody saying it twice.
            point = _point(fork)
            branch.messages.append(point)
            if not branch.ids:
                branch.ids.append(point.id)
        return branch


def _point(fork: Message) -> Message:
    """Return the note that a branch begins with: the last words that it shares with its parent."""
    words = [part.text for said in fork.said for part in said.parts if isinstance(part, TextPart)]
    quote = "\n".join(words)[:_QUOTE_BYTES_MAX]
    while encoded_bytes(quote) > _QUOTE_BYTES_MAX:
        quote = quote[: len(quote) // 2]
    text = TextPart(text=_FORKED + quote)
    said = Said(kind=EventKind.CONTEXT, parts=(text,), label=BRANCH_POINT)
    return Message(id=f"{BRANCH_POINT}~{content_digest(fork.id)}", said=(said,))
