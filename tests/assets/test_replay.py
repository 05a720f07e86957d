"""Media in a replayed history: held against their links, capped together, and left out on demand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import AssetRef, Event, MemoryStore, Session, limits
from emelex_core.assets.records import AssetLink
from emelex_core.errors import Corrupt, Invalid
from emelex_core.events import MediaPart, TextPart
from pictures import picture
from stores import edit

Show = Callable[..., Session]


@pytest.fixture
def long(store: MemoryStore, workspace: Path) -> Session:
    """A Session longer than a page, with media in the first, a middle and the last event."""
    refs = [store.store_asset(picture(seed)) for seed in range(3)]
    session = store.start_session(workspace, title="long")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn([Event.user("first", refs[0], refs[1])])
        lease.append_turns([[Event.user(str(number))] for number in range(limits.PAGE_EVENTS_MAX)])
        lease.append_turn([Event.user("middle", refs[1])])
        lease.append_turns([[Event.user(str(number))] for number in range(limits.PAGE_EVENTS_MAX)])
        lease.append_turn([Event.user("last", refs[2])])
    return store.get_session(session.id)


def test_links_are_held_against_events_on_every_page(store: MemoryStore, workspace: Path, long: Session) -> None:
    """107: nothing is wrong here, and the replay says so."""
    with store.claim_session(long.id, workspace) as lease:
        replay = lease.replay()
    assert [len(event.media) for event in replay if event.media] == [2, 1, 1]
    for event in replay:
        for ordinal, ref in enumerate(event.media):
            link = AssetLink(session_id=long.id, sequence=event.sequence, ordinal=ordinal)
            assert len(store.read_asset(ref, link=link)) == 64


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO event_assets SELECT session_id, 150, 0, sha256, kind FROM event_assets WHERE sequence = 102",
        "INSERT INTO event_assets SELECT session_id, 203, 1, sha256, kind FROM event_assets WHERE sequence = 203",
        "DELETE FROM event_assets WHERE sequence = 203",
        "UPDATE event_assets SET ordinal = 2 WHERE sequence = 1 AND ordinal = 1",
        "UPDATE event_assets SET kind = 'document' WHERE sequence = 102",
        "UPDATE event_assets SET sha256 = (SELECT sha256 FROM event_assets WHERE sequence = 1) WHERE sequence = 203",
    ],
)
@pytest.mark.parametrize("media", [True, False])
def test_a_link_that_differs_is_corrupt(
    store: MemoryStore, workspace: Path, long: Session, sql: str, media: bool
) -> None:
    """107: count, ordinal, digest and kind, wherever the event stands; leaving media out checks the same."""
    assert edit(store.database.path, sql) >= 1
    with store.claim_session(long.id, workspace) as lease, pytest.raises(Corrupt, match="linked"):
        lease.replay(media=media)


def _big(store: MemoryStore, workspace: Path, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(limits, "REPLAY_MEDIA_BYTES_MAX", 1_000)
    session = store.start_session(workspace, title="big")
    with store.claim_session(session.id, workspace) as lease:
        for seed, size in enumerate(sizes):
            lease.append_turn([Event.user("see", store.store_asset(picture(seed, size)))])
    return store.get_session(session.id)


def test_the_cap_is_on_the_sum(store: MemoryStore, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cap itself is accepted."""
    session = _big(store, workspace, [400, 500, 100], monkeypatch)
    with store.claim_session(session.id, workspace) as lease:
        assert len(lease.replay()) == 3


def test_over_the_cap_the_largest_is_named(
    store: MemoryStore, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest is the last here, behind the place where the sum went over; the hint offers a way on."""
    session = _big(store, workspace, [400, 500, 101, 600], monkeypatch)
    largest = store.store_asset(picture(3, 600))
    with store.claim_session(session.id, workspace) as lease:
        with pytest.raises(Invalid) as caught:
            lease.replay()
        assert f"largest is {largest.sha256} (image/png, 600 bytes), media 1 of event 4" in caught.value.message
        assert "1601 bytes" in caught.value.message
        assert caught.value.hint is not None
        assert "without media" in caught.value.hint


def test_resuming_without_media(store: MemoryStore, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each image is a labelled text; the Session goes on, and what is stored keeps its media."""
    session = _big(store, workspace, [900, 900], monkeypatch)
    with store.claim_session(session.id, workspace) as lease:
        replay = lease.replay(media=False)
        assert [event.media for event in replay] == [(), ()]
        assert replay[0].parts == (TextPart(text="see"), TextPart(text="[image, image/png, 900 bytes, left out]"))
        lease.append_turn([Event.user("go on")])
    stored = store.read_events(session.id)
    assert [len(event.media) for event in stored] == [1, 1, 0]
    assert any(isinstance(part, MediaPart) for part in stored[0].parts)


def test_a_thousand_media_in_one_event(store: MemoryStore, workspace: Path, show: Show) -> None:
    """1,024 are accepted and replayed, one more is not."""
    ref: AssetRef = store.store_asset(picture())
    session = show(*[ref] * limits.ASSETS_PER_EVENT_MAX)
    with store.claim_session(session.id, workspace) as lease:
        assert len(lease.replay()[0].media) == limits.ASSETS_PER_EVENT_MAX
        with pytest.raises(Invalid, match="1025 media"):
            lease.append_turn([Event.user("more", *[ref] * (limits.ASSETS_PER_EVENT_MAX + 1))])
    assert store.get_asset(ref.sha256).references == limits.ASSETS_PER_EVENT_MAX
