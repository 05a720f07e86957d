"""Knowledge candidates from self-written Sessions (behaviours 137, 172, 177, 184–187)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emelex_core import limits
from emelex_core.engine.ports import CancelToken, FinishReason
from emelex_core.errors import Cancelled, OutputRejected
from emelex_core.events import Event, EventKind, ReasoningPart, TextPart
from emelex_core.sessions.records import StoredEvent
from emelex_workers.distil import Distillation, distil
from emelex_workers.text import secrets
from emelex_workers.text.restate import FIRST_TRY, Abilities, Freedom, Try

from .conftest import ScriptedEngine, coding_transcript, generation, stored, support_transcript


def distilled(
    events: list[StoredEvent],
    engine: ScriptedEngine | None = None,
    *,
    existing: dict[str, str] | None = None,
    calls_max: int = 0,
    candidates_max: int = 24,
    this: Try = FIRST_TRY,
) -> Distillation:
    return distil(
        iter(events),
        engine=engine or ScriptedEngine(),
        existing=existing or {},
        cancel=CancelToken(),
        this=this,
        calls_max=calls_max,
        candidates_max=candidates_max,
    )


def contents(made: Distillation) -> list[str]:
    return [candidate.content for candidate in made.candidates]


def test_a_coding_session() -> None:
    made = distilled(coding_transcript())
    assert [(c.key, c.confidence, c.sequence, c.speaker) for c in made.candidates] == [
        ("rule.push-release-branch-without-asking", 0.95, 1, EventKind.USER),
        ("rule.use-pnpm-npm", 0.95, 1, EventKind.USER),
        ("fact.staging-server-listens-port", 0.85, 1, EventKind.USER),
        ("fact.root-cause-retry_limit-read-before-config-loaded", 0.7, 12, EventKind.ASSISTANT),
        ("fact.project-uses-evil-deploy-releases", 0.7, 4, EventKind.ASSISTANT),
    ]
    assert [c.key for c in made.candidates if c.quarantined] == ["fact.project-uses-evil-deploy-releases"]
    assert made.provenance["left_out"] == {"lower_ranked": 0, "said_by_tool": 1}


def test_a_support_session_in_german() -> None:
    """The joke is taken back, and the newer address stands."""
    made = distilled(support_transcript())
    assert contents(made) == [
        "Guten Tag, mein Name ist Ada Beispiel.",
        "Meine Bestellnummer lautet A-20417 und das Gerät ist ein Falke 300.",
        "Bitte rufen Sie mich niemals vor 10 Uhr an.",
        "Wir haben entschieden, den Akku kostenlos zu tauschen.",
        "Die Lieferadresse ist Marktplatz 12.",
    ]
    assert made.provenance["left_out"] == {"lower_ranked": 0, "superseded": 1, "taken_back": 1}


def test_every_quote_is_in_its_event_byte_for_byte() -> None:
    """Behaviour 186."""
    for events in (coding_transcript(), support_transcript()):
        by_id = {event.id: event for event in events}
        for candidate in distilled(events).candidates:
            assert candidate.quote.encode() in by_id[candidate.event_id].text.encode()
            assert by_id[candidate.event_id].kind is candidate.speaker


FACT = "The staging server listens on port 8081."


@pytest.mark.parametrize(
    "event",
    [
        Event.tool("1", FACT),
        Event.context(FACT, label="recalled_knowledge"),
        Event.audit(FACT, label="x"),
        Event(kind=EventKind.SUMMARY, parts=(TextPart(text=FACT),)),
        Event(kind=EventKind.ASSISTANT, parts=(ReasoningPart(text=FACT),)),
        Event.user(f"```\n{FACT}\n```"),
        Event.user(f"> {FACT}"),
        Event.user(f"<page>\n{FACT}\n</page>"),
        Event.user(f"Is it true? {FACT[:-1]}?"),
    ],
)
def test_only_a_speakers_own_words_are_evidence(event: Event) -> None:
    """Behaviours 177 and 186: nothing to remember is a success."""
    assert distilled(stored([event])).candidates == ()


@pytest.mark.parametrize(
    ("source", "quarantined", "left_out"),
    [
        (Event.tool("1", FACT), [True], "said_by_tool"),
        (Event.context(FACT, label="recalled_knowledge"), [], "recalled"),
    ],
)
def test_what_an_assistant_repeats_of_others_is_not_its_own_word(
    source: Event, quarantined: list[bool], left_out: str
) -> None:
    """Behaviours 177 and 186: a tool's word waits for review, recalled Knowledge is no evidence at all."""
    events = stored([source, Event.tool("0", "x"), Event.assistant("So the staging server listens on port 8081 here.")])
    made = distilled(events)
    assert [candidate.quarantined for candidate in made.candidates] == quarantined
    assert made.provenance["left_out"][left_out] == 1


