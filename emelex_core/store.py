"""MemoryStore: the door to everything durable. Delegations only; each room owns its rules.

A room is imported by the verb that needs it, so that looking at a store costs no more than the database.

with MemoryStore.open(home, create=True) as store:
    session = store.start_session(workspace, title="…")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn([Event.user("…"), Event.assistant("…")])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, cast

from emelex_core import clock as clocks
from emelex_core import faults, home, limits
from emelex_core.db.database import Database
from emelex_core.db.opening import missing, open_database
from emelex_core.db.statements import load
from emelex_core.errors import Invalid
from emelex_core.home import Home
from emelex_core.knowledge.door import KnowledgeVerbs

if TYPE_CHECKING:
    from emelex_core.assets.media import Readable, Writable
    from emelex_core.assets.records import AssetLink, AssetRecord, CollectReport, LinkedAsset, VerifyReport
    from emelex_core.clock import Clock
    from emelex_core.compaction_policy import CompactionPlan
    from emelex_core.events import AssetRef, Event
    from emelex_core.identity import Workspace
    from emelex_core.jobs.records import Job
    from emelex_core.journal.records import JournalledTurn, RecoveredTurn
    from emelex_core.journal.snapshots import SessionSnapshot
    from emelex_core.models.manager import ModelManager
    from emelex_core.models.records import InstalledModel
    from emelex_core.publish import PublishedJob
    from emelex_core.retention.erasure import Derived, Receipt
    from emelex_core.retention.masking import Finder
    from emelex_core.retention.records import MaintenanceReport, RetentionPolicy
    from emelex_core.retention.redaction import Redaction, RedactionRecord
    from emelex_core.sessions.append import AppendedTurn
    from emelex_core.sessions.delete import DeletedSession
    from emelex_core.sessions.lease import SessionLease
    from emelex_core.sessions.rebind import Displaced, Rebound
    from emelex_core.sessions.records import ImportSource, Session, StoredEvent
    from emelex_core.sessions.search import TranscriptHits

PathLike = str | os.PathLike[str]
STORE: Final = load("emelex_core", "store")
STANDARD_ASSETS: Final = "assets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a store holds. Sizes are in bytes."""

    database_bytes: int
    sessions: int
    events: int
    knowledge: int
    tombstoned_knowledge: int
    assets: int
    asset_bytes: int
    schema_version: int
    sqlite_version: str


