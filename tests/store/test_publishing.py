"""Compaction policy and publishing (behaviours 114 to 118, 136, 175): what is due, and the row that says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emelex_core import CompactionPolicy, Event, MemoryStore, Session, limits
from emelex_core.compaction_policy import CompactionPlan, TurnSize
from emelex_core.errors import Invalid, NotFound
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims
from stores import ManualClock, edit, rows


def _turns(*tokens: int) -> list[TurnSize]:
    return [TurnSize(last_sequence=2 * (index + 1), tokens=size) for index, size in enumerate(tokens)]


def _plan(through: int, target: int = 64) -> CompactionPlan:
    return CompactionPlan(through_sequence=through, target_tokens=target, session_tokens=0, kept_tokens=0)


def test_below_the_trigger_nothing_is_due() -> None:
    """114: 799 of 1,000."""
    policy = CompactionPolicy(context_tokens=1_000)
    assert (policy.trigger_tokens, policy.target_tokens) == (800, 500)
    assert policy.plan(_turns(*[100] * 7, 99)) is None
    assert policy.plan(_turns(*[100] * 8)) is not None


def test_at_the_trigger_the_newest_four_turns_are_kept() -> None:
    """114: 900 of 1,000 in nine turns."""
    plan = CompactionPolicy(context_tokens=1_000).plan(_turns(*[100] * 9))
    assert plan is not None
    assert plan.through_sequence == 10
    assert (plan.session_tokens, plan.kept_tokens) == (900, 400)
    assert plan.kept_tokens + plan.target_tokens <= 500


def test_percentages_round_up_and_down() -> None:
    """Limits: trigger ceil 80 %, target floor 50 %."""
    policy = CompactionPolicy(context_tokens=1_001)
    assert (policy.trigger_tokens, policy.target_tokens) == (801, 500)


@pytest.mark.parametrize(
    "sizes",
    [
        [100, 100, 100, 100, 500],
        [10, 300, 200, 200, 200],
        [900],
        [225, 225, 225, 225],
        [500, 110, 110, 110, 110],
    ],
)
def test_where_removing_cannot_reach_the_target_nothing_is_planned(sizes: list[int]) -> None:
    """115 and 175: "nothing to gain" is an answer."""
    assert CompactionPolicy(context_tokens=1_000).plan(_turns(*sizes)) is None


@given(
    context=st.integers(1, 20_000),
    sizes=st.lists(st.integers(0, 3_000), max_size=40),
    carried=st.integers(0, 3_000),
    keep=st.integers(1, 8),
)
def test_every_plan_gains(context: int, sizes: list[int], carried: int, keep: int) -> None:
    """114, 115, 118, 175: a plan removes something, keeps enough turns, ends on a turn and comes down to its target."""
    policy = CompactionPolicy(context_tokens=context, keep_turns=keep)
    turns = _turns(*sizes)
    plan = policy.plan(turns, carried_tokens=carried)
    if plan is None:
        return
    total = carried + sum(sizes)
    kept = [turn for turn in turns if turn.last_sequence > plan.through_sequence]
    assert total >= policy.trigger_tokens
    assert plan.through_sequence in {turn.last_sequence for turn in turns}
    assert len(kept) >= keep
    assert plan.kept_tokens == sum(turn.tokens for turn in kept)
    assert plan.target_tokens > 0
    assert plan.kept_tokens + plan.target_tokens <= policy.target_tokens < total


@pytest.mark.parametrize(
    "stated",
    [
        {"context_tokens": 0},
        {"context_tokens": 100, "trigger_percent": 50},
        {"context_tokens": 100, "trigger_percent": 101},
        {"context_tokens": 100, "target_percent": 0},
        {"context_tokens": 100, "keep_turns": 0},
        {"context_tokens": 100, "keep_turns": limits.COMPACTION_KEEP_TURNS_MAX + 1},
    ],
)
def test_a_policy_is_checked(stated: dict[str, int]) -> None:
    """Limits: keep 1 to 64 turns, percentages in order."""
    with pytest.raises(Invalid):
        CompactionPolicy(**stated)


@pytest.mark.parametrize(
    ("through", "words"), [(0, "not past"), (-1, "not past"), (5, "not an event"), (1, "splits"), (3, "splits")]
)
def test_a_boundary_ends_a_turn(store: MemoryStore, session: Session, through: int, words: str) -> None:
    """116: missing, or inside a turn."""
    with pytest.raises(Invalid, match=words):
        store.queue_compaction(session.id, _plan(through))
    assert rows(store.database.path, "SELECT count(*) FROM jobs") == [(0,)]


def test_a_target_is_positive(store: MemoryStore, session: Session) -> None:
    """116: what the schema would refuse is told as the caller's mistake."""
    with pytest.raises(Invalid, match="tokens"):
        store.queue_compaction(session.id, _plan(2, target=0))


def test_a_boundary_lies_past_the_newest_summary(store: MemoryStore, session: Session) -> None:
    """118: at or below it is Invalid."""
    edit(store.database.path, "UPDATE sessions SET summary_sequence = 3, covered_sequence = 2")
    with pytest.raises(Invalid, match="newest Summary"):
        store.queue_compaction(session.id, _plan(2))
    assert store.queue_compaction(session.id, _plan(4)).created


