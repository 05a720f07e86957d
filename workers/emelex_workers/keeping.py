"""Where a fold writes down what it has finished: the ledger of its job, or nowhere.

The module owns these invariants:

- A state is taken up only when it is that of the very bytes that the Session holds now (`chain_at`).
- A state is written when as much has been read since the last one as that one has bytes: what is written in all is in
  proportion to the source, and a kill costs no more than what was read since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from emelex_core.db.database import Database
from emelex_core.errors import StorageBusy
from emelex_core.jobs import ledger
from emelex_core.jobs.ledger import Leaf, Progress


class Keeper(Protocol):
    """Keeps what a fold has finished."""

    def resume(self, settings: str) -> Progress | None:
        """What was finished under these settings before, or None."""
        ...

    def finished(self, leaves: list[Leaf], *, read_bytes: int, chain: bytes, state: Callable[[], bytes]) -> None:
        """Note that a leaf is finished; `read_bytes` is what it was made of."""
        ...


class NowhereKeeper:
    """Keeps nothing: for a run that is only compared, and for tests of the text alone."""

    def resume(self, settings: str) -> Progress | None:
        """Nothing."""
        del settings
        return None

    def finished(self, leaves: list[Leaf], *, read_bytes: int, chain: bytes, state: Callable[[], bytes]) -> None:
        """Do nothing."""


@dataclass(slots=True)
class LedgerKeeper:
    """Keeps it in the ledger of a running job."""

    database: Database
    job_id: str
    chain_at: Callable[[int], bytes | None]
    _settings: str = ""
    _known: int = 0
    _state_bytes: int = 0
    _read_bytes: int = 0

    def resume(self, settings: str) -> Progress | None:
        """What an earlier attempt finished of the same bytes, under the same settings. Raises: Corrupt."""
        self._settings = settings
        found = ledger.progress(self.database, self.job_id, settings)
        if found is None or not found.leaves or self.chain_at(found.leaves[-1].last_sequence) != found.chain:
            return None
        self._known, self._state_bytes = len(found.leaves), len(found.state)
        return found

    def finished(self, leaves: list[Leaf], *, read_bytes: int, chain: bytes, state: Callable[[], bytes]) -> None:
        """Write the leaves down when enough has been read; beside a lock that others hold, with the next one.

        Raises: Storage.
        """
        self._read_bytes += read_bytes
        if self._read_bytes < self._state_bytes:
            return
        done = Progress(leaves=tuple(leaves), state=state(), chain=chain)
        try:
            ledger.keep(self.database, self.job_id, self._settings, done, known=self._known)
        except StorageBusy:
            return
        self._known, self._state_bytes, self._read_bytes = len(leaves), len(done.state), 0
