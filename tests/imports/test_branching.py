"""Which Session a message belongs to, against a plain model (formats.md, sections 4 to 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from emelex_core.events import EventKind, TextPart, ToolCallPart, ToolResultPart
from emelex_core.imports.conversations.branching import BRANCH_POINT, Branches
from emelex_core.imports.conversations.conversation import Message, Said, content_digest, message_id, message_of
from emelex_core.imports.conversations.playing import Player
from emelex_core.imports.reading.turns import RecordName

Shelf = dict[str, tuple[str, ...]]
"""The ids of each Session's messages, by its source id."""

PATHS = st.lists(st.lists(st.sampled_from("abc"), max_size=6).map("".join), max_size=8)


def _path(letters: str) -> list[Message]:
    """A path of a format without ids: a message is its place and its content."""
    return [
        Message(
            id=message_id(None, letter, place=place),
            said=(Said(kind=EventKind.USER, parts=(TextPart(text=letter),)),),
        )
        for place, letter in enumerate(letters)
    ]


def _follow(shelf: Shelf, paths: Sequence[str]) -> tuple[Shelf, Branches]:
    """Follow paths in one run over what is stored; return what is stored then."""
    branches = Branches("root", lambda source_id: shelf.get(source_id, ()))
    for letters in paths:
        branches.follow(_path(letters))
    stored = dict(shelf)
    for branch in branches:
        before = shelf.get(branch.source_id, ())
        own = tuple(message.id for message in branch.messages)
        # What the source does not hold any more stays where it is.
        stored[branch.source_id] = own if len(own) > len(before) else before
    return stored, branches


def _lineages(branches: Branches) -> set[tuple[str, ...]]:
    """What each Session says together with what it branches off from, to every length."""
    found = {branch.source_id: branch for branch in branches}
    whole: dict[str, tuple[str, ...]] = {}
    for branch in found.values():
        own = tuple(message.id for message in branch.messages if not message.id.startswith(BRANCH_POINT))
        if branch.parent is not None:
            above = whole.get(branch.parent, ())
            own = (*(above[: above.index(branch.fork.id) + 1] if branch.fork else ()), *own)
        whole[branch.source_id] = own
    return {line[:length] for line in whole.values() for length in range(len(line) + 1)}


@given(paths=PATHS)
def test_every_path_is_there_and_nothing_is_there_twice(paths: list[str]) -> None:
    _, branches = _follow({}, paths)
    lines = _lineages(branches)
    assert all(tuple(message.id for message in _path(letters)) in lines for letters in paths if letters)
    own = [m.id for branch in branches for m in branch.messages if not m.id.startswith(BRANCH_POINT)]
    places = {(letters[:length], length) for letters in paths for length in range(1, len(letters) + 1)}
    assert len(own) == len(places)


@given(paths=PATHS, cut=st.integers(0, 8))
def test_importing_between_two_paths_changes_nothing(paths: list[str], cut: int) -> None:
    """In the order of time, many imports lead to what one leads to; importing again leaves all as it is."""
    whole, _ = _follow({}, paths)
    first, _ = _follow({}, paths[:cut])
    grown, _ = _follow(first, paths)
    assert grown == whole
    again, branches = _follow(whole, paths)
    assert again == whole
    assert (branches.vanished, branches.repeated) == (0, 0)


@given(before=PATHS, after=PATHS)
def test_a_session_only_grows(before: list[str], after: list[str]) -> None:
    """Whatever the source says next; what it no longer says is counted."""
    first, _ = _follow({}, before)
    second, branches = _follow(first, after)
    for source_id, ids in first.items():
        assert second[source_id][: len(ids)] == ids
    if not any(after):
        assert branches.vanished == len(first.get("root", ()))