class MemoryStore(KnowledgeVerbs):
    """One open store. A context manager; usable from several threads, one transaction at a time."""

    def __init__(self, database: Database, assets_directory: Path, clock: Clock, *, place: Home | None = None) -> None:
        """Wrap an open database; use `open` or `open_path`. `place` is the Home that it was opened as a part of."""
        self.home = place
        self.database = database
        self.assets_directory = assets_directory
        self.clock = clock

    @classmethod
    def open(
        cls,
        place: PathLike | Home | None = None,
        *,
        create: bool = False,
        read_only: bool = False,
        clock: Clock = clocks.system_clock,
    ) -> Self:
        """Open the store of a Home, by default the user's own; `create` makes a missing one.

        Raises: NotFound when it is missing, Refused for what is not private and ours, NewerSchema, Corrupt, Storage.
        """
        place = place if isinstance(place, Home) else home.locate(place)
        if create:
            home.create(place)
        else:
            home.check_way(place.root)
            if not home.exists(place.database):
                raise missing(place.database)
        home.check_directory(place.root)
        assets_directory = place.memory / STANDARD_ASSETS
        home.check_asset_directory(assets_directory)
        database = open_database(place.database, create=create, read_only=read_only)
        return cls(database, assets_directory, clock, place=place)

    @classmethod
    def open_path(
        cls, path: PathLike, *, create: bool = False, read_only: bool = False, clock: Clock = clocks.system_clock
    ) -> Self:
        """Open an explicit database file; its assets live in the sibling `<name>.assets`. Raises: as `open`."""
        spelled = Path(os.path.abspath(path))  # noqa: PTH100 - the final component must not be resolved
        resolved = Path(os.path.realpath(spelled.parent)) / spelled.name
        assets_directory = resolved.with_name(resolved.name + ".assets")
        home.check_asset_directory(assets_directory)
        return cls(open_database(resolved, create=create, read_only=read_only), assets_directory, clock)

    def close(self) -> None:
        """Close the database and give up this owner's liveness. A second call does nothing."""
        self.database.close()
        self.database.owners.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- Sessions ---------------------------------------------------------------------------------------------------

    def start_session(
        self,
        workspace: PathLike,
        *,
        title: str,
        source: ImportSource | None = None,
        parent_session_id: str | None = None,
    ) -> Session:
        """Make an empty Session bound to a directory. Raises: Invalid for the directory or the title."""
        from emelex_core import identity
        from emelex_core.sessions import registry

        bound = identity.inspect(workspace)
        with self.database.write() as transaction:
            session_id = registry.start(
                transaction, bound, title=title, now=self.clock(), source=source, parent_session_id=parent_session_id
            )
            session = registry.get(transaction, session_id, now=self.clock())
        faults.reach("session.started")
        return session

    def claim_session(self, session_id: str, workspace: PathLike) -> SessionLease:
        """Claim a Session for its workspace.

        Raises: NotFound, SessionBusy with the deadline, WorkspaceMismatch, Invalid for the directory.
        """
        from emelex_core import identity
        from emelex_core.sessions import lease

        return lease.claim(self.database, session_id, identity.inspect(workspace), self.clock)

    def get_session(self, prefix: str) -> Session:
        """A Session by its id or a prefix of 8 or more characters. Raises: UsageError, NotFound, AmbiguousId."""
        from emelex_core.sessions import registry

        with self.database.read() as transaction:
            return registry.get(transaction, registry.resolve(transaction, prefix), now=self.clock())

    def bind_model(
        self, session_id: str, model: InstalledModel, *, manager: ModelManager, lease: SessionLease | None = None
    ) -> InstalledModel:
        """Bind a Session to an installed model, once; a claimed Session is bound under its lease.

        Raises: Invalid for a store without a Home, for another Home's manager or lease, and for another binding;
        ModelSnapshotInvalid for a model that is gone or altered; SessionBusy, StaleSessionLease, NotFound.
        """
        from emelex_core.sessions import binding

        if self.home != manager.home:
            raise Invalid("a model is bound in the memory of its own Home; this store was opened otherwise")
        if lease is not None:
            return lease.bind_model(model, manager=manager, database=self.database)
        return binding.bind(self.database, session_id, model, manager=manager, clock=self.clock)

    def list_sessions(
        self,
        workspace: PathLike | None = None,
        *,
        limit: int = limits.PAGE_SESSIONS_MAX,
        before: tuple[int, str] | None = None,
    ) -> list[Session]:
        """Sessions of one workspace, or of all, the most recently active first.

        Raises: Invalid; WorkspaceMismatch where the directory is not the one any more that Sessions were bound to.
        """
        from emelex_core import identity
        from emelex_core.sessions import rebind, registry

        bound = None if workspace is None else identity.inspect(workspace)
        with self.database.read() as transaction:
            workspace_id = None
            if bound is not None:
                workspace_id = registry.find_workspace(transaction, bound)
                if workspace_id is None:
                    rebind.require_not_displaced(transaction, bound)
                    return []
            return registry.page(transaction, workspace_id=workspace_id, now=self.clock(), limit=limit, before=before)

    def find_imported(self, source: str, source_id: str) -> Session | None:
        """The Session that was imported from a foreign one, or None."""
        from emelex_core.sessions import registry

        with self.database.read() as transaction:
            session_id = registry.find_imported(transaction, source, source_id)
            return None if session_id is None else registry.get(transaction, session_id, now=self.clock())

    def delete_session(self, session_id: str) -> DeletedSession:
        """Delete an idle Session with all that hangs on it, and the assets that only it linked.

        Raises: NotFound, SessionBusy for a live lease or worker, Storage.
        """
        from emelex_core.sessions import delete

        return delete.delete(self.database, self.assets_directory, session_id, clock=self.clock)

    def interrupted_turn(self, session_id: str) -> JournalledTurn | None:
        """The turn of a Session that has begun and has not ended: under way, or interrupted. Raises: Corrupt."""
        from emelex_core.journal import recovery

        return recovery.interrupted(self.database, session_id)

    def recover_session(
        self, session_id: str, workspace: PathLike, *, accept_unknown_effects: bool = False
    ) -> RecoveredTurn:
        """Close the interrupted turn of a Session without running anything again.

        Raises: Invalid when nothing was interrupted; UncertainToolInvocations naming the calls whose effects are
        unknown, unless they are accepted; as `claim_session` and `SessionLease.prove`.
        """
        from emelex_core.journal import recovery

        with self.claim_session(session_id, workspace) as lease:
            recovery.require_recoverable(self.database, session_id, accept_unknown_effects=accept_unknown_effects)
            lease.prove()
            return recovery.recover(lease, clock=self.clock, accept_unknown_effects=accept_unknown_effects)

    def session_snapshot(self, session_id: str) -> SessionSnapshot | None:
        """What a Session was begun with, or None. Raises: Corrupt."""
        from emelex_core.journal import snapshots

        return snapshots.load(self.database, session_id)

    def erase_session(self, session_id: str) -> Receipt:
        """Delete a Session with all that was derived from it, overwrite what is freed, and give a receipt.

        A Session that was deleted before leaves what was derived, by its full id. Raises: as `delete_session`.
        """
        from emelex_core.retention import erasure

        return erasure.erase(self.database, self.assets_directory, session_id, clock=self.clock)

    def derived_from(self, session_id: str) -> Derived:
        """What is derived from a Session and stored beside it, by its full id; it may be deleted."""
        from emelex_core.retention import erasure

        with self.database.read() as transaction:
            return erasure.remaining(transaction, session_id)

    def redact_session(self, session_id: str, find: Finder, *, kind: str, dry_run: bool = False) -> Redaction:
        """Replace what `find` finds in an idle Session and in what was derived from it, and keep a record.

        Raises: NotFound, SessionBusy, Invalid while a turn of it is open, Corrupt, Storage.
        """
        from emelex_core.retention import redaction

        return redaction.redact(self.database, session_id, find, kind=kind, clock=self.clock, dry_run=dry_run)

    def redactions(self, session_id: str) -> list[RedactionRecord]:
        """What was redacted in a Session so far, by its full id, the first first."""
        from emelex_core.retention import redaction

        with self.database.read() as transaction:
            return redaction.records(transaction, session_id)

    def rebind_session(
        self, session_id: str, workspace: PathLike, *, force: bool = False, dry_run: bool = False
    ) -> Rebound:
        """Bind a Session's directory, with all that belongs to it, to what it is now; say both identities.

        Raises: NotFound; Invalid when it is bound there; Refused while the old directory stands and `force` is off;
        SessionBusy, Storage.
        """
        from emelex_core import identity
        from emelex_core.sessions import rebind

        found = identity.inspect(workspace)
        return rebind.rebind(self.database, session_id, found, clock=self.clock, force=force, dry_run=dry_run)

    def displaced(self, workspace: PathLike) -> tuple[Displaced, ...]:
        """Directories with Sessions or Knowledge that this one may once have been. Raises: Invalid."""
        from emelex_core import identity
        from emelex_core.sessions import rebind

        with self.database.read() as transaction:
            return rebind.displaced(transaction, identity.inspect(workspace))

    def append_event(self, session_id: str, event: Event) -> AppendedTurn:
        """Append one event to a Session that nobody holds, as a turn of its own.

        Raises: Invalid, NotFound, SessionBusy with the deadline, TurnUnfinished.
        """
        from emelex_core.sessions import unclaimed

        return unclaimed.append_event(self.database, session_id, event, clock=self.clock)

    def set_title(self, session_id: str, title: str) -> None:
        """Change the title of a Session that nobody holds. Raises: Invalid, NotFound, SessionBusy."""
        from emelex_core.sessions import unclaimed

        unclaimed.set_title(self.database, session_id, title, clock=self.clock)

    def validate_workspace(self, session: Session, workspace: PathLike) -> Workspace:
        """Check that a directory is the one a Session is bound to, before a model is loaded.

        Raises: WorkspaceMismatch; NotFound for the Session, Invalid for the directory.
        """
        from emelex_core import identity
        from emelex_core.sessions import registry

        found = identity.inspect(workspace)
        with self.database.read() as transaction:
            _, bound = registry.bound_identity(transaction, session.id)
        identity.require_same(found.path, bound)
        return found

    def validate_model(self, session: Session, model: InstalledModel) -> None:
        """Check that a Session may go on with a model, before it is loaded: the one that it is bound to, by its bytes.

        Raises: SessionModelMismatch naming both; MissingModelIdentity for history that no model was bound to.
        """
        from emelex_core.sessions import binding

        binding.require_same(self.get_session(session.id), model)

    def read_events(self, session_id: str, *, after: int = 0, limit: int = limits.PAGE_EVENTS_MAX) -> list[StoredEvent]:
        """One bounded page of events after a sequence. Raises: Invalid, Corrupt."""
        from emelex_core.sessions import pages

        with self.database.read() as transaction:
            return pages.page(transaction, session_id, after=after, limit=limit)

    def iterate_events(self, session: Session) -> Iterator[StoredEvent]:
        """All raw events of a Session in order, proven, in bounded memory. Raises: Corrupt."""
        from emelex_core.sessions import pages

        return pages.verified(self.database, session.id, through=session.last_sequence)

    # --- jobs -------------------------------------------------------------------------------------------------------

    def queue_distillation(self, session_id: str) -> PublishedJob | None:
        """Publish the distillation of a Session; None when nothing was said in it. Raises: NotFound."""
        from emelex_core.publish import publish_distillation

        with self.database.write() as transaction:
            return publish_distillation(transaction, session_id, now=self.clock())

    def queue_compaction(self, session_id: str, plan: CompactionPlan) -> PublishedJob:
        """Publish a planned compaction; the same boundary twice is the same job. Raises: Invalid, NotFound."""
        from emelex_core.publish import publish_compaction

        with self.database.write() as transaction:
            return publish_compaction(
                transaction,
                session_id,
                through=plan.through_sequence,
                target_tokens=plan.target_tokens,
                now=self.clock(),
            )

    def failed_jobs(self, *, limit: int = limits.PAGE_FAILURES_MAX) -> list[Job]:
        """Terminal jobs with their diagnostics, the most recently failed first. Raises: Invalid."""
        from emelex_core.jobs import reading

        return reading.failed_jobs(self.database, limit=limit)

    def retry_failed_job(self, job_id: str) -> Job:
        """Reset one terminal job; its id and source stay. Raises: NotFound."""
        from emelex_core.jobs import reading

        return reading.retry_failed_job(self.database, job_id, now=self.clock())

    # --- search and assets --------------------------------------------------------------------------------------------

    def search_sessions(
        self,
        workspace: PathLike | None,
        words: str,
        *,
        session_id: str | None = None,
        limit: int = limits.PAGE_EVENTS_MAX,
        after: tuple[float, int] | None = None,
    ) -> TranscriptHits:
        """Events that hold every word, literally, also those that a Summary covers; the best first.

        Brings the index up to date first where the store can be written. Raises: Invalid, as `list_sessions`, Storage.
        """
        from emelex_core.sessions import search
        from emelex_core.sessions import words as literal

        literal.parse(words)
        if not self.database.read_only:
            search.catch_up(self.database)
        with self.database.read() as transaction:
            found, workspace_id = self._scope(transaction, workspace)
            if not found:
                return search.TranscriptHits(hits=(), unindexed=0)
            return search.search(
                transaction, words, workspace_id=workspace_id, session_id=session_id, limit=limit, after=after
            )

    def store_asset(self, source: bytes | Readable, *, kind: str | None = None) -> AssetRef:
        """Store media bytes once and return their reference; `kind` where it is not what the bytes are.

        Raises: Invalid, Corrupt, Refused, Storage.
        """
        from emelex_core.assets import publish

        return publish.publish(self.database, self.assets_directory, source, kind=kind, clock=self.clock)

    def read_asset(self, ref: AssetRef, *, link: AssetLink | None = None) -> bytes:
        """An asset's bytes, proven, also against the `link` of an event. Raises: Invalid, Corrupt, Storage."""
        from emelex_core.assets import read

        return read.read(self.database, self.assets_directory, ref, link=link)

    def copy_asset(self, ref: AssetRef, target: Writable, *, link: AssetLink | None = None) -> None:
        """Write an asset's bytes through one buffer; they stand if nothing is raised. Raises: as `read_asset`."""
        from emelex_core.assets import read

        read.copy(self.database, self.assets_directory, ref, target, link=link)

    def export_asset(self, prefix: str, destination: PathLike) -> AssetRecord:
        """Write an asset to a new file, whole or not at all. Raises: Invalid, NotFound, Refused, Corrupt, Storage."""
        from emelex_core.assets import export

        asset = self.get_asset(prefix)
        export.export(self.assets_directory, asset, Path(destination))
        return asset

    def get_asset(self, prefix: str) -> AssetRecord:
        """An asset by its digest or 8 or more of its first digits. Raises: Invalid, NotFound, AmbiguousId."""
        from emelex_core.assets import listing

        return listing.get(self.database, self.assets_directory, prefix)

    def list_assets(
        self, *, limit: int = limits.PAGE_ASSETS_MAX, before: tuple[int, str] | None = None
    ) -> list[AssetRecord]:
        """Cataloged assets, the newest first, after a cursor of (created_at, sha256). Raises: Invalid."""
        from emelex_core.assets import listing

        return listing.page(self.database, self.assets_directory, limit=limit, before=before)

    def list_session_assets(
        self, session_id: str, *, limit: int = limits.PAGE_ASSETS_MAX, after: tuple[int, int] = (0, 0)
    ) -> list[LinkedAsset]:
        """What a Session's events link, in order, after a cursor of (sequence, ordinal). Raises: Invalid."""
        from emelex_core.assets import listing

        return listing.of_session(self.database, session_id, limit=limit, after=after)

    def verify_assets(self, *, progress: Callable[[int, int], None] | None = None) -> VerifyReport:
        """Hash every cataloged asset; damage is reported, not raised. Raises: Refused, Storage."""
        from emelex_core.assets import verify

        return verify.verify(self.database, self.assets_directory, progress=progress)

    def collect_assets(self, *, grace_ms: int = limits.ASSET_GRACE_MS) -> CollectReport:
        """One bounded pass over what nothing refers to any more. Raises: Invalid for the grace, Refused, Storage."""
        from emelex_core.assets import collect

        return collect.collect(self.database, self.assets_directory, clock=self.clock, grace_ms=grace_ms)

    # --- upkeep -------------------------------------------------------------------------------------------------------

    def maintain(
        self,
        policy: RetentionPolicy | None = None,
        *,
        vacuum: bool = False,
        dry_run: bool = False,
        stopped: Callable[[], bool] = lambda: False,
    ) -> MaintenanceReport:
        """Remove what is too old and tend the file, in bounded phases; a dry run only says what would go.

        Raises: Invalid for a policy out of range, Cancelled when `stopped` said so between phases, Storage.
        """
        from emelex_core.retention import run as retention
        from emelex_core.retention.records import RetentionPolicy

        return retention.maintain(
            self.database,
            self.assets_directory,
            RetentionPolicy() if policy is None else policy,
            clock=self.clock,
            vacuum=vacuum,
            dry_run=dry_run,
            stopped=stopped,
        )

    # --- the whole ----------------------------------------------------------------------------------------------------

    def totals(self) -> Totals:
        """What the store holds."""
        with self.database.read() as transaction:
            row = transaction.one(STORE["totals"])
        assert row is not None
        sessions, events, knowledge, tombstoned, asset_count, asset_bytes = (cast(int, value) for value in row)
        page_count, page_bytes = self.database.pragma("page_count"), self.database.pragma("page_size")
        return Totals(
            database_bytes=cast(int, page_count) * cast(int, page_bytes),
            sessions=sessions,
            events=events,
            knowledge=knowledge,
            tombstoned_knowledge=tombstoned,
            assets=asset_count,
            asset_bytes=asset_bytes,
            schema_version=cast(int, self.database.pragma("user_version")),
            sqlite_version=self.database.sqlite_version,
        )