def test_existing_keys_are_taken_over_and_equal_content_is_left_out() -> None:
    """Behaviour 177: the workspace's keys are known to the job."""
    events = stored([Event.user("The staging server listens on port 9090.\nWe use pnpm here, not npm.")])
    existing = {"infra.staging-server-listens-port": FACT, "rule.use-pnpm-npm": "We use pnpm here, not npm."}
    made = distilled(events, existing=existing)
    assert [(c.key, c.content) for c in made.candidates] == [
        ("infra.staging-server-listens-port", "The staging server listens on port 9090.")
    ]
    assert made.provenance["left_out"]["already_active"] == 1


def test_secrets_are_never_candidates() -> None:
    """Behaviour 187."""
    events = stored(
        [Event.user("The database password is hunter2.\nOur server uses the token npm_" + "a1B2c3D4" * 5 + ".")]
    )
    assert distilled(events).candidates == ()


def test_at_most_the_best_are_proposed_with_unique_keys() -> None:
    """Behaviour 137: never more than 128, whatever is asked for."""
    letters = "abcdefghij"
    names = [f"{a}{b}{c}" for a in letters for b in letters for c in letters[:3]]
    events = stored(
        [Event.user(f"The {name} server is a machine in rack {index}.") for index, name in enumerate(names)]
    )
    assert len(distilled(events).candidates) == 24
    made = distilled(events, candidates_max=10_000)
    assert len(made.candidates) == limits.CANDIDATES_MAX
    assert len({candidate.key for candidate in made.candidates}) == limits.CANDIDATES_MAX
    assert [c.sequence for c in made.candidates] == sorted(c.sequence for c in made.candidates)


LONG = "Our project now also very explicitly requires at the very least Python 3.11 and the library apsw for the store."


def test_the_model_words_long_sentences_and_the_quote_stays_the_sources() -> None:
    """A model that has earned it; without a certificate the speaker's own words stand (ADR 0020)."""
    engine = ScriptedEngine(lambda line, _: generation(line.replace("now also very explicitly ", "")))
    trusted = Try(able=Abilities(certified=True, words=Freedom.REWORD, judges=False))
    for this, content in ((trusted, LONG.replace("now also very explicitly ", "")), (FIRST_TRY, LONG)):
        (candidate,) = distilled(stored([Event.user(LONG)]), engine, calls_max=16, this=this).candidates
        assert (candidate.content, candidate.quote) == (content, LONG)


def test_a_broken_engine_applies_nothing() -> None:
    """Behaviour 171: all or nothing, with the cause."""
    engine = ScriptedEngine(lambda line, _: generation("cut", FinishReason.LENGTH))
    with pytest.raises(OutputRejected, match="truncated"):
        distilled(stored([Event.user(f"{FACT}\n{LONG}")]), engine, calls_max=16)


def test_cancelled_while_reading() -> None:
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(Cancelled):
        distil(coding_transcript(), engine=ScriptedEngine(), existing={}, cancel=cancel)


def test_the_same_events_give_the_same_result() -> None:
    assert distilled(coding_transcript()) == distilled(coding_transcript())


SAID = """
never always we use the port is 8081 password=hunter2 ghp_a8Kd03jQmZ71xLpV5tWc9YbE2nHs6RfU4gTo not.
server . decided I prefer <|im_end|> - > 你好。 project requires 😀 src/a.py ``` Our
"""
WORDS = st.sampled_from([*SAID.split(), "\n\r\n"])
MESSAGES = st.lists(WORDS, min_size=1, max_size=60).map(" ".join)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), MESSAGES), min_size=1, max_size=12), st.data()
)
def test_any_session_gives_exact_bounded_candidates(said: list[tuple[str, str]], data: st.DataObject) -> None:
    makers = {"user": Event.user, "assistant": Event.assistant, "tool": lambda text: Event.tool("1", text)}
    events = stored([makers[kind](text) for kind, text in said])
    by_id = {event.id: event for event in events}
    engine = ScriptedEngine(lambda line, _: generation(data.draw(st.one_of(MESSAGES, st.just(line[:-8])))))
    try:
        made = distilled(events, engine, calls_max=16)
    except OutputRejected:
        return
    assert len({candidate.key for candidate in made.candidates}) == len(made.candidates) <= 24
    for candidate in made.candidates:
        event = by_id[candidate.event_id]
        assert event.kind in {EventKind.USER, EventKind.ASSISTANT}
        assert candidate.quote.encode() in event.text.encode()
        assert not secrets.find(candidate.content)
        assert not secrets.find(candidate.quote)
        assert 0.5 <= candidate.confidence <= 1.0
        assert len(candidate.key.encode()) <= limits.KNOWLEDGE_KEY_BYTES_MAX
        assert candidate.operation == "upsert"
