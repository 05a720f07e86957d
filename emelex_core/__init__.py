"""Emelex memory's core: the store and all durable state. It publishes jobs; emelex_queue consumes them.

The names below are the public ones (contract.md, "Python").
"""

from emelex_core.compaction_policy import CompactionPolicy
from emelex_core.events import AssetRef, Event
from emelex_core.sessions.lease import SessionLease
from emelex_core.sessions.records import Session
from emelex_core.store import MemoryStore

__all__ = ["AssetRef", "CompactionPolicy", "Event", "MemoryStore", "Session", "SessionLease"]
