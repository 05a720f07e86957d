"""Redacting a transcript: the text goes everywhere, every digest proves again, a record stays (ADR 0018)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emelex_core import Event, MemoryStore, Session
from emelex_core.archive.check import check
from emelex_core.errors import Corrupt, Invalid, NotFound, SessionBusy
from emelex_core.events import ToolCallPart
from emelex_core.jobs.kinds import JobKind
from emelex_core.retention.masking import MASK, mask
from emelex_queue import claims
from runs import active, distilled, holding, summarised
from stores import edit, rows

TOKEN = "ZX-41"


def _find(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(TOKEN, text, re.IGNORECASE)]


@pytest.fixture
def told(store: MemoryStore, workspace: Path) -> Session:
    """A compacted and distilled Session that says the token in words, arguments, results, Summary and title."""
    run = distilled(store, workspace, ("token", f"the token is {TOKEN}, really"), title=f"about {TOKEN}")
    call = ToolCallPart(call_id="c1", name="shell", arguments={"command": f"echo {TOKEN}", TOKEN: [TOKEN, 1]})
    with store.claim_session(run.session.id, workspace) as lease:
        lease.replay()
        lease.append_turn([Event.user("go"), Event.assistant("", call), Event.tool("c1", f"{TOKEN}{TOKEN}")])
        lease.append_turn([Event.user("bye")])
    summarised(store, run.session, 1, f"They spoke of {TOKEN}.")
    return store.get_session(run.session.id)


def test_the_text_is_gone_and_everything_proves(store: MemoryStore, workspace: Path, told: Session) -> None:
    """Replay, a check of all digests, the quote in its event, a settlement of what was pending."""
    home = store.database.path.parent.parent
    assert len(store.search_sessions(workspace, TOKEN).hits) == 3
    with store.claim_session(told.id, workspace) as lease:
        lease.replay()
        lease.release(distill=True)
    done = store.redact_session(told.id, _find, kind="pattern")
    assert (done.events, done.places, done.first_sequence, done.clean) == (4, 7, 1, True)
    assert holding(home, TOKEN) == []
    assert check(store).findings == ()
    with store.claim_session(told.id, workspace) as lease:
        shown = [event.text for event in lease.replay().events]
    assert shown[0] == f"They spoke of {MASK}."
    assert active(store, workspace) == {"token": f"the token is {MASK}, really"}
    entry = store.get_knowledge(workspace, "token")
    assert entry.evidence is not None
    assert entry.evidence.quote == f"the token is {MASK}, really"
    assert entry.evidence.quote in store.read_events(told.id, limit=1)[0].text
    assert store.get_session(told.id).title == f"about {MASK}"
    assert store.search_sessions(workspace, TOKEN).hits == ()
    assert store.search_knowledge(workspace, TOKEN) == []
    assert [hit.sequence for hit in store.search_sessions(workspace, "redacted").hits] != []
    pending = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert pending is not None
    pending.complete(lambda transaction: None, record={})


def test_the_record_stays(store: MemoryStore, told: Session, path: Path) -> None:
    """Both chain values, both digests of each job's source; nothing of the text or the pattern."""
    before = dict(rows(path, "SELECT id, source_sha256 FROM jobs"))
    done = store.redact_session(told.id, _find, kind="pattern")
    (record,) = store.redactions(told.id)
    assert (record.places, record.chain_before, record.chain_after) == (7, done.chain_before, done.chain_after)
    assert rows(path, "SELECT chain FROM sessions") == [(bytes.fromhex(done.chain_after),)]
    after = dict(rows(path, "SELECT id, source_sha256 FROM jobs"))
    moved = rows(path, "SELECT job_id, sha256_before, sha256_after FROM redacted_sources")
    assert sorted(moved) == sorted((job, before[job], after[job]) for job in before)
    assert store.redact_session(told.id, _find, kind="pattern").places == 0
    assert len(store.redactions(told.id)) == 1


def test_a_dry_run_counts_the_same(store: MemoryStore, told: Session, path: Path) -> None:
    """And changes nothing."""
    before = rows(path, "SELECT * FROM events")
    dry = store.redact_session(told.id, _find, kind="pattern", dry_run=True)
    assert rows(path, "SELECT * FROM events") == before
    wet = store.redact_session(told.id, _find, kind="pattern")
    assert (dry.events, dry.places, dry.first_sequence) == (wet.events, wet.places, wet.first_sequence)


