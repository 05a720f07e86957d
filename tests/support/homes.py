"""Fixtures: a program, real Homes with self-written Sessions, a transcript. A conftest names those that it takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emelex_core import AssetRef, Event, MemoryStore, Session
from emelex_core.events import EventKind, ReasoningPart, TextPart, ToolCallPart
from emelex_core.jobs.kinds import JobKind
from emelex_core.knowledge import apply as knowledge
from emelex_core.knowledge.records import Evidence, Source, Upsert
from emelex_queue import claims
from program import Program


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    path = tmp_path / "elsewhere"
    path.mkdir()
    return path


@pytest.fixture
def emelex(tmp_path: Path, workspace: Path) -> Program:
    """The program with a Home that does not exist yet."""
    return Program(home=tmp_path / "home", workspace=workspace)


@pytest.fixture
def store(emelex: Program) -> Iterator[MemoryStore]:
    """The program's store, opened here too."""
    with MemoryStore.open(emelex.home, create=True) as opened:
        yield opened


Talk = Callable[..., Session]


@pytest.fixture
def talk(store: MemoryStore, workspace: Path) -> Talk:
    """Make a Session of so many turns, with its distillation published."""

    def make(turns: int = 2, *, title: str = "Sort the parcels", place: Path = workspace) -> Session:
        session = store.start_session(place, title=title)
        with store.claim_session(session.id, place) as lease:
            lease.append_turns([_turn(number) for number in range(1, turns + 1)])
            lease.release(distill=True)
        return store.get_session(session.id)

    return make


def _turn(number: int) -> list[Event]:
    call = ToolCallPart(call_id=f"call-{number}", name="shell", arguments={"command": f"ls depot-{number}"})
    return [
        Event.user(f"Turn {number}: always weigh parcels before they are sorted, never after. naïve 😀"),
        Event(
            kind=EventKind.ASSISTANT,
            parts=(ReasoningPart(text="The scales come first."), TextPart(text=f"Weighing depot {number}."), call),
        ),
        Event.tool(f"call-{number}", "\n".join(f"parcel-{line}" for line in range(40)), exit_code=0),
        # A decision of more than 80 characters is what a distillation asks its model to word.
        Event.assistant(
            f"We decided to use PostgreSQL 15 for depot {number}, because the scales write their weights "
            "to port 5433 and the file there was locked."
        ),
    ]


@pytest.fixture
def show(store: MemoryStore, workspace: Path) -> Talk:
    """Make a Session in which a person shows media, one event for all."""

    def make(*media: AssetRef) -> Session:
        session = store.start_session(workspace, title="pictures")
        with store.claim_session(session.id, workspace) as lease:
            lease.append_turn([Event.user("look at this", *media), Event.assistant("I see")])
        return store.get_session(session.id)

    return make


@pytest.fixture
def learn(store: MemoryStore) -> Callable[..., None]:
    """Complete the oldest distillation with one entry, as a worker does."""

    def make(key: str, content: str = "Parcels are weighed before they are sorted.") -> None:
        lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
        assert lease is not None
        job = lease.job
        session = store.get_session(job.session_id)
        first = store.read_events(session.id, limit=1)[0]
        evidence = Evidence(event_id=first.id, sequence=1, speaker="user", quote="always weigh parcels")
        entry = Upsert(key=key, content=content, confidence=0.95, evidence=evidence)
        source = Source(
            job_id=job.id,
            session_id=session.id,
            first_sequence=1,
            last_sequence=job.source.through_sequence,
            sha256=job.source.source_sha256,
            made_by=b"{}",
        )

        def write(transaction: Any) -> None:
            knowledge.apply(transaction, session.workspace_id, [entry], source=source, now=store.clock())

        lease.complete(write, record={"rules": "test"})

    return make


@pytest.fixture
def transcript(tmp_path: Path, workspace: Path) -> Callable[..., Path]:
    """Write a Claude Code transcript of so many prompts."""

    def make(name: str = "0a6f2d1c-1111-4222-8333-444455556666", prompts: int = 2) -> Path:
        path = tmp_path / "projects" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        lines = [row for number in range(1, prompts + 1) for row in _rows(name, number, workspace)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        return path

    return make


def _rows(session: str, number: int, workspace: Path) -> Iterator[dict[str, Any]]:
    common = {"sessionId": session, "cwd": str(workspace), "version": "2.1.0", "isSidechain": False}
    stamp = f"2026-01-02T03:{number:02d}:00.000Z"
    user, assistant = f"u-{session}-{number}", f"a-{session}-{number}"
    parent = f"a-{session}-{number - 1}" if number > 1 else None
    yield {
        **common,
        "type": "user",
        "uuid": user,
        "parentUuid": parent,
        "timestamp": stamp,
        "message": {"role": "user", "content": f"Prompt {number}: never sort parcels by colour."},
    }
    yield {
        **common,
        "type": "assistant",
        "uuid": assistant,
        "parentUuid": user,
        "timestamp": stamp,
        "message": {
            "id": f"msg_{number}",
            "role": "assistant",
            "content": [{"type": "text", "text": f"Answer {number}: sorted by weight."}],
        },
    }
