"""The verbs of removal and upkeep as the store offers them. Delegations only.

A module is imported by the verb that needs it, as in the store itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from emelex_core.clock import Clock
    from emelex_core.db.database import Database
    from emelex_core.retention.erasure import Derived, Receipt
    from emelex_core.retention.masking import Finder
    from emelex_core.retention.records import MaintenanceReport, RetentionPolicy
    from emelex_core.retention.redaction import Redaction, RedactionRecord


class UpkeepVerbs:
    """What `MemoryStore` does so that what must go goes, and the file stays well."""

    database: Database
    assets_directory: Path
    clock: Clock

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
