"""A small life of a store through its own verbs, and the plain record of what was acknowledged in it.

Each step is one verb. What it made durable goes into the record when the verb has returned, and not before.
`difference` holds a store against the record, exactly. While a step's outcome is not known (the power went in it),
before and after are both right.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from emelex_core import Event, MemoryStore
from emelex_core.archive.check import check
from emelex_core.compaction_policy import CompactionPlan
from emelex_core.db.statements import load
from emelex_core.errors import EmelexError, NotFound, ReplayRequired, StaleReplay
from emelex_core.events import AssetRef, EventKind
from emelex_core.home import Home
from emelex_core.jobs import reading
from emelex_core.jobs.kinds import JobKind
from emelex_core.knowledge import apply as knowledge
from emelex_core.knowledge.records import Evidence, Source, Upsert
from emelex_core.sessions import append
from emelex_core.sessions.lease import SessionLease
from emelex_core.sessions.records import ImportSource
from emelex_queue import claims
from emelex_queue.lease import JobLease
from emelex_workers.compaction import _append_summary
from stores import ManualClock

IMPORTS = load("emelex_core", "imports")
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20
QUOTE = "We always deploy on Tuesdays"


@dataclass
class Record:
    """What was acknowledged: texts by Session, states of jobs, Knowledge, assets, import cursors."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    jobs: dict[str, tuple[str, int]] = field(default_factory=dict)
    knowledge: dict[str, str] = field(default_factory=dict)
    assets: dict[str, bytes] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    covered: dict[str, int] = field(default_factory=dict)


Step = Callable[["Life"], None]


@dataclass
class Life:
    """One store with a clock that stands. `record` is what is known; a step changes it as its last act."""

    home: Path
    workspace: Path
    clock: ManualClock = field(default_factory=ManualClock)
    record: Record = field(default_factory=Record)
    store: MemoryStore | None = None
    session: str = ""
    lease: SessionLease | None = None
    job: JobLease | None = None
    picture: AssetRef | None = None
    turns: int = 0
    intended: Record | None = None

    @property
    def opened(self) -> MemoryStore:
        assert self.store is not None
        return self.store

    def create(self) -> None:
        self.store = MemoryStore.open(self.home, create=True, clock=self.clock)

    def start(self) -> None:
        # An id is known from the answer only; a Session that was started in vain has no text and no harm.
        self.session = self.opened.start_session(self.workspace, title="a life").id
        self.record.texts[self.session] = []

    def claim(self) -> None:
        self.lease = self.opened.claim_session(self.session, self.workspace)

    def checkpoint(self) -> None:
        self.opened.database.upkeep("PRAGMA wal_checkpoint(TRUNCATE)")

    def asset(self) -> None:
        self._intend().assets[hashlib.sha256(PICTURE).hexdigest()] = PICTURE
        self.picture = self.opened.store_asset(PICTURE)
        self.record.assets[self.picture.sha256] = PICTURE

    def append(self) -> None:
        number = self.turns + 1
        media = () if self.picture is None else (self.picture,)
        words = [f"{QUOTE}, turn {number}. " + "x" * (900 * number), f"answer {number}"]
        self._intend().texts[self.session] += words
        self._append(lambda lease: lease.append_turn([Event.user(words[0], *media), Event.assistant(words[1])]))
        self.turns = number
        self.record.texts[self.session] += words

    def release(self) -> None:
        assert self.lease is not None
        job = self.lease.release(distill=True)
        assert job is not None
        self.record.jobs[job.id] = ("pending", 0)

    def plan(self) -> None:
        plan = CompactionPlan(through_sequence=4, target_tokens=500, session_tokens=900, kept_tokens=100)
        job = self.opened.queue_compaction(self.session, plan)
        self.record.jobs[job.id] = ("pending", 0)

    def claim_compaction(self) -> None:
        self._claim_job(JobKind.COMPACTION)

    def claim_distillation(self) -> None:
        self.clock.turn(60_000)
        self._claim_job(JobKind.DISTILLATION)

    def fail(self) -> None:
        assert self.job is not None
        self._intend().jobs[self.job.job.id] = ("pending", 1)
        self.job.fail("attempt 1: the model said nothing")
        self.record = self._intend()
        self.record.jobs[self.job.job.id] = ("pending", 1)

    def summarise(self) -> None:
        assert self.job is not None
        job, source = self.job.job, self.job.job.source
        provenance = {
            "job_id": job.id,
            "through_sequence": source.through_sequence,
            "source_event_count": source.source_event_count,
            "source_first_event_id": source.source_first_event_id,
            "source_last_event_id": source.source_last_event_id,
            "source_sha256": source.source_sha256,
        }
        intended = self._intend()
        intended.jobs[job.id] = ("completed", 0)
        intended.texts[self.session] += ["In short."]
        intended.covered[self.session] = source.through_sequence
        self.job.complete(
            lambda transaction: _append_summary(transaction, job, "In short.", provenance, now=self.clock()),
            record={"kind": "compaction"},
        )
        self.record = intended

    def learn(self) -> None:
        assert self.job is not None
        job = self.job.job
        event = self.opened.read_events(job.session_id, limit=1)[0]
        evidence = Evidence(event_id=event.id, sequence=1, speaker="user", quote=QUOTE)
        upsert = Upsert(key="deploys", content="Deploys happen on Tuesdays.", confidence=0.9, evidence=evidence)
        session = self.opened.get_session(job.session_id)
        source = Source(
            job_id=job.id,
            session_id=session.id,
            first_sequence=1,
            last_sequence=job.source.through_sequence,
            sha256=job.source.source_sha256,
            made_by=b"{}",
        )
        intended = self._intend()
        intended.jobs[job.id] = ("completed", job.failure_count)
        intended.knowledge["deploys"] = upsert.content
        self.job.complete(
            lambda transaction: _ignore(
                knowledge.apply(transaction, session.workspace_id, [upsert], source=source, now=self.clock())
            ),
            record={"kind": "distillation"},
        )
        self.record = intended

    def start_import(self) -> None:
        source = ImportSource(source="codex", source_id="rollout-1", cwd=None)
        known = self.opened.find_imported("codex", "rollout-1")
        found = known or self.opened.start_session(self.workspace, title="imported", source=source)
        self.session = found.id
        self.record.texts.setdefault(self.session, [])
        self.record.cursors.setdefault(self.session, 0)

    def import_batch(self) -> None:
        number = len(self.record.texts[self.session]) // 2 + 1
        words = [f"imported question {number}", f"imported answer {number}"]
        turn = append.prepare([Event.user(words[0]), Event.assistant(words[1])])
        note = {"session_id": self.session, "byte_offset": number, "prefix_sha256": "0" * 64, "now": self.clock()}
        note |= {"settled_offset": number, "settled_sequence": 2 * number, "finished": 1}
        intended = self._intend()
        intended.texts[self.session] += words
        intended.cursors[self.session] = number
        self._append(
            lambda lease: lease.append_prepared(
                [turn], also=lambda transaction: _ignore(transaction.run(IMPORTS["put"], note))
            )
        )
        self.record = intended

    def _intend(self) -> Record:
        """A record to say in what this step will have made durable; both are right while its outcome is unknown."""
        self.intended = copy.deepcopy(self.record)
        return self.intended

    def close(self) -> None:
        """End the process's part of the life, as far as the disk lets it."""
        for held in (self.lease, self.job):
            if held is not None:
                # What a dead disk cannot release is left to expiry; the objects must not try again later.
                held._token = b""
        if self.store is not None:
            with contextlib.suppress(Exception):
                self.store.close()

    def _append(self, act: Callable[[SessionLease], object]) -> None:
        assert self.lease is not None
        try:
            act(self.lease)
        except (ReplayRequired, StaleReplay):
            self.lease.replay()
            act(self.lease)

    def _claim_job(self, kind: JobKind) -> None:
        claimed = claims.claim(self.opened.database, kind, clock=self.clock)
        assert claimed is not None, f"no {kind} could be claimed"
        self.job = claimed
        self.record.jobs[claimed.job.id] = ("running", claimed.job.failure_count)


