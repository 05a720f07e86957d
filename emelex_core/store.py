"""MemoryStore: the door to everything durable. It is opened and closed here; each room's `door` has its verbs.

A room is imported by the verb that needs it, so that looking at a store costs no more than the database.

with MemoryStore.open(home, create=True) as store:
    session = store.start_session(workspace, title="…")
    with store.claim_session(session.id, workspace) as lease:
        lease.append_turn([Event.user("…"), Event.assistant("…")])
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, cast

from emelex_core import clock as clocks
from emelex_core import home
from emelex_core.assets.door import AssetVerbs
from emelex_core.db.database import Database
from emelex_core.db.opening import missing, open_database
from emelex_core.db.statements import load
from emelex_core.home import Home
from emelex_core.jobs.door import JobVerbs
from emelex_core.journal.door import JournalVerbs
from emelex_core.knowledge.door import KnowledgeVerbs
from emelex_core.retention.door import UpkeepVerbs
from emelex_core.sessions.door import SessionVerbs

if TYPE_CHECKING:
    from emelex_core.clock import Clock

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


class MemoryStore(SessionVerbs, JournalVerbs, JobVerbs, KnowledgeVerbs, AssetVerbs, UpkeepVerbs):
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
