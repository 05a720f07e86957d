"""The verbs of Knowledge as the store offers them. Delegations only: each opens its transaction and calls its room.

A room is imported by the verb that needs it, as in the store itself. Every change asks what the workspace is now.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from emelex_core import limits

if TYPE_CHECKING:
    from emelex_core.clock import Clock
    from emelex_core.db.database import Database
    from emelex_core.knowledge.by_hand import SourceEvent
    from emelex_core.knowledge.records import ChangeRecord, Knowledge, KnowledgeVersion, Proposal, Undone
    from emelex_core.knowledge.search import KnowledgeHit, Place, Recall

PathLike = str | os.PathLike[str]


class KnowledgeVerbs:
    """What `MemoryStore` does with Knowledge. A workspace of None is every workspace, where that can be asked."""

    database: Database
    clock: Clock

    def remember(
        self,
        workspace: PathLike,
        key: str,
        content: str,
        *,
        confidence: float = 1.0,
        source: SourceEvent | None = None,
    ) -> Knowledge:
        """Store what a person says under a key; identical content makes no version.

        Raises: Invalid, also for a source Session of another workspace; NotFound, Corrupt.
        """
        from emelex_core import identity
        from emelex_core.knowledge import by_hand

        bound = identity.inspect(workspace)
        with self.database.write() as transaction:
            return by_hand.remember(
                transaction, bound, key, content, now=self.clock(), confidence=confidence, source=source
            )

    def activate(self, workspace: PathLike, key: str, *, version: int | None = None) -> Knowledge:
        """Put a version into use; what was forgotten comes back. Raises: Invalid, NotFound, WorkspaceMismatch."""
        from emelex_core import identity
        from emelex_core.knowledge import by_hand

        bound = identity.inspect(workspace)
        with self.database.write() as transaction:
            return by_hand.activate(transaction, bound, key, now=self.clock(), version=version)

    def forget(self, workspace: PathLike, key: str, *, reason: str | None = None) -> Knowledge:
        """Hide an entry for good and unpin it; once more changes nothing.

        Raises: Invalid, NotFound, WorkspaceMismatch.
        """
        from emelex_core import identity
        from emelex_core.knowledge import by_hand

        bound = identity.inspect(workspace)
        with self.database.write() as transaction:
            return by_hand.forget(transaction, bound, key, now=self.clock(), reason=reason)

    def pin(self, workspace: PathLike, key: str) -> Knowledge:
        """Keep an entry from distillation and retention. Raises: Invalid, NotFound, WorkspaceMismatch."""
        return self._set_pin(workspace, key, pinned=True)

    def unpin(self, workspace: PathLike, key: str) -> Knowledge:
        """Take the pin away. Raises: Invalid, NotFound, WorkspaceMismatch."""
        return self._set_pin(workspace, key, pinned=False)

    def list_knowledge(
        self,
        workspace: PathLike | None,
        *,
        limit: int = limits.PAGE_KNOWLEDGE_MAX,
        before: tuple[int, int] | None = None,
        as_of: int | None = None,
    ) -> list[Knowledge]:
        """Active entries, the most recently changed first; with `as_of` those that held at that instant.

        Raises: as `list_sessions`.
        """
        from emelex_core.knowledge import recall
        from emelex_core.sessions import scope

        with self.database.read() as transaction:
            found, workspace_id = scope.find(transaction, workspace)
            if not found:
                return []
            return recall.page(transaction, workspace_id=workspace_id, limit=limit, before=before, as_of=as_of)

    def get_knowledge(self, workspace: PathLike, key: str) -> Knowledge:
        """One entry by its exact key, a forgotten one too. Raises: NotFound, Invalid."""
        from emelex_core import identity
        from emelex_core.errors import NotFound
        from emelex_core.knowledge import recall
        from emelex_core.sessions import registry

        bound = identity.inspect(workspace)
        with self.database.read() as transaction:
            workspace_id = registry.find_workspace(transaction, bound)
            if workspace_id is None:
                raise NotFound(f"no Knowledge under the key {key[:80]!r} in this workspace")
            return recall.show(transaction, workspace_id, key)

    def knowledge_history(
        self,
        workspace: PathLike,
        key: str,
        *,
        limit: int = limits.PAGE_KNOWLEDGE_MAX,
        before: int | None = None,
    ) -> list[KnowledgeVersion]:
        """Versions of an entry, the newest first, below a version number. Raises: NotFound, Invalid."""
        from emelex_core.knowledge import recall

        entry = self.get_knowledge(workspace, key)
        with self.database.read() as transaction:
            return recall.history(transaction, entry.row, limit=limit, before=before)

    def knowledge_changes(
        self, workspace: PathLike, key: str, *, limit: int = limits.PAGE_KNOWLEDGE_MAX
    ) -> list[ChangeRecord]:
        """Who changed an entry, why and in which run, the newest first. Raises: NotFound, Invalid."""
        from emelex_core.knowledge import changes, recall

        recall.check_limit(limit)
        entry = self.get_knowledge(workspace, key)
        with self.database.read() as transaction:
            return changes.page(transaction, entry.row, limit=limit)

    def search_knowledge(
        self,
        workspace: PathLike | None,
        words: str,
        *,
        limit: int = limits.PAGE_KNOWLEDGE_MAX,
        after: Place | None = None,
    ) -> list[KnowledgeHit]:
        """Active entries that hold every word, literally: the exact key first, then pins, then by rank.

        Raises: Invalid for blank or long words; as `list_sessions`.
        """
        from emelex_core.knowledge import search
        from emelex_core.sessions import scope
        from emelex_core.sessions import words as literal

        literal.parse(words)
        with self.database.read() as transaction:
            found, workspace_id = scope.find(transaction, workspace)
            if not found:
                return []
            return search.search(transaction, words, workspace_id=workspace_id, limit=limit, after=after)

    def recall(
        self,
        workspace: PathLike,
        prompt: str = "",
        *,
        entries_max: int = limits.RECALL_ENTRIES,
        budget: int = limits.RECALL_BYTES,
        confidence: float = limits.RECALL_CONFIDENCE,
        measure: Callable[[str], int] | None = None,
    ) -> Recall:
        """What a prompt is given of the workspace's Knowledge: pins, then the most relevant, within a budget.

        `budget` is in bytes, or in what `measure` counts. Raises: Invalid; as `list_sessions`.
        """
        from emelex_core.knowledge import search
        from emelex_core.sessions import scope

        with self.database.read() as transaction:
            found, workspace_id = scope.find(transaction, workspace)
            if not found or workspace_id is None:
                return search.Recall(entries=(), size=0, left_out=0)
            return search.recall(
                transaction,
                workspace_id=workspace_id,
                prompt=prompt,
                entries_max=entries_max,
                budget=budget,
                confidence=confidence,
                measure=measure,
            )

    def review(
        self, workspace: PathLike | None, *, limit: int = limits.PAGE_KNOWLEDGE_MAX, after: int = 0
    ) -> list[Proposal]:
        """Proposals that wait for a person, the oldest first, after a row. Raises: as `list_sessions`."""
        from emelex_core.knowledge import proposals
        from emelex_core.sessions import scope

        with self.database.read() as transaction:
            found, workspace_id = scope.find(transaction, workspace)
            if not found:
                return []
            return proposals.page(transaction, workspace_id=workspace_id, limit=limit, after=after)

    def accept(self, workspace: PathLike, proposal: str) -> Proposal:
        """Apply a proposal, named by its id or a prefix of it, as a person's own change.

        Raises: Invalid for one that was decided before; NotFound, AmbiguousId, WorkspaceMismatch, Corrupt.
        """
        from emelex_core import identity
        from emelex_core.knowledge import proposals

        bound = identity.inspect(workspace)
        with self.database.write() as transaction:
            return proposals.accept(transaction, bound, proposal, now=self.clock())

    def reject(self, workspace: PathLike, proposal: str) -> Proposal:
        """Decline a proposal. Raises: as `accept`."""
        from emelex_core import identity
        from emelex_core.knowledge import proposals

        bound = identity.inspect(workspace)
        with self.database.write() as transaction:
            return proposals.reject(transaction, bound, proposal, now=self.clock())

    def undo(self, workspace: PathLike, job: str) -> Undone:
        """Take back what one distillation changed, where nothing has changed it since.

        Raises: Invalid, NotFound, AmbiguousId, WorkspaceMismatch.
        """
        from emelex_core import identity
        from emelex_core.knowledge import undo

        bound = identity.inspect(workspace)
        with self.database.write() as transaction:
            return undo.undo(transaction, bound, job, now=self.clock())

    def _set_pin(self, workspace: PathLike, key: str, *, pinned: bool) -> Knowledge:
        from emelex_core import identity
        from emelex_core.knowledge import by_hand

        bound = identity.inspect(workspace)
        with self.database.write() as transaction:
            return by_hand.pin(transaction, bound, key, now=self.clock(), pinned=pinned)
