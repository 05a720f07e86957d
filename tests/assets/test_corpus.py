"""Images of real transcripts end as assets, byte for byte."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emelex_core import MemoryStore
from emelex_core.imports.importer import import_transcripts
from emelex_core.imports.report import ImportedSession

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not CORPUS.is_dir(), reason="the shared corpus is not here")]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (text for item in value.values() for text in _strings(item))
    elif isinstance(value, list):
        yield from (text for item in value for text in _strings(item))
    elif isinstance(value, str):
        yield value


def _images(form: str) -> set[str]:
    """The digests of everything in the files that decodes to an image, found without our readers."""
    found: set[str] = set()
    for path in (CORPUS / form).rglob("*.jsonl"):
        for line in path.read_text().splitlines():
            try:
                texts = list(_strings(json.loads(line)))
            except ValueError:
                continue
            for text in texts:
                body = text.partition(";base64,")[2] if text.startswith("data:image/") else text
                if body.startswith(("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")):
                    found.add(hashlib.sha256(base64.b64decode(body)).hexdigest())
    return found


@pytest.mark.parametrize(("form", "images_min"), [("claude-code", 1), ("codex", 0)])
def test_images_end_as_assets(store: MemoryStore, form: str, images_min: int) -> None:
    """Every image of the files is stored once, linked by an event, and read back whole.

    The Codex rollouts of the corpus had their images trimmed; tests/imports/test_codex.py has samples of our own.
    """
    sessions: list[ImportedSession] = []
    import_transcripts(
        store,
        [CORPUS / form],
        format="auto",
        workspace=store.database.path.parent,
        dry_run=False,
        distill=False,
        listen=sessions.append,
        problem=lambda path, error: pytest.fail(f"{path}: {error}"),
    )
    assets = store.list_assets()
    expected = _images(form)
    assert len(expected) >= images_min
    assert {asset.sha256 for asset in assets} == expected
    assert all(asset.references >= 1 and asset.media_type is not None for asset in assets)
    assert sum(session.assets for session in sessions) == sum(asset.references for asset in assets)
    linked = [item for session in sessions for item in store.list_session_assets(session.id)]
    assert {item.sha256 for item in linked} == expected
    check = store.verify_assets()
    assert (check.assets, check.problem_count, check.uncataloged) == (len(expected), 0, 0)