@pytest.mark.parametrize("kind", list(JobKind))
def test_the_same_source_twice_is_the_same_job_in_its_true_state(
    store: MemoryStore, session: Session, kind: JobKind
) -> None:
    """117 and 136: pending, running and failed are told; a failed one is not called queued."""

    def publish() -> tuple[str, str, bool]:
        job = (
            store.queue_distillation(session.id)
            if kind is JobKind.DISTILLATION
            else store.queue_compaction(session.id, _plan(2))
        )
        assert job is not None
        return job.id, job.state, job.created

    first = publish()
    assert first[1:] == ("pending", True)
    assert publish() == (first[0], "pending", False)
    lease = claims.claim(store.database, kind, clock=store.clock)
    assert lease is not None
    assert publish() == (first[0], "running", False)
    lease.fail("no", permanent=True)
    assert publish() == (first[0], "failed", False)
    assert rows(store.database.path, "SELECT count(*) FROM jobs") == [(1,)]


def test_the_job_that_waits_follows_a_grown_transcript(store: MemoryStore, session: Session, workspace: Path) -> None:
    """136 and 177: one untried distillation a Session, whatever it grows: same id, same place, the new source."""
    with store.claim_session(session.id, workspace) as lease:
        first = lease.release(distill=True)
    with store.claim_session(session.id, workspace) as lease:
        again = lease.release(distill=True)
    with store.claim_session(session.id, workspace) as lease:
        lease.replay()
        lease.append_turn([Event.user("more")])
        grown = lease.release(distill=True)
    assert first is not None
    assert again is not None
    assert grown is not None
    assert (first.id, first.through_sequence, first.created) == (again.id, 4, True)
    assert not again.created
    assert (grown.id, grown.through_sequence, grown.created) == (first.id, 5, False)
    assert rows(store.database.path, "SELECT count(*), max(through_sequence) FROM jobs") == [(1, 5)]


@pytest.mark.parametrize("end", ["running", "released", "failed once", "completed"])
def test_a_job_that_was_tried_keeps_its_source(store: MemoryStore, session: Session, workspace: Path, end: str) -> None:
    """136: what a worker has counted or holds stays what it is; a release counts nothing, so that job follows."""
    first = store.queue_distillation(session.id)
    lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert first is not None
    assert lease is not None
    match end:
        case "released":
            lease.release()
        case "failed once":
            lease.fail("no")
        case "completed":
            lease.complete(lambda transaction: None, record={"kind": "distillation"})
        case _:
            pass
    with store.claim_session(session.id, workspace) as held:
        held.replay()
        held.append_turn([Event.user("more")])
        grown = held.release(distill=True)
    assert grown is not None
    assert (grown.id == first.id) == (end == "released")
    sources = rows(store.database.path, "SELECT id, through_sequence FROM jobs ORDER BY row")
    assert sources == ([(first.id, 5)] if end == "released" else [(first.id, 4), (grown.id, 5)])


def test_an_empty_session_has_nothing_to_distil(store: MemoryStore, workspace: Path) -> None:
    """136: none is an answer; a Session that is not there is an error (189)."""
    session = store.start_session(workspace, title="t")
    with store.claim_session(session.id, workspace) as lease:
        assert lease.release(distill=True) is None
    assert store.queue_distillation(session.id) is None
    with pytest.raises(NotFound):
        store.queue_distillation("nobody")
    with pytest.raises(NotFound):
        store.queue_compaction("nobody", _plan(1))


def test_publishing_and_releasing_are_one_transaction(
    store: MemoryStore, session: Session, workspace: Path, clock: ManualClock
) -> None:
    """Contract, "The queue": a lease that was lost publishes nothing."""
    lease = store.claim_session(session.id, workspace)
    clock.turn(limits.LEASE_MS)
    with store.claim_session(session.id, workspace):
        with pytest.raises(Exception, match="no longer holds"):
            lease.release(distill=True)
        assert rows(store.database.path, "SELECT count(*) FROM jobs") == [(0,)]


def test_a_job_names_its_exact_source(store: MemoryStore, session: Session) -> None:
    """Seed: event count, first and last id, and a digest that no other kind, Session or prefix shares."""
    distillation = store.queue_distillation(session.id)
    compactions = [store.queue_compaction(session.id, _plan(through)) for through in (2, 4)]
    assert distillation is not None
    found = rows(
        store.database.path,
        "SELECT source_sha256, through_sequence, source_event_count, source_first_event_id, source_last_event_id "
        "FROM jobs",
    )
    events = store.read_events(session.id)
    assert {row[1:] for row in found} == {
        (4, 4, events[0].id, events[3].id),
        (2, 2, events[0].id, events[1].id),
    }
    assert len({row[0] for row in found}) == len(compactions) + 1


def test_a_prefix_has_one_digest_and_every_field_is_in_it() -> None:
    """Seed, "domain-separated SHA-256": a change of any field, or of where one ends, changes the digest."""
    from emelex_core import digests

    base = {
        "sequence": 1,
        "event_id": "e",
        "turn_id": "t",
        "turn_position": 0,
        "turn_size": 1,
        "kind": "user",
        "source_record": None,
        "occurred_at": None,
        "created_at": 5,
        "payload": b"{}",
    }
    other = {
        "sequence": 2,
        "event_id": "et",
        "turn_id": "u",
        "turn_position": 1,
        "turn_size": 2,
        "kind": "tool",
        "source_record": "",
        "occurred_at": 0,
        "created_at": 6,
        "payload": b"[]",
    }
    first = digests.first_chain("s")
    chains = [digests.next_chain(first, **base)]  # type: ignore[arg-type]  # one table of values for all fields
    chains += [digests.next_chain(first, **{**base, name: value}) for name, value in other.items()]  # type: ignore[arg-type]  # one table of values for all fields
    chains.append(digests.next_chain(first, **{**base, "event_id": "", "turn_id": "et"}))  # type: ignore[arg-type]  # one table of values for all fields
    chains.append(digests.next_chain(digests.first_chain("r"), **base))  # type: ignore[arg-type]  # one table of values for all fields
    assert len(set(chains)) == len(chains)
