"""Stores on a clock that tests turn, with Sessions, Knowledge and jobs of known age."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emelex_core import Event, MemoryStore, Session
from emelex_core.clock import system_clock
from emelex_core.home import Home
from emelex_core.knowledge import apply
from emelex_core.knowledge.records import Evidence, Source, Upsert
from emelex_core.retention import lived
from places import workspace
from stores import DAY, ManualClock, edit, rows

__all__ = ["workspace"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that agrees with the one by which the store was made."""
    return ManualClock(system_clock())


@pytest.fixture
def store(home: Home, clock: ManualClock) -> Iterator[MemoryStore]:
    with MemoryStore.open(home, create=True, clock=clock) as opened:
        yield opened


@pytest.fixture
def live_through(store: MemoryStore, clock: ManualClock) -> Callable[[int], None]:
    """Let days pass as a machine lives them: maintenance looks at the clock once a day, and removes nothing."""

    def live(days: int) -> None:
        with store.database.write() as transaction:
            for _ in range(days):
                clock.turn(DAY)
                lived.see(transaction, now=clock.now)

    return live


@pytest.fixture
def talk(store: MemoryStore, workspace: Path) -> Callable[..., Session]:
    """Make a Session that said something, with nothing left to do."""

    def make(title: str = "Sort the parcels", *, distill: bool = False, turns: int = 1) -> Session:
        session = store.start_session(workspace, title=title)
        with store.claim_session(session.id, workspace) as lease:
            for number in range(turns):
                lease.append_turn([Event.user(f"Weigh depot {number} first."), Event.assistant("Weighed.")])
            lease.release(distill=distill)
        return store.get_session(session.id)

    return make


@pytest.fixture
def learn(store: MemoryStore, talk: Callable[..., Session]) -> Callable[..., None]:
    """Store one entry, as a distillation does."""
    session = talk("Where Knowledge comes from")
    event = store.read_events(session.id, limit=1)[0]

    def make(key: str, content: str = "Parcels are weighed first.", *, job: str = "a" * 36) -> None:
        entry = Upsert(
            key=key,
            content=content,
            confidence=0.9,
            evidence=Evidence(event_id=event.id, sequence=1, speaker="user", quote="Weigh"),
        )
        source = Source(
            job_id=job, session_id=session.id, first_sequence=1, last_sequence=2, sha256="0" * 64, made_by=b"{}"
        )
        with store.database.write() as transaction:
            apply.apply(transaction, session.workspace_id, [entry], source=source, now=store.clock())

    return make


@pytest.fixture
def ids(home: Home) -> Callable[[], set[str]]:
    """The ids of the Sessions that are stored, asked behind the store."""

    def find() -> set[str]:
        return {row[0] for row in rows(home.database, "SELECT id FROM sessions")}

    return find


@pytest.fixture
def pin(home: Home) -> Callable[[str], None]:
    """Pin an entry by key."""

    def make(key: str) -> None:
        assert edit(home.database, "UPDATE knowledge SET pinned = 1 WHERE key = ?", (key,)) == 1

    return make