STEPS: tuple[Step, ...] = (
    Life.create,
    Life.start,
    Life.claim,
    Life.append,
    Life.asset,
    Life.append,
    Life.append,
    Life.release,
    Life.plan,
    Life.claim_compaction,
    Life.summarise,
    Life.checkpoint,
    Life.claim_distillation,
    Life.fail,
    Life.claim_distillation,
    Life.learn,
    Life.start_import,
    Life.claim,
    Life.import_batch,
    Life.import_batch,
)
"""start, claim, append, asset catalog, release and publish, plan, claim a job, complete with a Summary, fail,
Knowledge, import."""


def found(store: MemoryStore) -> Record:
    """What a store holds, in the terms of the record."""
    record = Record()
    for session in store.list_sessions():
        events = list(store.iterate_events(session))
        record.texts[session.id] = [event.text for event in events]
        if session.summary_sequence:
            assert events[session.summary_sequence - 1].kind is EventKind.SUMMARY
            record.covered[session.id] = session.covered_sequence
        with store.database.read() as transaction:
            row = transaction.one(IMPORTS["get"], {"session_id": session.id})
        if session.source != "emelex":
            record.cursors[session.id] = 0 if row is None else int(str(row[0]))
    for job in reading.list_jobs(store.database):
        record.jobs[job.id] = (job.state.value, job.failure_count)
    record.knowledge = {entry.key: entry.content for entry in store.list_knowledge(None)}
    for asset in store.list_assets():
        ref = AssetRef(sha256=asset.sha256, kind="image", media_type="image/png", size=asset.size)
        record.assets[asset.sha256] = store.read_asset(ref)
    return record


def difference(store: MemoryStore, *allowed: Record, strict: bool = True) -> str | None:
    """Why a store is none of the allowed records; None when it is one.

    A Session whose id nobody was told counts only when `strict`; it is empty in any case.
    """
    stored = found(store)
    for record in allowed:
        extra = set(stored.texts) - set(record.texts)
        if extra and (strict or any(stored.texts[session] for session in extra)):
            continue
        seen = copy.deepcopy(stored)
        for session in extra:
            seen.texts.pop(session)
            seen.cursors.pop(session, None)
        if seen == record:
            return None
    return f"stored {_brief(stored)}\nallowed {[_brief(record) for record in allowed]}"


def faults_of(store: MemoryStore) -> list[str]:
    """What a full check finds wrong; notes are not."""
    report = check(store)
    return [f"{finding.area}: {finding.detail}" for finding in report.findings if finding.weight != "note"]


def open_again(home: Path, clock: ManualClock) -> MemoryStore | None:
    """Open a store as the next process does; None when there is none."""
    try:
        return MemoryStore.open(home, clock=clock)
    except NotFound:
        assert not Home(home).database.exists()
        return None


def _ignore(value: object) -> None:
    del value


def _brief(record: Record) -> Record:
    brief = copy.deepcopy(record)
    brief.texts = {session: [text[:24] for text in texts] for session, texts in record.texts.items()}
    brief.assets = dict.fromkeys(record.assets, b"")
    return brief


__all__ = ["STEPS", "EmelexError", "Life", "Record", "Step", "difference", "faults_of", "found", "open_again"]
