"""`check`: everything that is stored, held against everything that proves it.

SQLite's own checks, every Session's history, jobs, Knowledge and its quotes, asset files, journals, dead owners.
A check reads page by page and stops nobody. It changes nothing unless it may repair, and then only what other stored
values decide: indexes, counters, pointers, links. Damage is told, never shortened away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, cast

from emelex_core import limits
from emelex_core.archive.histories import History, Looked, json_fault
from emelex_core.archive.indexes import index_faults, rebuild_indexes
from emelex_core.archive.records import CheckReport, Finding, Findings, Weight
from emelex_core.archive.repair import repair_history, repair_indexes
from emelex_core.db import inspection
from emelex_core.db.inspection import Progress
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, EmelexError
from emelex_core.events import TextPart, decode_payload
from emelex_core.journal.reading import read as read_journal
from emelex_core.store import MemoryStore

SQL: Final = load("emelex_core", "archive")
SESSIONS: Final = load("emelex_core", "sessions")


def check(store: MemoryStore, *, repair: bool = False, progress: Progress | None = None) -> CheckReport:
    """Look at all of a store and report; `progress` is told Sessions done, and of how many.

    Raises: Storage, StorageReadOnly for a repair that cannot write, Refused. Damage is a finding, not an error.
    """
    run = _Check(store, repair=repair)
    run.phase("database", run.integrity)
    run.phase("database", run.references)
    run.phase("history", lambda: run.sessions(progress))
    run.phase("knowledge", run.knowledge)
    run.phase("search", run.indexes)
    run.phase("journal", run.journals)
    run.phase("owner", run.owners)
    run.phase("media", run.assets)
    counts = run.found.counts
    return CheckReport(
        sessions=run.session_count,
        events=run.looked.events,
        jobs=run.looked.jobs,
        knowledge_versions=run.versions,
        assets=run.asset_count,
        asset_bytes=run.asset_bytes,
        findings=tuple(run.found.listed),
        damage=counts[Weight.DAMAGE],
        derived=counts[Weight.DERIVED],
        repaired=run.found.repaired,
        notes=counts[Weight.NOTE],
    )


@dataclass(slots=True)
class _Check:
    """One run and what it has found so far."""

    store: MemoryStore
    repair: bool
    found: Findings = field(default_factory=Findings)
    looked: Looked = field(default_factory=Looked)
    session_count: int = 0
    versions: int = 0
    asset_count: int = 0
    asset_bytes: int = 0

    def phase(self, area: str, look: Callable[[], None]) -> None:
        """Look at one area; what cannot be read at all is a finding, and the other areas are looked at all the same."""
        try:
            look()
        except Corrupt as error:
            self.found.add(Finding(weight=Weight.DAMAGE, area=area, detail=error.message))

    def integrity(self) -> None:
        """SQLite's own checks. A file whose only fault are its indexes is repaired by making them anew."""
        problems = self._integrity()
        repaired = bool(problems) and self.repair and repair_indexes(self.store.database) and not self._integrity()
        # What making the indexes anew sets right was derived; what it does not is damage.
        weight = Weight.DERIVED if repaired else Weight.DAMAGE
        for detail in problems:
            self.found.add(Finding(weight=weight, area="database", detail=detail, repaired=repaired))

    def references(self) -> None:
        """Every foreign key leads somewhere."""
        with self.store.database.read() as transaction:
            for detail in inspection.dangling_references(transaction):
                self.found.add(Finding(weight=Weight.DAMAGE, area="database", detail=detail))

    def sessions(self, progress: Progress | None) -> None:
        """Every Session, each with its jobs."""
        ids = self._session_ids()
        for number, session_id in enumerate(ids, start=1):
            history = History(self.store.database, session_id, now=self.store.clock(), looked=self.looked)
            findings = list(_survived(history, session_id))
            self.session_count += 1
            derived = any(finding.weight is Weight.DERIVED for finding in findings)
            damaged = any(finding.weight is Weight.DAMAGE for finding in findings)
            # A damaged history decides nothing about its row.
            fixed = derived and self.repair and not damaged and repair_history(self.store.database, session_id, history)
            for finding in findings:
                self.found.add(replace(finding, repaired=fixed and finding.weight is Weight.DERIVED))
            if progress is not None:
                progress(number, len(ids))

    def knowledge(self) -> None:
        """Every entry has its active version, and every quote stands in its event as long as that is stored."""
        with self.store.database.read() as transaction:
            for (key,) in transaction.all(SQL["without_active_version"]):
                detail = f"the active version of {cast(str, key)[:80]!r} is missing"
                self.found.add(Finding(weight=Weight.DAMAGE, area="knowledge", detail=detail))
        place = (0, 0)
        while True:
            parameters = {"row": place[0], "version": place[1], "limit": limits.PAGE_KNOWLEDGE_MAX}
            count = 0
            with self.store.database.read() as transaction:
                for row in transaction.iterate(SQL["evidence"], parameters):
                    count += 1
                    place = (cast(int, row[0]), cast(int, row[1]))
                    self._evidence(cast("tuple[object, ...]", row[2:]))
            self.versions += count
            if count < limits.PAGE_KNOWLEDGE_MAX:
                return

    def indexes(self) -> None:
        """The search indexes know what they stand for."""
        with self.store.database.read() as transaction:
            faults = list(index_faults(transaction))
        if faults and self.repair:
            rebuild_indexes(self.store.database)
        for detail in faults:
            self.found.add(Finding(weight=Weight.DERIVED, area="search", detail=detail, repaired=self.repair))

    def journals(self) -> None:
        """Turns under way fit together; those that nobody works on any more wait for a recovery. Snapshots parse."""
        with self.store.database.read() as transaction:
            turns = transaction.all(SQL["interrupted_turns"], {"now": self.store.clock()})
            snapshots = transaction.all(SQL["snapshots"])
        for session_id, turn_id, live in turns:
            try:
                with self.store.database.read() as transaction:
                    read_journal(transaction, cast(str, session_id))
            except Corrupt as error:
                self._journal(Weight.DAMAGE, session_id, error.message)
            else:
                if not live:
                    detail = f"turn {turn_id!s} was interrupted; `sessions recover` closes it"
                    self._journal(Weight.NOTE, session_id, detail)
        for session_id, *parts in snapshots:
            for data in parts:
                fault = json_fault(data, what="the Session's snapshot")
                if fault is not None:
                    self._journal(Weight.DAMAGE, session_id, fault)

    def owners(self) -> None:
        """Leases that nobody holds any more; the next claim takes them over."""
        with self.store.database.read() as transaction:
            sessions = transaction.all(SQL["dead_sessions"], {"now": self.store.clock()})
            jobs = transaction.all(SQL["dead_jobs"], {"now": self.store.clock()})
        for (session_id,) in sessions:
            detail = "its lease ran out or its owner is dead; the next claim takes it"
            self.found.add(Finding(weight=Weight.NOTE, area="owner", session_id=cast(str, session_id), detail=detail))
        for job_id, session_id in jobs:
            detail = f"the worker of job {job_id!s} is dead or its lease ran out; the next claim counts that"
            self.found.add(Finding(weight=Weight.NOTE, area="owner", session_id=cast(str, session_id), detail=detail))

    def assets(self) -> None:
        """Every cataloged file, by its digest."""
        report = self.store.verify_assets()
        for problem in report.problems:
            detail = f"asset {problem.name}: {problem.reason}"
            self.found.add(Finding(weight=Weight.DAMAGE, area="media", detail=detail))
        if report.uncataloged or report.temporaries:
            detail = (
                f"{report.uncataloged} files without a row and {report.temporaries} temporaries wait for collection"
            )
            self.found.add(Finding(weight=Weight.NOTE, area="media", detail=detail))
        self.asset_count, self.asset_bytes = report.assets, report.bytes

    def _integrity(self) -> list[str]:
        try:
            with self.store.database.read() as transaction:
                return inspection.integrity_problems(transaction)
        except Corrupt as error:
            return [error.message]

    def _session_ids(self) -> list[str]:
        """All ids; 36 bytes each, so that a million fit."""
        ids: list[str] = []
        while True:
            parameters = {
                "after": ids[-1] if ids else "",
                "workspace_id": None,
                "limit": limits.PAGE_SESSIONS_MAX,
            }
            with self.store.database.read() as transaction:
                page = [cast(str, row[0]) for row in transaction.all(SQL["sessions_after"], parameters)]
            ids += page
            if len(page) < limits.PAGE_SESSIONS_MAX:
                return ids

    def _evidence(self, row: tuple[object, ...]) -> None:
        key, session_id, event_id, sequence, quote, found_id, payload = row
        if session_id is None or quote is None:
            return
        detail = None
        if found_id != event_id:
            detail = f"the event behind {cast(str, key)[:80]!r} is not stored any more, but its Session is"
        elif not _stands_in(cast(str, quote), cast(bytes, payload)):
            detail = f"the quote behind {cast(str, key)[:80]!r} does not stand in its event"
        if detail is not None:
            self.found.add(
                Finding(
                    weight=Weight.DAMAGE,
                    area="knowledge",
                    session_id=cast(str, session_id),
                    sequence=cast(int, sequence),
                    event_id=cast(str, event_id),
                    detail=detail,
                )
            )

    def _journal(self, weight: Weight, session_id: object, detail: str) -> None:
        self.found.add(Finding(weight=weight, area="journal", session_id=cast(str, session_id), detail=detail))


def _survived(history: History, session_id: str) -> Iterator[Finding]:
    """Findings of one Session; what cannot be read at all is one more, and the check goes on behind it."""
    try:
        yield from history.findings()
    except Corrupt as error:
        yield Finding(weight=Weight.DAMAGE, area="history", session_id=session_id, detail=error.message)


def _stands_in(quote: str, payload: bytes) -> bool:
    try:
        parts = decode_payload(payload, what="event").parts
    except EmelexError:
        return False
    return any(quote in part.text for part in parts if isinstance(part, TextPart))
