"""Which workspace is asked for: one directory's, or every one."""

from __future__ import annotations

import os

from emelex_core import identity
from emelex_core.db.database import Transaction
from emelex_core.sessions import rebind, registry


def find(transaction: Transaction, workspace: str | os.PathLike[str] | None) -> tuple[bool, int | None]:
    """Whether there is anything to look at, and in which workspace; None is everywhere.

    Raises: Invalid; WorkspaceMismatch where the directory is not the one any more that Sessions were bound to.
    """
    if workspace is None:
        return True, None
    bound = identity.inspect(workspace)
    workspace_id = registry.find_workspace(transaction, bound)
    if workspace_id is None:
        rebind.require_not_displaced(transaction, bound)
        return False, None
    return True, workspace_id
