"""The runbook's commands are run, in order (issue 7, item 7): ours for real, systemd's against stand-ins."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from emelex_core import MemoryStore, Session
from emelex_core.jobs.kinds import JobKind
from emelex_queue import claims
from program import Program
from stores import ROOT

RUNBOOK = ROOT / "ops" / "RUNBOOK.md"
FOREIGN = ("systemctl", "journalctl", "loginctl", "litestream")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _commands() -> list[str]:
    return [
        line
        for language, text in BLOCK.findall(RUNBOOK.read_text("utf-8"))
        if language == "sh"
        for line in text.splitlines()
    ]


def test_every_block_is_a_list_of_commands() -> None:
    """Each line is one of ours, a stand-in's, or an export; what is no command is configuration, and tested as such."""
    assert {language for language, _ in BLOCK.findall(RUNBOOK.read_text("utf-8"))} == {"sh", "toml"}
    assert len(_commands()) > 30
    assert all(line.split()[0] in {"emelex", "export", *FOREIGN} for line in _commands())


def test_every_command_does_what_it_says(
    tmp_path: Path, emelex: Program, store: MemoryStore, talk: Callable[..., Session]
) -> None:
    """In one shell, with a failed job and a Session to name."""
    broken = talk("Broken")
    lease = claims.claim(store.database, JobKind.DISTILLATION, clock=store.clock)
    assert lease is not None
    assert lease.job.session_id == broken.id
    lease.fail("the model is missing", permanent=True)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in FOREIGN:
        _stand_in(tools / name)
    (tools / "emelex").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m emelex_cli "$@"\n', "utf-8")
    (tools / "emelex").chmod(0o755)
    script = "\n".join(f"echo '>>>' {number}; {line} || exit $?" for number, line in enumerate(_commands()))
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=emelex.workspace,
        env=emelex.env(
            {
                "PATH": f"{tools}:{os.environ['PATH']}",
                "JOB": lease.job.id[:8],
                "SESSION": broken.id,
                "TOLD": str(tmp_path / "told"),
            }
        ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    reached = re.findall(r"^>>> (\d+)$", done.stdout, re.MULTILINE)
    assert done.returncode == 0, f"{_commands()[int(reached[-1])]}\n{done.stderr}"
    assert len(reached) == len(_commands())
    assert (emelex.workspace / "session.json").is_file()
    assert "the model is missing" in done.stdout
    told = (tmp_path / "told").read_text("utf-8").splitlines()
    assert len(told) == sum(line.split()[0] in FOREIGN for line in _commands())


def test_its_configuration_is_taken(emelex: Program) -> None:
    """Every block of TOML is a configuration that the program accepts, word by word."""
    blocks = [text for language, text in BLOCK.findall(RUNBOOK.read_text("utf-8")) if language == "toml"]
    assert blocks
    emelex.home.mkdir(mode=0o700)
    for text in blocks:
        (emelex.home / "config.toml").write_text(text, "utf-8")
        (emelex.home / "config.toml").chmod(0o600)
        shown = emelex("config", "show")
        assert shown.code == 0, shown.err
        assert "in_flight" in shown.out


def test_alerts_lead_to_sections_that_exist() -> None:
    """Each rule names a heading, each such heading has its rule."""
    rules = (ROOT / "ops" / "prometheus" / "emelex.rules.yml").read_text("utf-8")
    named = set(re.findall(r"RUNBOOK\.md#([a-z-]+)", rules))
    headings = {
        re.sub(r"[^a-z -]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^## (.+)$", RUNBOOK.read_text("utf-8"), re.MULTILINE)
    }
    assert len(named) == rules.count("- alert:") == 7
    assert named <= headings


def _stand_in(path: Path) -> None:
    path.write_text('#!/bin/sh\necho "$0 $*" >> "$TOLD"\n', "utf-8")
    path.chmod(0o755)
