"""The rules on real transcripts, where the shared corpus is there (behaviours 175, 186, 187)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emelex_core.engine.ports import CancelToken
from emelex_core.errors import PermanentFailure
from emelex_core.events import AssetRef, Event
from emelex_core.imports.discover import discover
from emelex_core.imports.records import MediaSink
from emelex_core.imports.transcripts import open_transcript
from emelex_workers.distil import distil
from emelex_workers.summarise import summarise
from emelex_workers.text import outline, secrets

from .conftest import ScriptedEngine, stored

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
FOLDERS = [folder for folder in (CORPUS / "claude-code", CORPUS / "codex") if folder.is_dir()]
IMAGE = AssetRef(sha256="0" * 64, kind="image", media_type="image/png", size=1)
TARGET = 700

pytestmark = pytest.mark.corpus


def sessions() -> Iterator[list[Event]]:
    """Every Session of the corpus, side branches included."""
    sink: MediaSink = lambda data, *, declared_media_type: IMAGE  # noqa: E731 - the protocol is one call
    for file in discover(FOLDERS).files if FOLDERS else ():
        branches: dict[str | None, list[Event]] = {}
        for turn in open_transcript(file, sink):
            branches.setdefault(turn.branch, []).extend(turn.events)
        yield from branches.values()


def test_real_sessions_give_bounded_exact_results_without_secrets() -> None:
    for events in map(stored, sessions()):
        by_id = {event.id: event for event in events}
        made = distil(events, engine=ScriptedEngine(), existing={}, cancel=CancelToken(), calls_max=0)
        assert all(candidate.quote in by_id[candidate.event_id].text for candidate in made.candidates)
        engine = ScriptedEngine()
        try:
            summary = summarise(
                events, prior_summary=None, engine=engine, target_tokens=TARGET, cancel=CancelToken(), calls_max=0
            )
        except PermanentFailure:
            assert sum(engine.count_text(event.text) for event in events) < 200
            continue
        assert summary.tokens <= min(TARGET, summary.provenance["source_tokens"])
        assert not secrets.find(summary.text)
        assert outline.render(outline.parse(summary.text, last_sequence=1)) == summary.text
        assert sum(leaf["events"] for leaf in summary.provenance["windows"]) == len(events)
