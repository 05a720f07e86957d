"""A transcript that is imported while its agent still writes it (ADR 0012).

After each import the store holds what one import of the file, as it is then, would have stored: the same Sessions, the
same turns of the same events under the same records, and nothing twice.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emelex_core import MemoryStore
from emelex_core.assets.media import Readable
from emelex_core.errors import Invalid
from emelex_core.events import AssetRef
from emelex_core.imports.records import CLAUDE_CODE, CODEX, GrowingReader, ImportedTurn, TranscriptFile
from emelex_core.imports.transcripts import open_transcript
from foreign_rows import (
    CLAUDE_ID,
    CLAUDE_STEPS,
    CODEX_ID,
    CODEX_STEPS,
    claude_lines,
    codex_lines,
    forked_codex,
    growing_claude_code,
    growing_codex,
)
from transcripts import Imported, holdings, import_into

Factory = pytest.TempPathFactory
NAMES = {CLAUDE_CODE: f"{CLAUDE_ID}.jsonl", CODEX: f"rollout-2026-01-01T00-00-00-{CODEX_ID}.jsonl"}
SAMPLES: dict[str, tuple[str, list[bytes]]] = {
    "claude-code": (CLAUDE_CODE, growing_claude_code()),
    "codex": (CODEX, growing_codex()),
    "codex fork": (CODEX, forked_codex()),
}
CORPUS = (Path(__file__).resolve().parents[3] / "shared" / "corpus").resolve()
REAL = sorted(path for form in NAMES for path in (CORPUS / form).rglob("*.jsonl")) if CORPUS.is_dir() else []
_SETTINGS = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=40
)


class Growing:
    """One transcript that grows, stores that it is imported into, and what one import of each state would give."""

    def __init__(self, folder: Path, name: str, *, packed: bool = False) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self._folder = folder
        self._packed = packed
        self._path = folder / (f"{name}.zst" if packed else name)
        self._numbers = itertools.count()
        self._known: dict[bytes, dict[str, object]] = {}

    def write(self, content: bytes) -> Path:
        """The transcript as its agent has left it."""
        self._path.write_bytes(zstandard.ZstdCompressor().compress(content) if self._packed else content)
        return self._path

    def write_raw(self, content: bytes) -> Path:
        """The file as it is, whatever that means."""
        self._path.write_bytes(content)
        return self._path

    def new_store(self) -> MemoryStore:
        """An empty store."""
        return MemoryStore.open(self._folder / f"home-{next(self._numbers)}", create=True)

    def take(self, store: MemoryStore) -> Imported | None:
        """Import the file as it is; None while nobody says anything in it."""
        with contextlib.suppress(Invalid):
            return import_into(store, self._path, workspace=self.workspace)
        return None

    def at_once(self, content: bytes) -> dict[str, object]:
        """What one import of this content gives."""
        if content not in self._known:
            self.write(content)
            with self.new_store() as store:
                self.take(store)
                self._known[content] = holdings(store)
        return self._known[content]

    def grow(self, store: MemoryStore, states: Sequence[bytes]) -> None:
        """Import one state after the other, and hold each result against a single import of that state."""
        for state in states:
            expected = self.at_once(state)
            self.write(state)
            self.take(store)
            # A file in which nobody says anything (any more) makes no Session, and takes none away.
            assert holdings(store) == expected or not expected


@pytest.fixture(params=list(SAMPLES))
def sample(request: pytest.FixtureRequest) -> tuple[str, list[bytes]]:
    """A transcript of our own, as format and lines."""
    return SAMPLES[request.param]


def _states(lines: Sequence[bytes]) -> list[bytes]:
    """The content after each whole line."""
    return [b"".join(line + b"\n" for line in lines[:number]) for number in range(1, len(lines) + 1)]


def _read(path: Path, form: str, *, start_offset: int = 0) -> tuple[list[ImportedTurn], int]:
    def sink(data: bytes | Readable, *, declared_media_type: str | None) -> AssetRef:
        raise Invalid("no media are stored here")

    reader = open_transcript(TranscriptFile(path=path, format=form, packed=False), sink, start_offset=start_offset)
    assert isinstance(reader, GrowingReader)
    return list(reader), reader.settled.offset


def _by_branch(turns: Sequence[ImportedTurn]) -> dict[str | None, list[object]]:
    found: dict[str | None, list[object]] = {}
    for turn in turns:
        found.setdefault(turn.branch, []).append(turn.events)
    return found


def _check_settled(path: Path, form: str, states: Sequence[bytes]) -> None:
    """What begins before the settled place, and what a reading from there yields, are the whole, in order."""
    whole = states[-1]
    path.write_bytes(whole)
    expected = _by_branch(_read(path, form)[0])
    for state in states:
        path.write_bytes(state)
        turns, settled = _read(path, form)
        kept = [turn for turn in turns if turn.start_offset < settled]
        assert all(turn.ended for turn in kept)
        path.write_bytes(whole)
        assert _by_branch([*kept, *_read(path, form, start_offset=settled)[0]]) == expected


def test_what_is_settled_stays(sample: tuple[str, list[bytes]], tmp_path: Path) -> None:
    """Every cut between lines: no growth changes a turn before the settled place, and each begins afresh there."""
    form, lines = sample
    _check_settled(tmp_path / NAMES[form], form, _states(lines))


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "zst"])
def test_line_by_line(sample: tuple[str, list[bytes]], tmp_path: Path, packed: bool) -> None:
    """Imported after every line, a transcript never differs from what one import would have given."""
    form, lines = sample
    growing = Growing(tmp_path, NAMES[form], packed=packed)
    with growing.new_store() as store:
        growing.grow(store, _states(lines))
        again = growing.take(store)
        assert again is not None
        assert [session.already for session in again.sessions] == [True]
        assert again.totals.events == 0


def test_any_cut_then_the_whole(sample: tuple[str, list[bytes]], tmp_path: Path) -> None:
    """Every single cut, in a store of its own."""
    form, lines = sample
    growing = Growing(tmp_path, NAMES[form])
    states = _states(lines)
    for state in states[:-1]:
        with growing.new_store() as store:
            growing.grow(store, [state, states[-1]])


def test_cuts_inside_lines(sample: tuple[str, list[bytes]], tmp_path: Path) -> None:
    """A torn last line waits, wherever it is torn; also between a record and its line break."""
    form, lines = sample
    growing = Growing(tmp_path, NAMES[form])
    whole = _states(lines)[-1]
    chance = random.Random(5)
    ends = [len(state) - 1 for state in _states(lines)]
    for cuts in (sorted(chance.sample(range(1, len(whole)), 6)), ends, chance.sample(ends, 4)):
        with growing.new_store() as store:
            growing.grow(store, [whole[:cut] for cut in sorted(cuts)] + [whole])


def test_a_torn_archive(tmp_path: Path) -> None:
    """A .zst that is copied while it is written: what can be unpacked is imported, and the rest when it is there."""
    growing = Growing(tmp_path, NAMES[CODEX], packed=True)
    whole = _states(growing_codex())[-1]
    packed = b"".join(zstandard.ZstdCompressor().compress(whole[at : at + 500]) for at in range(0, len(whole), 500))
    expected = growing.at_once(whole)
    for cut in range(len(packed) // 8, len(packed), len(packed) // 8):
        with growing.new_store() as store:
            growing.write_raw(packed[:cut])
            partly = growing.take(store)
            if partly is not None:
                assert partly.totals.defects["torn_archive"] == 1
            growing.write_raw(packed)
            assert growing.take(store) is not None
            assert holdings(store) == expected


@given(steps=CLAUDE_STEPS, cuts=st.lists(st.integers(0, 24), max_size=4))
@_SETTINGS
def test_claude_code_at_random(steps: list[tuple[str, str, int]], cuts: list[int], tmp_path_factory: Factory) -> None:
    _check_random(tmp_path_factory, CLAUDE_CODE, claude_lines(steps), cuts)


@given(steps=CODEX_STEPS, cuts=st.lists(st.integers(0, 24), max_size=4))
@_SETTINGS
def test_codex_at_random(steps: list[tuple[str, int]], cuts: list[int], tmp_path_factory: Factory) -> None:
    _check_random(tmp_path_factory, CODEX, codex_lines(steps), cuts)


def _check_random(factory: Factory, form: str, lines: list[bytes], cuts: list[int]) -> None:
    states = _states(lines)
    if not states:
        return
    folder = factory.mktemp("growing")
    _check_settled(folder / NAMES[form], form, states)
    growing = Growing(folder, NAMES[form])
    with growing.new_store() as store:
        growing.grow(store, [states[cut] for cut in sorted(set(cuts)) if cut < len(states)] + [states[-1]])


@pytest.mark.corpus
@pytest.mark.skipif(not REAL, reason="the shared corpus is not here")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name[:20])
def test_real_transcripts(path: Path, tmp_path: Path) -> None:
    """Every cut between lines at the reader, and a store that sees the file grow line by line."""
    content = path.read_bytes()
    states = list(_line_ends(content))
    form = CODEX if CODEX in path.parts else CLAUDE_CODE
    _check_settled(tmp_path / path.name, form, states)
    growing = Growing(tmp_path, path.name)
    with growing.new_store() as store:
        for state in states[:-1]:
            growing.write(state)
            growing.take(store)
        growing.grow(store, [states[-1]])


def _line_ends(content: bytes) -> Iterator[bytes]:
    at = 0
    while (end := content.find(b"\n", at)) >= 0:
        at = end + 1
        yield content[:at]
    if at < len(content):
        yield content
