"""Whether llama.cpp can run a file, tried in a process of its own: what kills it there does not kill us.

The child loads the file, picks ChatML's delimiters and writes one word under a grammar. Its answer is one JSON line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from emelex_core.errors import EmelexError, ModelUnusable

PROBE_SECONDS: Final = 300.0
"""A model of several gigabytes is read from a slow disk once; one that takes longer cannot be worked with."""

_CHILD: Final = "from emelex_core.models.probe import answer; answer()"
_CONTEXT_TOKENS: Final = 256
_WORD: Final = "yes"
_NICE: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What the child found: whether a grammar held, and which engine said so."""

    grammar: bool
    engine: str


Prober: TypeAlias = Callable[[Path], Probed]


def probe(path: Path) -> Probed:
    """Try a file whose header has been checked. Raises: ModelUnusable with the reason why llama.cpp cannot run it."""
    command = [sys.executable, "-P", "-c", _CHILD, os.fspath(path)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_SECONDS, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        raise ModelUnusable(f"{path}: llama.cpp did not load it within {PROBE_SECONDS:g} seconds") from None
    if done.returncode < 0:
        raise ModelUnusable(f"{path}: llama.cpp ends by signal {-done.returncode} on it; the file is not sound")
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise ModelUnusable(f"{path}: trying it failed: {last}")
    found = json.loads(lines[-1])
    if "error" in found:
        raise ModelUnusable(str(found["error"]))
    return Probed(grammar=bool(found["grammar"]), engine=str(found["engine"]))


def answer() -> None:
    """The child: try the file that its argument names, and write the answer to standard output."""
    from emelex_core.engine.llama_cpp import LlamaEngine
    from emelex_core.engine.ports import CancelToken, Message, Request, Role

    os.nice(_NICE)
    path = Path(sys.argv[1])
    request = Request(
        messages=(Message(role=Role.USER, text="Say no."),),
        output_tokens_max=16,
        grammar=f'root ::= "{_WORD}"',
    )
    found: dict[str, object]
    try:
        with LlamaEngine(path, reference="probe", snapshot_id="probe", context_tokens=_CONTEXT_TOKENS) as engine:
            written = engine.generate(request, CancelToken())
            found = {"grammar": written.text == _WORD, "engine": engine.info.engine.partition(",")[0]}
    except EmelexError as error:
        found = {"error": error.message}
    sys.stdout.write(json.dumps(found) + "\n")
