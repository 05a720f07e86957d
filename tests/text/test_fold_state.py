"""A fold that is saved and taken up again goes on as if nothing had been."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from emelex_core.engine.ports import CancelToken
from emelex_core.events import AssetRef, Event, EventKind, TextPart
from emelex_core.jobs.ledger import Leaf, Progress
from emelex_workers.summarise import SummaryDraft, summarise
from emelex_workers.text import fold_state, outline
from emelex_workers.text.fold import Fold
from emelex_workers.text.windows import windows

from .conftest import ScriptedEngine, coding_transcript, stored, support_transcript

KINDS = st.sampled_from(["user", "assistant", "tool", "note", "error"])
SAID = st.text(alphabet="never the port is src/a.py 8081, not `x_y` 你好?\n", min_size=1, max_size=60)


class Memory:
    """A keeper that keeps everything in memory, and gives back what it had after so many leaves."""

    def __init__(self, given_back: Progress | None = None) -> None:
        self.given_back = given_back
        self.kept: list[Progress] = []

    def resume(self, settings: str) -> Progress | None:
        return self.given_back

    def finished(self, leaves: list[Leaf], *, read_bytes: int, chain: bytes, state: object) -> None:
        assert read_bytes > 0
        assert callable(state)
        self.kept.append(Progress(leaves=tuple(leaves), state=state(), chain=chain))


def summary(events: list, keeper: Memory) -> SummaryDraft:
    engine = ScriptedEngine(context_tokens=512)
    return summarise(
        events, prior_summary=None, engine=engine, target_tokens=300, cancel=CancelToken(), calls_max=0, keeper=keeper
    )


def test_a_summary_is_the_same_from_whatever_leaf_it_goes_on() -> None:
    """Each place at which a worker can be killed between two leaves."""
    one = [Event(kind=event.kind, parts=event.parts) for event in (*coding_transcript(), *support_transcript())]
    picture = AssetRef(sha256="0" * 64, kind="image", media_type="image/png", size=9)
    events = stored([*one, Event.user("Look at this.", picture), *one, Event.assistant("Let me explain. " * 40)])
    whole = Memory()
    made = summary(events, whole)
    assert len(whole.kept) > 2
    for progress in whole.kept:
        again = Memory(progress)
        repeated = summary(events, again)
        assert (repeated.text, repeated.provenance) == (made.text, made.provenance)
        assert len(again.kept) == len(whole.kept) - len(progress.leaves)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(KINDS, SAID), min_size=1, max_size=12))
def test_any_fold_survives_the_round_trip(said: list[tuple[str, str]]) -> None:
    makers = {
        "user": Event.user,
        "assistant": Event.assistant,
        "tool": lambda text: Event.tool("1", text, is_error=True, exit_code=1),
        "note": lambda text: Event.context(text, label="note"),
        "error": lambda text: Event(kind=EventKind.ERROR, parts=(TextPart(text=text),)),
    }
    events = stored([makers[kind](text) for kind, text in said])
    prior = outline.parse("Summary of events 1 to 2.\n\nRequests\n- [1] Do it.", last_sequence=2)
    fold = Fold(prior=prior)
    for window in windows(events, tokens_max=40, count=len):
        fold.add(window)
    again = fold_state.restored(fold_state.saved(fold), tuple(fold.leaves), prior)
    assert fold_state.saved(again) == fold_state.saved(fold)
    assert again.candidates() == fold.candidates()
