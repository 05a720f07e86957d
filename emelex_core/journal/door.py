"""The verbs of turns under way as the store offers them: see, close, and what a Session began with. Delegations only.

A module is imported by the verb that needs it, as in the store itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emelex_core.clock import Clock
    from emelex_core.db.database import Database
    from emelex_core.journal.records import JournalledTurn, RecoveredTurn
    from emelex_core.journal.snapshots import SessionSnapshot

PathLike = str | os.PathLike[str]


class JournalVerbs:
    """What `MemoryStore` does with interrupted turns and snapshots."""

    database: Database
    clock: Clock

    def interrupted_turn(self, session_id: str) -> JournalledTurn | None:
        """The turn of a Session that has begun and has not ended: under way, or interrupted. Raises: Corrupt."""
        from emelex_core.journal import recovery

        return recovery.interrupted(self.database, session_id)

    def recover_session(
        self, session_id: str, workspace: PathLike, *, accept_unknown_effects: bool = False
    ) -> RecoveredTurn:
        """Close the interrupted turn of a Session without running anything again.

        Raises: Invalid when nothing was interrupted; UncertainToolInvocations naming the calls whose effects are
        unknown, unless they are accepted; as `MemoryStore.claim_session` and `SessionLease.prove`.
        """
        from emelex_core import identity
        from emelex_core.journal import recovery
        from emelex_core.sessions import lease as leases

        with leases.claim(self.database, session_id, identity.inspect(workspace), self.clock) as lease:
            recovery.require_recoverable(self.database, session_id, accept_unknown_effects=accept_unknown_effects)
            lease.prove()
            return recovery.recover(lease, clock=self.clock, accept_unknown_effects=accept_unknown_effects)

    def session_snapshot(self, session_id: str) -> SessionSnapshot | None:
        """What a Session was begun with, or None. Raises: Corrupt."""
        from emelex_core.journal import snapshots

        return snapshots.load(self.database, session_id)
