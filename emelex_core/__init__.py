"""Emelex memory's core: the store and all durable state. It publishes jobs; emelex_queue consumes them.

The names below are the public ones (contract.md, "Python"). Each is imported at its first use, so that a command that
only looks at a store does not pay for the rooms that it never enters.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from emelex_core.agent.durable import DurableAgentSession
    from emelex_core.agent.session import AgentSession
    from emelex_core.compaction_policy import CompactionPolicy
    from emelex_core.events import AssetRef, Event
    from emelex_core.journal.snapshots import SessionSnapshot
    from emelex_core.models.guard import MemorySnapshotReferenceGuard
    from emelex_core.models.manager import ModelManager
    from emelex_core.models.records import InstalledModel
    from emelex_core.sessions.lease import SessionLease
    from emelex_core.sessions.records import Session
    from emelex_core.store import MemoryStore

__all__ = [
    "AgentSession",
    "AssetRef",
    "CompactionPolicy",
    "DurableAgentSession",
    "Event",
    "InstalledModel",
    "MemorySnapshotReferenceGuard",
    "MemoryStore",
    "ModelManager",
    "Session",
    "SessionLease",
    "SessionSnapshot",
]

_PLACES: Final = {
    "AgentSession": "emelex_core.agent.session",
    "AssetRef": "emelex_core.events",
    "CompactionPolicy": "emelex_core.compaction_policy",
    "DurableAgentSession": "emelex_core.agent.durable",
    "Event": "emelex_core.events",
    "InstalledModel": "emelex_core.models.records",
    "MemorySnapshotReferenceGuard": "emelex_core.models.guard",
    "MemoryStore": "emelex_core.store",
    "ModelManager": "emelex_core.models.manager",
    "Session": "emelex_core.sessions.records",
    "SessionLease": "emelex_core.sessions.lease",
    "SessionSnapshot": "emelex_core.journal.snapshots",
}


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(place), name)
