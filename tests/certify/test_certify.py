"""Certification: what a model earns, what the evidence is bound to, and what jobs then ask (ADR 0020)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from emelex_core.engine.ports import CancelToken, ChatEngine, EngineInfo, FinishReason, Generation, Request
from emelex_core.errors import Cancelled
from emelex_core.events import Event
from emelex_core.models import certificates
from emelex_core.models.certificates import Certificate, Grade
from emelex_workers.certify import abilities, trials
from emelex_workers.certify.judging import TRIALS, certify
from emelex_workers.distil import distil
from emelex_workers.summarise import summarise
from emelex_workers.text import judge
from emelex_workers.text.restate import UNCERTIFIED, Abilities, Freedom, Try
from scripted import ScriptedEngine, Writer, says
from stored_events import stored

FILLER = (
    "now very thoroughly ",
    "So it really does look as if ",
    "quite a long ",
    "just ",
    "once more ",
    "To be honest, ",
)
FILLER_ELSEWHERE = (
    "wirklich sehr ",
    "dann endlich ",
    "noch einmal ",
    "de verdad muy ",
    "por fin ",
    "La verdad es que ",
)


def written(text: str) -> Generation:
    return Generation(text=text, finish_reason=FinishReason.STOP, prompt_tokens=5, output_tokens=5, seconds=0.0)


def able(request: Request, cancel: CancelToken) -> Generation:
    """A model that does everything well."""
    asked = request.messages[-1].text
    if request.grammar == judge.GRAMMAR:
        return written("keep" if asked in trials.KEPT else "drop")
    for story in trials.STORIES:
        if asked == story.text:
            return written("It is about " + ", ".join(story.names) + ".")
    for filler in (*FILLER, *FILLER_ELSEWHERE):
        asked = asked.replace(filler, "", 1)
    return written(asked[0].upper() + asked[1:])


def certificate(write: Writer) -> Certificate:
    return certify(ScriptedEngine(write=write), clock=lambda: 7, cancel=CancelToken())


def test_a_model_that_does_it_all_earns_it_all() -> None:
    made = certificate(able)
    assert (made.words.form, made.judges.form, made.writes.form) == ("reword", "keep_or_drop", "summary")
    assert (made.words.trials, made.judges.good, made.writes.good) == (12, 20, 3)
    assert (made.snapshot_id, made.trials, made.made_at) == ("scripted@1", trials.DIGEST, 7)


@pytest.mark.parametrize("text", ["", "keep", "I'm sorry, I can't do that.", "PINEAPPLE", '{"summary": "x"}'])
def test_a_model_that_does_not_earns_nothing(text: str) -> None:
    made = certificate(says(text))
    assert (made.words.form, made.judges.form, made.writes.form) == (None, None, None)


def test_each_trial_is_told_and_a_stop_is_heard() -> None:
    told: list[tuple[int, int]] = []
    certify(ScriptedEngine(write=able), clock=lambda: 0, cancel=CancelToken(), tell=lambda *at: told.append(at))
    assert told == [(number, TRIALS) for number in range(1, TRIALS + 1)]
    stopped = CancelToken()
    stopped.cancel()
    with pytest.raises(Cancelled):
        certify(ScriptedEngine(write=able), clock=lambda: 0, cancel=stopped)


class Renamed(ScriptedEngine):
    """The same engine under other weights or another program."""

    snapshot = "scripted@1"
    program = "scripted"

    @property
    def info(self) -> EngineInfo:
        return replace(super().info, snapshot_id=self.snapshot, engine=self.program)


def test_evidence_is_bound_to_weights_program_and_trials(tmp_path: Path) -> None:
    models = tmp_path / "models"
    engine = Renamed(write=able)
    assert abilities.of(engine, models) is UNCERTIFIED
    assert abilities.of(engine, None) is UNCERTIFIED
    made = certificate(able)
    path = certificates.write(models, made)
    assert path.stat().st_mode & 0o777 == 0o600
    assert abilities.of(engine, models) == Abilities(certified=True, words=Freedom.REWORD, judges=True)
    engine.program = "scripted, threads 2"
    assert abilities.of(engine, models).certified, "threads are not the program"
    engine.program = "scripted 2"
    assert not abilities.of(engine, models).certified
    engine.program, engine.snapshot = "scripted", "scripted@2"
    assert not abilities.of(engine, models).certified
    certificates.write(models, msgspec.structs.replace(made, trials="0" * 64))
    assert not abilities.of(Renamed(write=able), models).certified


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"version": 99}', b"\xff"])
def test_a_file_that_is_no_certificate_is_none(tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = certificates.write(tmp_path / "models", certificate(able))
    path.write_bytes(data)
    assert not abilities.of(ScriptedEngine(write=able), tmp_path / "models").certified
    assert "no certificate" in caplog.text
    certificates.write(tmp_path / "models", certificate(able))
    assert abilities.of(ScriptedEngine(write=able), tmp_path / "models").certified


EVENTS = [
    Event.user("Please tell me about the uploads. We use pnpm here, not npm."),
    Event.tool("1", "ok", exit_code=0),
    *(
        Event.assistant(
            f"Our server now listens on port {8000 + number}, which I have very thoroughly checked twice over."
        )
        for number in range(4)
    ),
    *(
        Event.assistant(
            f"The database of part {number} is, as far as I have seen, stored in data/part_{number}.db now."
        )
        for number in range(4)
    ),
    Event.assistant("Let me go on. " * 60),
]


def asked(able_for: Abilities) -> list[str | None]:
    """The grammars of the calls of one Summary."""
    grammars: list[str | None] = []

    def write(request: Request, cancel: CancelToken) -> Generation:
        grammars.append(request.grammar)
        return written("x")

    summarise(
        stored(EVENTS), prior_summary=None, engine=ScriptedEngine(write=write), target_tokens=400,
        cancel=CancelToken(), this=Try(able=able_for),
    )  # fmt: skip
    return grammars


def test_jobs_ask_in_the_form_that_was_earned() -> None:
    """Free wordings where they are certified, else shortenings; with neither the model is only heard."""
    free = asked(UNCERTIFIED)
    assert asked(Abilities(certified=True, words=Freedom.REWORD, judges=False)) == free
    strict = asked(Abilities(certified=True, words=Freedom.LEAVE_OUT, judges=False))
    assert len(strict) == len(free) > 1
    assert set(strict).isdisjoint(free)
    assert len(asked(Abilities(certified=True, words=None, judges=False))) == 1


def test_a_judge_only_leaves_out_what_an_assistant_said() -> None:
    """A person's word stands whatever the judge says; without a certificate nobody judges."""

    def drops(request: Request, cancel: CancelToken) -> Generation:
        return written("drop" if request.grammar == judge.GRAMMAR else request.messages[-1].text)

    def made(judges: bool) -> list[str]:
        this = Try(able=Abilities(certified=True, words=Freedom.REWORD, judges=judges))
        engine = ScriptedEngine(write=drops)
        found = distil(stored(EVENTS), engine=engine, existing={}, cancel=CancelToken(), this=this)
        assert (found.provenance["judging"] is not None) is judges
        return [candidate.speaker.value for candidate in found.candidates]

    assert set(made(judges=False)) == {"user", "assistant"}
    assert set(made(judges=True)) == {"user"}


@pytest.mark.parametrize("text", ["maybe", "", "keep it", "DROP"])
def test_what_is_neither_keep_nor_drop_keeps(text: str) -> None:
    """Rules chose the line; a judge that does not answer changes nothing."""
    assert judge.Judge(ScriptedEngine(write=says(text)), CancelToken()).keeps("We use pnpm.")


def test_abilities_stand_in_a_record_and_come_back() -> None:
    for words in (*Freedom, None):
        able_for = Abilities(certified=True, words=words, judges=words is None)
        assert Abilities.read(able_for.stated()) == able_for


@pytest.mark.model
def test_the_built_in_model_is_what_the_decision_says(builtin: ChatEngine) -> None:
    """ADR 0020: it earns neither free wordings, nor judging, nor writing."""
    made = certify(builtin, clock=lambda: 0, cancel=CancelToken())
    assert made.words.form != "reword"
    assert (made.judges.form, made.writes.form) == (None, None)
    assert isinstance(made.words, Grade)
