"""The verbs of media as the store offers them. Delegations only.

A module is imported by the verb that needs it, as in the store itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from emelex_core import limits

if TYPE_CHECKING:
    from emelex_core.assets.media import Readable, Writable
    from emelex_core.assets.records import AssetLink, AssetRecord, CollectReport, LinkedAsset, VerifyReport
    from emelex_core.clock import Clock
    from emelex_core.db.database import Database
    from emelex_core.events import AssetRef

PathLike = str | os.PathLike[str]


class AssetVerbs:
    """What `MemoryStore` does with media."""

    database: Database
    assets_directory: Path
    clock: Clock

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