def test_what_stands_under_a_key_that_names_it_goes(store: MemoryStore, workspace: Path) -> None:
    """A key cannot be rewritten: it is how a person finds an entry. Proposals too."""
    run = distilled(store, workspace, (f"token.{TOKEN}", "x"), (f"page.{TOKEN}", "y"), ("plain", "z"))
    distilled(store, workspace, (f"page.{TOKEN}", "w"), speaker="tool", session=run.session)
    store.redact_session(run.session.id, _find, kind="pattern")
    assert active(store, workspace) == {"plain": "z"}
    assert store.review(workspace) == []
    assert holding(store.database.path.parent.parent, TOKEN) == []


def test_a_key_made_of_struck_words_goes_with_them(store: MemoryStore, workspace: Path) -> None:
    """A key is a slug: folded, joined and cut, so that the pattern itself no longer finds what it was made of."""
    said = "I prefer Alice Kowalska for reviews."
    run = distilled(
        store,
        workspace,
        ("preference.prefer-alice-kowalska-reviews", said),
        ("rule.deploy-flag-alice-use-port", "Ask Alice Kowalska before a deploy to port 80."),
        ("rule.reviews", "Reviews take a day."),
    )
    name = re.compile("Alice Kowalska")
    store.redact_session(run.session.id, lambda text: [match.span() for match in name.finditer(text)], kind="pattern")
    assert active(store, workspace) == {"rule.reviews": "Reviews take a day."}
    home = store.database.path.parent.parent
    assert holding(home, "Kowalska") == holding(home, "kowalska") == []


def test_damage_is_not_rewritten_into_truth(store: MemoryStore, told: Session, path: Path) -> None:
    """47: a history that does not prove stays as it is, named."""
    edit(path, "UPDATE events SET created_at = 1 WHERE sequence = 2")
    before = rows(path, "SELECT * FROM events")
    for dry_run in (True, False):
        with pytest.raises(Corrupt, match="event 2"):
            store.redact_session(told.id, _find, kind="pattern", dry_run=dry_run)
    assert rows(path, "SELECT * FROM events") == before


def test_nobody_else_uses_the_session(store: MemoryStore, workspace: Path, told: Session, path: Path) -> None:
    """A lease, a worker, an open turn; a Session that is not there."""
    with store.claim_session(told.id, workspace) as lease:
        with pytest.raises(SessionBusy):
            store.redact_session(told.id, _find, kind="pattern")
        lease.replay()
        lease.release(distill=True)
    job = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert job is not None
    with pytest.raises(SessionBusy):
        store.redact_session(told.id, _find, kind="pattern")
    job.release()
    with pytest.raises(NotFound):
        store.redact_session("0" * 36, _find, kind="pattern")
    edit(
        path,
        "INSERT INTO active_turns (session_id, turn_id, input, checkpoint_count, started_at) "
        "VALUES (?, ?, x'7b7d', 0, 1)",
        (told.id, "t" * 36),
    )
    with pytest.raises(Invalid, match="turn"):
        store.redact_session(told.id, _find, kind="pattern")
    edit(path, "DELETE FROM active_turns")
    assert store.redact_session(told.id, _find, kind="pattern").places == 7


TEXTS = st.text(alphabet="abX ", max_size=40)


@given(text=TEXTS, start=st.integers(0, 40), end=st.integers(0, 40))
def test_a_quote_follows_its_text(text: str, start: int, end: int) -> None:
    """Whatever part of a text is quoted, the rewritten quote stands in the rewritten text and holds nothing found."""
    masked = mask(text, lambda found: [match.span() for match in re.finditer("X+|XbX", found)])
    assert "X" not in masked.after
    quote = text[min(start, end) : max(start, end)]
    followed = masked.follow(quote)
    assert followed is not None
    assert followed in masked.after
    if "X" not in quote and quote:
        assert followed == quote


def test_overlapping_places_are_one() -> None:
    """And empty ones are none."""
    found: Any = [(0, 3), (2, 5), (7, 7), (8, 9)]
    assert mask("0123456789", lambda text: found).after == f"{MASK}567{MASK}9"