def test_a_branch_is_named_after_both_sides_of_its_fork() -> None:
    """The same words after different ones are two branches; each begins with what it answers."""
    _, branches = _follow({}, ["ab", "ac", "bc", "bac"])
    assert len({branch.source_id for branch in branches}) == len(list(branches)) == 4
    first = list(branches)[1]
    (said,) = first.messages[0].said
    assert (said.kind, said.label) == (EventKind.CONTEXT, BRANCH_POINT)
    assert isinstance(said.parts[0], TextPart)
    assert said.parts[0].text.endswith("\na")


def test_a_message_twice_in_a_path_is_one() -> None:
    branches = Branches("root", lambda _: ())
    one = _path("a")
    branches.follow([*one, *one])
    assert [len(branch.messages) for branch in branches] == [1]
    assert branches.repeated == 1


@given(
    native=st.one_of(st.none(), st.text(max_size=200), st.integers()), content=st.integers(), place=st.integers(0, 9)
)
def test_ids_tell_messages_and_events_tell_ids(native: object, content: int, place: int) -> None:
    """An id means one content, whatever it looks like, and an event's name leads back to it."""
    own = message_id(native, content, place=place)
    assert own == message_id(native, content, place=place)
    assert own != message_id(native, content + 1, place=place)
    assert len(own) < 200
    name = RecordName(own)
    assert {message_of(name.take()) for _ in range(3)} == {own}


def test_digests_ignore_the_order_of_keys_and_take_every_value() -> None:
    assert content_digest({"a": 1, "b": 2}) == content_digest({"b": 2, "a": 1})
    assert content_digest(2**70) != content_digest(2**71)
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    assert content_digest(deep)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["user", "answer", "calls", "result", "unnamed", "context", "note"]),
        st.sampled_from(["c1", "c2"]),
    ),
    max_size=14,
)


def _played(steps: list[tuple[str, str]]) -> list[Message]:
    messages: list[Message] = []
    for place, (kind, call_id) in enumerate(steps):
        call = ToolCallPart(call_id=call_id, name="f", arguments={})
        result = ToolResultPart(call_id=call_id, text=str(place))
        text = TextPart(text=str(place))
        match kind:
            case "user":
                said = Said(kind=EventKind.USER, parts=(text,))
            case "answer":
                said = Said(kind=EventKind.ASSISTANT, parts=(text,))
            case "calls":
                said = Said(kind=EventKind.ASSISTANT, parts=(text, call))
            case "result":
                said = Said(kind=EventKind.TOOL, parts=(result,))
            case "unnamed":
                said = Said(kind=EventKind.TOOL, parts=(result,), answers="f")
            case "context":
                said = Said(kind=EventKind.CONTEXT, parts=(text,), label="x")
            case _:
                said = Said(kind=EventKind.AUDIT, parts=(text,), label="x")
        messages.append(Message(id=message_id(None, [kind, call_id], place=place), said=(said,)))
    return messages


@given(steps=STEPS)
def test_played_messages_keep_their_order_and_every_call_gets_at_most_one_answer(steps: list[tuple[str, str]]) -> None:
    """Whatever stands where: the order of what is stored is the order of the source, and each beginning of it too."""
    messages = _played(steps)
    defects: Counter[str] = Counter()
    turns = list(Player(defects).turns(messages))
    events = [event for turn in turns for event in turn]
    order = list(dict.fromkeys(message_of(event.source_record or "") for event in events))
    assert order == [message.id for message in messages]
    names = [event.source_record for event in events]
    assert len(set(names)) == len(names)
    for size in range(len(messages)):
        part = [event for turn in Player(Counter()).turns(messages[:size]) for event in turn]
        assert part == events[: len(part)]
    opened: set[str] = set()
    surplus = 0
    for event in events:
        assert not (event.kind is EventKind.USER and opened)
        for piece in event.parts:
            if isinstance(piece, ToolCallPart):
                opened.add(piece.call_id)
            elif isinstance(piece, ToolResultPart) and piece.call_id in opened:
                opened.remove(piece.call_id)
            elif isinstance(piece, ToolResultPart):
                surplus += 1
    assert surplus == defects["orphan_result"] + defects["repeated_result"]
