"""Knowledge against a plain model: every act of persons, runs, retention, undo and erasure, in any order (issue 8)."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from emelex_core import MemoryStore
from emelex_core.archive.check import check
from emelex_core.errors import Invalid, NotFound
from emelex_core.retention import lived
from emelex_core.retention.records import RetentionPolicy
from runs import Run, distilled
from stores import DAY, ManualClock, sound

KEYS = st.sampled_from(["db", "db.port"])
CONTENTS = st.sampled_from(["alpha", "gamma delta"])
YEARS = 10_000 * DAY
POLICY = RetentionPolicy(session_ms=YEARS, job_ms=YEARS, removal_ms=YEARS, versions=1_000)


@dataclass
class Version:
    """Whose words they are, and which Sessions bear them out; `typed` ones need none."""

    content: str
    user: bool
    typed: bool = False
    sessions: set[str] = field(default_factory=set[str])


@dataclass
class Change:
    """A line of the record: the Session it came from, what it left (None for pins), and what a run had found."""

    session: str | None
    left: tuple[int, bool] | None
    job: str | None = None
    before: tuple[int, str | None] | None = None


@dataclass
class Entry:
    """A plain entry; `hidden` is who hid it."""

    versions: dict[int, Version]
    active: int
    pinned: bool = False
    hidden: str | None = None
    log: list[Change] = field(default_factory=list[Change])

    def note(
        self,
        session: str | None = None,
        job: str | None = None,
        *,
        before: tuple[int, str | None] | None = None,
        pins: bool = False,
    ) -> None:
        """Add a line; with `before` it can be undone."""
        left = None if pins else (self.active, self.hidden is None)
        self.log.append(Change(session, left, job, before))

    def settle(self) -> None:
        """After versions or lines went: the newest that is left is in use, and the last line says what is."""
        stands = self.active in self.versions
        self.active = self.active if stands else max(self.versions)
        told = next((change.left for change in reversed(self.log) if change.left is not None), None)
        if not stands or told != (self.active, self.hidden is None):
            self.note()


class KnowledgeMachine(RuleBasedStateMachine):
    """The store beside the model."""

    @initialize()
    def open(self) -> None:
        """One store, one workspace."""
        self.root = Path(tempfile.mkdtemp(prefix="emelex-knowledge-"))
        self.workspace = self.root / "workspace"
        self.workspace.mkdir()
        self.clock = ManualClock()
        self.store = MemoryStore.open(self.root / "home", create=True, clock=self.clock)
        self.entries: dict[str, Entry] = {}
        self.forgotten: set[str] = set()
        self.proposals: dict[tuple[str, str], str] = {}
        self.runs: list[Run] = []
        self._live(10)

    def teardown(self) -> None:
        """Everything that is stored is sound, and proves."""
        if hasattr(self, "store"):
            assert check(self.store).findings == ()
            assert sound(self.store.database.path)
            self.store.close()
            shutil.rmtree(self.root)

    # --- a person ---------------------------------------------------------------------------------------------------

    @rule(key=KEYS, content=CONTENTS)
    def remember(self, key: str, content: str) -> None:
        self.store.remember(self.workspace, key, content)
        entry = self.entries.get(key)
        self.forgotten.discard(key)
        if entry is None:
            self.entries[key] = entry = Entry({1: Version(content, user=True, typed=True)}, active=1)
        elif entry.versions[entry.active].content == content:
            if entry.hidden is None:
                return
            entry.hidden = None
        else:
            entry.active = max(entry.versions) + 1
            entry.versions[entry.active] = Version(content, user=True, typed=True)
            entry.hidden = None
        entry.note()

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        entry = self.entries.get(key)
        if entry is None:
            with pytest.raises(NotFound):
                self.store.forget(self.workspace, key)
            return
        self.store.forget(self.workspace, key)
        if entry.hidden != "user":
            entry.hidden, entry.pinned = "user", False
            self.forgotten.add(key)
            entry.note()

    @rule(key=KEYS, version=st.none() | st.integers(1, 4))
    def activate(self, key: str, version: int | None) -> None:
        entry = self.entries.get(key)
        if entry is None or (version is not None and version not in entry.versions):
            with pytest.raises(NotFound):
                self.store.activate(self.workspace, key, version=version)
            return
        self.store.activate(self.workspace, key, version=version)
        wanted = version or entry.active
        if (wanted, None) != (entry.active, entry.hidden):
            entry.active, entry.hidden = wanted, None
            self.forgotten.discard(key)
            entry.note()

    @rule(key=KEYS, pinned=st.booleans())
    def pin(self, key: str, pinned: bool) -> None:
        entry = self.entries.get(key)
        act = self.store.pin if pinned else self.store.unpin
        if entry is None:
            with pytest.raises(NotFound):
                act(self.workspace, key)
        elif pinned and entry.hidden is not None:
            with pytest.raises(Invalid):
                act(self.workspace, key)
        else:
            act(self.workspace, key)
            if entry.pinned != pinned:
                entry.pinned = pinned
                entry.note(pins=True)

    @precondition(lambda self: self.proposals)
    @rule(accept=st.booleans(), data=st.data())
    def decide(self, accept: bool, data: st.DataObject) -> None:
        proposal = data.draw(st.sampled_from(self.store.review(self.workspace)))
        session = self.proposals.pop((proposal.key, proposal.job_id))
        if not accept:
            self.store.reject(self.workspace, proposal.id)
            return
        self.store.accept(self.workspace, proposal.id)
        entry = self.entries.get(proposal.key)
        if proposal.content is None:
            if entry is not None and entry.hidden is None:
                entry.hidden, entry.pinned = "distillation", False
                entry.note(session, proposal.job_id)
            return
        if entry is None:
            self.entries[proposal.key] = entry = Entry({}, active=0)
        elif entry.hidden is None and entry.versions[entry.active].content == proposal.content:
            return
        entry.active = max(entry.versions, default=0) + 1
        entry.versions[entry.active] = Version(proposal.content, user=True, sessions={session})
        entry.hidden = None
        self.forgotten.discard(proposal.key)
        entry.note(session, proposal.job_id)

    # --- runs -------------------------------------------------------------------------------------------------------

    @rule(
        said=st.dictionaries(KEYS, st.none() | CONTENTS, min_size=1, max_size=2),
        speaker=st.sampled_from(["user", "assistant", "tool"]),
    )
    def distil(self, said: dict[str, str | None], speaker: str) -> None:
        run = distilled(self.store, self.workspace, *said.items(), speaker=speaker)
        self.runs.append(run)
        for key, content in said.items():
            self._apply(key, content, run, trusted=speaker != "tool")

    def _apply(self, key: str, content: str | None, run: Run, *, trusted: bool) -> None:
        entry, session = self.entries.get(key), run.session.id
        if content is None and (entry is None or entry.hidden or entry.pinned):
            return
        if entry is not None and not entry.hidden and content == entry.versions[entry.active].content:
            if trusted:
                entry.versions[entry.active].sessions.add(session)
            return
        user = entry is not None and (entry.pinned or entry.versions[entry.active].user)
        if not trusted or key in self.forgotten or user:
            self.proposals[key, run.job_id] = session
            return
        if entry is None:
            assert content is not None
            self.entries[key] = entry = Entry({1: Version(content, user=False, sessions={session})}, active=1)
            entry.note(session, run.job_id, before=(0, None))
            return
        before = (entry.active, entry.hidden)
        if content is None:
            entry.hidden = "distillation"
        else:
            entry.active = max(entry.versions) + 1
            entry.versions[entry.active] = Version(content, user=False, sessions={session})
            entry.hidden = None
        entry.note(session, run.job_id, before=before)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Another Session says what is active."""
        active = {key: entry.versions[entry.active].content for key, entry in self.entries.items() if not entry.hidden}
        if active:
            self.distil({key: active[key] for key in [data.draw(st.sampled_from(sorted(active)))]}, "user")

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.runs))
        try:
            self.store.undo(self.workspace, run.job_id)
        except NotFound:
            # Its Session is gone, and nothing that it did is left.
            assert not any(change.job == run.job_id for entry in self.entries.values() for change in entry.log)
            return
        for entry in self.entries.values():
            last = entry.log[-1] if entry.log else None
            if last is None or last.job != run.job_id or last.before is None:
                continue
            version, hidden = last.before
            if version and version not in entry.versions:
                continue
            entry.active = version or entry.active
            entry.hidden = hidden if version else "distillation"
            entry.note(None, run.job_id)
        self.proposals = {place: s for place, s in self.proposals.items() if place[1] != run.job_id}

    # --- what goes --------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def delete_session(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.runs))
        try:
            self.store.delete_session(run.session.id)
        except NotFound:
            # Deleted or erased before.
            return

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def erase_session(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.runs))
        session = run.session.id
        try:
            self.store.erase_session(session)
        except NotFound:
            assert not any(
                session in version.sessions for e in self.entries.values() for version in e.versions.values()
            )
            return
        for key, entry in list(self.entries.items()):
            held = len(entry.versions), len(entry.log)
            borne = [version for version in entry.versions.values() if session in version.sessions]
            for version in borne:
                version.sessions.discard(session)
            entry.versions = {n: v for n, v in entry.versions.items() if v.sessions or v.typed}
            entry.log = [change for change in entry.log if change.session != session]
            if not entry.versions:
                del self.entries[key]
            elif held != (len(entry.versions), len(entry.log)):
                entry.settle()
        self.proposals = {place: s for place, s in self.proposals.items() if s != session}

    @rule()
    def grow_old(self) -> None:
        """What is hidden goes, what is not pinned is hidden; proposals go; forgotten keys stay forgotten."""
        self._live(181)
        self.store.maintain(POLICY)
        self.entries = {key: entry for key, entry in self.entries.items() if entry.hidden is None}
        for entry in self.entries.values():
            if not entry.pinned:
                entry.hidden = "retention"
                entry.note()
        self.proposals.clear()

    # --- what holds always --------------------------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        """The active set, its pins, versions, proposals, search and the view of now."""
        if not hasattr(self, "store"):
            return
        active = {
            key: (entry.versions[entry.active].content, entry.active, entry.pinned)
            for key, entry in self.entries.items()
            if entry.hidden is None
        }
        found = self.store.list_knowledge(self.workspace)
        assert {entry.key: (entry.content, entry.version, entry.pinned) for entry in found} == active
        now = self.store.list_knowledge(self.workspace, as_of=self.clock.now)
        assert {(entry.key, entry.version) for entry in now} == {(key, value[1]) for key, value in active.items()}
        for key, entry in self.entries.items():
            history = self.store.knowledge_history(self.workspace, key)
            assert {version.version: version.content for version in history} == {
                number: version.content for number, version in entry.versions.items()
            }
        waiting = {(proposal.key, proposal.job_id) for proposal in self.store.review(self.workspace)}
        assert waiting == set(self.proposals)
        for word in ("alpha", "delta"):
            hits = {hit.entry.key for hit in self.store.search_knowledge(self.workspace, word)}
            assert hits == {key for key, value in active.items() if word in value[0]}

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _live(self, days: int) -> None:
        with self.store.database.write() as transaction:
            for _ in range(days):
                self.clock.turn(DAY)
                lived.see(transaction, now=self.clock.now)


TestKnowledge = KnowledgeMachine.TestCase
TestKnowledge.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
