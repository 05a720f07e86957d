"""The rules with the real built-in model, and on real transcripts (behaviours 184–188)."""

from __future__ import annotations

import pytest

from emelex_core.engine.ports import CancelToken, ChatEngine
from emelex_workers.distil import distil
from emelex_workers.summarise import summarise
from emelex_workers.text import guard, secrets
from emelex_workers.text.restate import INSTRUCTION, Restater, Try, settings_for

from .conftest import coding_transcript, stored, support_transcript
from .test_summarise import padded, statement_session

pytestmark = pytest.mark.model


def test_a_summary_by_the_built_in_model_keeps_what_the_rules_chose(builtin: ChatEngine) -> None:
    """Whatever the model wrote: constraints and names stand, the target holds by its own tokenizer, nothing leaks."""
    made = summarise(
        padded(coding_transcript()), prior_summary=None, engine=builtin, target_tokens=400, cancel=CancelToken()
    )
    assert made.tokens == builtin.count_text(made.text) <= 400
    for kept in (
        "Never push to the release branch",
        "`RETRY_LIMIT`",
        "`src/config/load.ts`",
        "`legacy_client`",
        "5000 ms",
    ):
        assert kept in made.text
    assert "evil.example" not in made.text
    assert not secrets.find(made.text)


def test_the_same_events_give_the_same_bytes(builtin: ChatEngine) -> None:
    """Determinism, whatever the engine ran in between (prefix reuse must not change a result)."""
    first, second = (
        summarise(statement_session(), prior_summary=None, engine=builtin, target_tokens=600, cancel=CancelToken())
        for _ in range(2)
    )
    assert first.usage.calls >= 4
    assert (first.text, first.provenance) == (second.text, second.provenance)


def test_the_stricter_grammar_binds_the_model_to_the_lines_words(builtin: ChatEngine) -> None:
    """Behaviour 178: at the second attempt the model can only leave words out; it cannot invent or deny."""
    line = "I have now very thoroughly checked that the 12 uploads of `alpha` do not work again in the browser at all."
    restater = Restater(builtin, CancelToken(), settings_for(Try(attempt=2, refusals=1)))
    wording = restater.word(line)
    assert restater.usage.calls == 1
    assert set(restater.refusals) <= {"unchanged"}
    if wording.by_model:
        assert guard.refusal_of(wording.text, line, instruction=INSTRUCTION) is None


def test_distillation_by_the_built_in_model_is_quoted(builtin: ChatEngine) -> None:
    for events in (coding_transcript(), support_transcript(), stored([])):
        by_id = {event.id: event for event in events}
        made = distil(events, engine=builtin, existing={}, cancel=CancelToken())
        assert all(candidate.quote in by_id[candidate.event_id].text for candidate in made.candidates)
        assert len(made.candidates) >= (4 if events else 0)
