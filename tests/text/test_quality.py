"""The quality bench in small: what `make quality` measures over hundreds of transcripts, held to its targets on a few.

Behaviours 174 to 178, 184 to 188; issue 8, "Proof". Seeds are those that the rules were tuned on: a target that is
missed here is a rule that broke.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripted import ScriptedEngine

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench" / "quality"))

from generate import transcript
from measure import Figures, Run, measure, secret_shapes
from page import NONE, TARGETS, Table, page
from score import Share


@pytest.fixture(scope="module")
def figures() -> Figures:
    """Three domains in three languages, without a model."""
    return measure([7], 9, Run(engine=ScriptedEngine(context=8_192), calls_max=0), tell=lambda name: None)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_shares_reach_their_targets(figures: Figures, name: str) -> None:
    assert figures.shares[name].total > 0
    assert figures.shares[name].value >= TARGETS[name]


@pytest.mark.parametrize("name", NONE)
def test_what_must_not_be_is_not(figures: Figures, name: str) -> None:
    assert figures.counts[name] == 0


def test_no_shape_of_a_secret_outlives_masking() -> None:
    """Behaviour 187."""
    assert secret_shapes(3) == []


def test_a_transcript_is_the_same_each_time_and_poison_shifts_nothing() -> None:
    """The unharmed twin of a poisoned transcript differs by the poison alone."""
    assert transcript(3, 4) == transcript(3, 4)
    assert transcript(3, 4) != transcript(4, 4)
    told, clean = transcript(3, 4), transcript(3, 4, poisoned=False)
    assert {plant.line for plant in told.plants} - {plant.line for plant in clean.plants} == {
        plant.line for plant in told.plants if plant.kind.value.startswith("poison")
    }


def test_a_share_knows_its_interval() -> None:
    share = Share()
    for good in (1, 0, 1, 1, 0, 1, 1, 1):
        share.add(good, 1)
    low, high = share.interval()
    assert low < share.value == 0.75 < high
    assert share.interval() == (low, high)


def test_the_page_says_what_was_missed(figures: Figures) -> None:
    bad = Figures(shares={name: Share(parts=[(0, 1)]) for name in TARGETS})
    text = page([Table(title="t", transcripts=1, seeds="1", figures=bad)], {}, (30, ["jwt"]), "# Notes")
    assert text.count("**missed**") == len(TARGETS)
    assert "these outlived masking: jwt" in text
