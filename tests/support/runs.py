"""Distillations as a worker does them: something said in a Session, a claimed job, a changeset, a settlement."""

from __future__ import annotations

import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emelex_core import Event, MemoryStore, Session
from emelex_core.compaction_policy import CompactionPlan
from emelex_core.events import EventKind, TextPart
from emelex_core.jobs.kinds import JobKind
from emelex_core.knowledge import apply as knowledge
from emelex_core.knowledge.records import Applied, Change, Evidence, Mode, Source, Tombstone, Upsert
from emelex_queue import claims
from emelex_workers import compaction


@dataclass(frozen=True, kw_only=True)
class Run:
    """One finished distillation."""

    job_id: str
    session: Session
    applied: Applied


def distilled(
    store: MemoryStore,
    workspace: Path,
    *said: tuple[str, str | None],
    speaker: str = "user",
    mode: Mode = Mode.AUTO,
    confidence: float = 0.9,
    session: Session | None = None,
    title: str = "a talk",
    occurred_at: int | None = None,
) -> Run:
    """Say each content in an event of its own and distil it under its key; None says that the key is no longer so."""
    if session is None:
        session = store.start_session(workspace, title=title)
    with store.claim_session(session.id, workspace) as lease:
        lease.replay()
        first = store.get_session(session.id).last_sequence + 1
        lease.append_turn(
            [
                Event(kind=EventKind.USER, parts=(TextPart(text=_words(*item)),), occurred_at=occurred_at)
                for item in said
            ]
        )
        lease.release(distill=True)
    events = store.read_events(session.id, after=first - 1)
    job = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert job is not None
    assert job.job.session_id == session.id
    changeset: list[Change] = []
    for (key, content), event in zip(said, events, strict=True):
        evidence = Evidence(
            event_id=event.id, sequence=event.sequence, speaker=speaker, quote=content or _words(key, content)
        )
        if content is None:
            changeset.append(Tombstone(key=key, evidence=evidence, reason="taken back"))
        else:
            changeset.append(Upsert(key=key, content=content, confidence=confidence, evidence=evidence))
    source = Source(
        job_id=job.job.id,
        session_id=session.id,
        first_sequence=first,
        last_sequence=job.job.source.through_sequence,
        sha256=job.job.source.source_sha256,
        made_by=b"{}",
    )
    applied: list[Applied] = []

    def write(transaction: Any) -> None:
        applied.append(
            knowledge.apply(transaction, session.workspace_id, changeset, source=source, now=store.clock(), mode=mode)
        )

    job.complete(write, record={"rules": "test"})
    return Run(job_id=job.job.id, session=store.get_session(session.id), applied=applied[0])


def active(store: MemoryStore, workspace: Path) -> dict[str, str]:
    """What is active now: key and content."""
    return {entry.key: entry.content for entry in store.list_knowledge(workspace)}


def summarised(store: MemoryStore, session: Session, through: int, text: str) -> str:
    """Complete a compaction as its worker does, with a text of ours; return the job's id."""
    plan = CompactionPlan(through_sequence=through, target_tokens=64, session_tokens=0, kept_tokens=0)
    store.queue_compaction(session.id, plan)
    lease = claims.claim(store.database, JobKind.COMPACTION, clock=store.clock)
    assert lease is not None
    job = lease.job
    provenance = {"job_id": job.id, **asdict(job.source)}
    lease.complete(
        lambda transaction: compaction._append_summary(transaction, job, text, provenance, now=store.clock()),
        record={},
    )
    return job.id


def holding(home: Path, *words: str) -> list[str]:
    """Files of a Home in which one of the words stands, in whatever case; read by another process."""
    command = ["grep", "-r", "-l", "-a", "-i", "-F", *[part for word in words for part in ("-e", word)], str(home)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.returncode in (0, 1), found.stderr
    return found.stdout.splitlines()


def _words(key: str, content: str | None) -> str:
    return f"{key} is no longer so" if content is None else f"Remember: {content}"
