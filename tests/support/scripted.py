"""A scripted engine for what reality will not do on demand, sample turns, and real Python processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from emelex_core import Event
from emelex_core.engine.ports import CancelToken, EngineInfo, FinishReason, Generation, Message, Request
from emelex_core.events import ToolCallPart
from emelex_core.models import certificates
from emelex_core.models.certificates import Certificate, Grade
from emelex_core.models.load import Tokenizer
from emelex_workers.certify import trials
from processes import keep

Writer = Callable[[Request, CancelToken], Generation]


def says(text: str, finish: FinishReason = FinishReason.STOP) -> Writer:
    """A writer that always answers the same."""

    def write(request: Request, cancel: CancelToken) -> Generation:
        del request, cancel
        return Generation(text=text, finish_reason=finish, prompt_tokens=7, output_tokens=3, seconds=0.0)

    return write


@dataclass
class ScriptedEngine:
    """Writes what a test says; a token is four characters, rounded up."""

    write: Writer = field(default_factory=lambda: says(""))
    context: int = 3_072
    requests: int = 0

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            reference="scripted",
            snapshot_id="scripted@1",
            engine="scripted",
            context_tokens=self.context,
            exact_tokens=True,
        )

    @property
    def exact_tokens(self) -> bool:
        return True

    def count_text(self, text: str) -> int:
        return -(-len(text) // 4)

    def count_prompt(self, messages: tuple[Message, ...]) -> int:
        return sum(self.count_text(message.text) + 4 for message in messages)

    def generate(self, request: Request, cancel: CancelToken) -> Generation:
        self.requests += 1
        return self.write(request, cancel)

    def close(self) -> None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        return None


@dataclass
class ScriptedSource:
    """An EngineSource over a scripted engine; `loads` counts how often a model was asked for."""

    engine: ScriptedEngine
    reference: str = "scripted"
    loads: int = 0

    def context_tokens(self) -> int:
        return self.engine.context

    def tokenizer(self) -> Tokenizer:
        return self.engine

    def load(self) -> ScriptedEngine:
        self.loads += 1
        return self.engine


STATEMENT = (
    "I went through the importer and found that it read the whole file into memory before it split the lines, "
    "which is the reason why large transcripts made the machine swap during the night."
)


def turn(number: int) -> list[Event]:
    """One atomic turn of a coding Session, about 900 characters."""
    call = ToolCallPart(call_id=f"call-{number}", name="Bash", arguments={"command": f"pytest tests/part_{number}"})
    return [
        Event.user(
            f"Please look at part {number}. Never change the file conftest_{number}.py without asking me.\n"
            f"The staging database of part {number} runs on PostgreSQL 15 behind port 543{number}, and it is restored "
            "from the nightly dump every morning at six."
        ),
        Event.assistant(STATEMENT + f" Part {number} is done.", call),
        Event.tool(f"call-{number}", f"{number} passed in 0.{number}s\n" + "." * 400, exit_code=0),
        Event.assistant(
            f"All {number} tests of part {number} pass now, and the report is written to reports/part_{number}.txt."
        ),
    ]


def python(code: str, *arguments: str, **options: object) -> subprocess.Popen[str]:
    """Start a real Python process that runs a piece of code."""
    return keep(
        subprocess.Popen(  # type: ignore[call-overload, no-any-return]  # options pass through to Popen
            [sys.executable, "-P", "-c", textwrap.dedent(code), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
    )


def let_word(models: Path) -> None:
    """Certify the scripted engine for free wordings, and for nothing else."""
    certificates.write(
        models,
        Certificate(
            version=certificates.VERSION,
            snapshot_id="scripted@1",
            engine="scripted",
            trials=trials.DIGEST,
            words=Grade(form="reword", good=12, trials=12),
            judges=Grade(form=None, good=0, trials=20),
            writes=Grade(form=None, good=0, trials=3),
            made_at=0,
        ),
    )
