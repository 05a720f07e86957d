"""JobLease: the expiring authority of one worker over one job (behaviours 120, 123, 129 to 134).

The module owns these invariants:

- A lease comes from `claims.claim` only; it cannot be built, copied, pickled or read out.
- Exactly one of complete, fail and release settles it; each matches id, token and state in one statement.
- Leaving the `with` block without having settled is a counted failure. So is a lease that is merely dropped: at once if
  that takes no waiting, else by expiry or by its owner's death (behaviour 133).
- The result of a job is written in the transaction that completes it. Its worker's next claim may be made there, too.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from typing import Final, NoReturn, Self, TypeAlias, cast

from emelex_core import codec, faults, limits, publish
from emelex_core.clock import Clock
from emelex_core.db.database import Database, Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Cancelled, Corrupt, EmelexError, SessionBusy, StaleJobLease, Storage
from emelex_core.sessions import pages
from emelex_queue.backoff import backoff_ms, is_terminal
from emelex_queue.records import ClaimedJob
from emelex_queue.states import Verb

SQL: Final = load("emelex_queue", "jobs")
_KEY: Final = object()
_TOKEN_BYTES: Final = 16
_RECORD_BYTES_MAX: Final = 4 * limits.MIB
_DROPPED: Final = "the worker dropped the job unsettled"
Beside: TypeAlias = Callable[[Transaction], Callable[[], None]]
"""What is done beside a settlement, in its transaction; what it returns is called once that has committed."""


class JobLease:
    """A claimed job. Not for two threads at once; a heartbeat renews it through `renew_on` with its own connection."""

    def __init__(self, key: object, database: Database, job: ClaimedJob, token: bytes, clock: Clock) -> None:
        if key is not _KEY:
            raise TypeError("a JobLease comes from emelex_queue.claims.claim")
        self._database = database
        self._token = token
        self._clock = clock
        self.job = job

    @property
    def settled(self) -> bool:
        """Whether it was completed, failed, released or found lost."""
        return not self._token

    def renew_on(self, database: Database) -> None:
        """Extend the lease through a connection of the calling thread.

        Raises: StaleJobLease when another has the job.
        """
        holder = self._holder()
        with database.write() as transaction:
            renewed = transaction.run(SQL["renew"], {**holder, "now": self._clock(), "lease_ms": limits.LEASE_MS})
        if not renewed and not self.settled:
            raise self._stale("renew")

    def require_undisturbed(self, database: Database) -> None:
        """Look through a connection of the calling thread whether the work may go on. Writes nothing.

        Raises: SessionBusy when the job's Session has become live (interactive execution wins); StaleJobLease when
        the job is held no more: cancelled, expired or taken over.
        """
        holder = self._holder()
        with database.read() as transaction:
            self._require_idle(transaction)
            holds = transaction.one(SQL["holds"], holder) is not None
        if not holds and not self.settled:
            raise self._stale("go on with")

    def complete(
        self,
        apply: Callable[[Transaction], None],
        *,
        record: dict[str, object],
        beside: Beside = lambda transaction: lambda: None,
    ) -> None:
        """Write the result by `apply` and settle, in one transaction; `record` says what made it.

        Rechecks that the Session is idle and the source unchanged. `beside` comes last, when the job is settled.
        Raises: SessionBusy (nothing is counted: release), Corrupt, StaleJobLease, and whatever `apply` and `beside`
        raise; the job is then still running under this lease.
        """
        data = codec.encode(record, what="job record", bytes_max=_RECORD_BYTES_MAX)
        with self._database.write() as transaction:
            self._require_idle(transaction)
            self._require_source(transaction)
            now = self._clock()
            if not transaction.run(SQL["complete"], {**self._holder(), "now": now}):
                raise self._stale(Verb.COMPLETE)
            transaction.run(SQL["add_record"], {"id": self.job.id, "record": data, "now": now})
            apply(transaction)
            committed = beside(transaction)
            faults.reach("job.settling")
        self._token = b""
        faults.reach("job.settled")
        committed()

    def fail(self, diagnostic: str, *, permanent: bool = False) -> int | None:
        """Count a failure; return when the job may run again in milliseconds, or None when it became terminal.

        Raises: Invalid for a blank or long diagnostic, StaleJobLease.
        """
        codec.check_line(diagnostic, what="diagnostic", bytes_max=limits.DIAGNOSTIC_BYTES_MAX)
        with self._database.write() as transaction:
            retry_at = count_failure(
                transaction,
                job_id=self.job.id,
                token=self._token,
                failure_count=self.job.failure_count + 1,
                diagnostic=diagnostic,
                permanent=permanent,
                now=self._clock(),
            )
            if retry_at == LOST:
                raise self._stale(Verb.FAIL)
        self._token = b""
        return retry_at

    def release(self) -> None:
        """Give the job back without counting anything; a settled lease has nothing to give. Raises: StaleJobLease."""
        if not self._token:
            return
        with self._database.write() as transaction:
            if not transaction.run(SQL["release"], self._holder()):
                raise self._stale(Verb.RELEASE)
        self._token = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.settled:
            return
        if isinstance(error, Storage | Cancelled):
            # Neither a stop nor a locked disk is the job's failure. What cannot be given back now, expiry will count.
            with contextlib.suppress(EmelexError):
                self.release()
            self._token = b""
            return
        what = "the worker left the job unsettled" if error is None else f"{type(error).__name__}: {error}"
        try:
            self.fail(bounded(what))
        except EmelexError:
            # The block's own error tells more; the lease's expiry counts this attempt in any case.
            if kind is None:
                raise

    def __del__(self) -> None:
        # No wait: a destructor may run anywhere, even inside a transaction of this thread.
        if getattr(self, "_token", b""):
            parameters: dict[str, Value] = {**self._holder(), "error": _DROPPED}
            self._token = b""
            statement, instants = failure_statement(self.job.failure_count + 1, permanent=False, now=self._clock())
            self._database.try_write(statement, {**parameters, **instants})

    def __repr__(self) -> str:
        state = "settled" if self.settled else "held"
        return f"<JobLease of {self.job.kind} {self.job.id}, {state}, token hidden>"

    def __copy__(self) -> NoReturn:
        raise TypeError("a JobLease cannot be copied")

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("a JobLease cannot be copied")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a JobLease cannot be pickled")

    def _require_idle(self, transaction: Transaction) -> None:
        row = transaction.one(SQL["session_is_live"], {"session_id": self.job.session_id, "now": self._clock()})
        if row is not None:
            raise SessionBusy(f"Session {self.job.session_id} is in use; its job waits", held_until=cast(int, row[0]))

    def _require_source(self, transaction: Transaction) -> None:
        current = publish.current_source(
            transaction, self.job.kind.value, self.job.session_id, self.job.source.through_sequence
        )
        proven = pages.rehash(transaction, self.job.session_id, through=self.job.source.through_sequence)
        if current != self.job.source or not proven:
            raise Corrupt(
                f"Session {self.job.session_id}: the source of job {self.job.id} changed since it was published"
            )

    def _holder(self) -> dict[str, str | bytes]:
        return {"id": self.job.id, "token": self._token}

    def _stale(self, verb: str) -> StaleJobLease:
        self._token = b""
        return StaleJobLease(f"cannot {verb} job {self.job.id}: this worker's lease no longer holds it")


LOST: Final = -1
"""`count_failure` found that the token no longer holds the job."""


def count_failure(
    transaction: Transaction,
    *,
    job_id: str,
    token: bytes,
    failure_count: int,
    diagnostic: str,
    permanent: bool,
    now: int,
) -> int | None:
    """Count the n-th failure of a running job: back to pending with back-off, or failed.

    Returns the retry instant, None for terminal, or LOST.
    """
    statement, instants = failure_statement(failure_count, permanent=permanent, now=now)
    counted = transaction.run(statement, {"id": job_id, "token": token, "error": diagnostic, **instants})
    return instants.get("retry_after") if counted else LOST


def failure_statement(failure_count: int, *, permanent: bool, now: int) -> tuple[str, dict[str, int]]:
    """The statement that counts the n-th failure, and the instants that it asks for."""
    if permanent or is_terminal(failure_count):
        return SQL["fail_last"], {"now": now}
    return SQL["fail"], {"retry_after": now + backoff_ms(failure_count)}


def bounded(diagnostic: str) -> str:
    """Cut a diagnostic to its byte bound at a character; blank and unpaired text is made sayable."""
    data = diagnostic.encode("utf-8", "replace")[: limits.DIAGNOSTIC_BYTES_MAX]
    return data.decode("utf-8", "ignore").strip() or "no reason was given"


def grant(database: Database, job: ClaimedJob, token: bytes, clock: Clock) -> JobLease:
    """Make the lease of a job that `claims.claim` has just marked as running."""
    return JobLease(_KEY, database, job, token, clock)


def new_token() -> bytes:
    """A token that nobody can guess."""
    return secrets.token_bytes(_TOKEN_BYTES)
