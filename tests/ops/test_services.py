"""Files for service managers (issue 7, item 6): one source, right quoting, and each reader's own check."""

from __future__ import annotations

import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from emelex_cli import services
from emelex_cli.services import FOLDERS
from emelex_core.errors import Invalid
from program import Program
from stores import ROOT

OPS = {
    "systemd-user": "systemd/user",
    "systemd-system": "systemd/system",
    "supervisord": "supervisord",
    "cron": "cron",
    "launchd": "launchd",
}
TRICKY = Path('/srv/100% of $HOME\'s "data"; & <more>\\x')
VERIFY = shutil.which("systemd-analyze")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program as a file, as an installation leaves it."""
    path = tmp_path / "tools" / "emelex"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m emelex_cli "$@"\n', "utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("folder", FOLDERS)
def test_ops_holds_what_the_program_prints(folder: str) -> None:
    """One source of truth: the templates. `emelex service print` and ops/ cannot drift apart."""
    place = ROOT / "ops" / OPS[folder]
    assert {path.name: path.read_text("utf-8") for path in place.iterdir()} == {
        file.name: file.text for file in services.usual_files(folder)
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_mark_is_left_in_a_file(folder: str) -> None:
    """Every template is filled wholly; no line names a third thing."""
    for file in services.usual_files(folder):
        assert "@PROGRAM@" not in file.text
        assert "@HOME@" not in file.text


@pytest.mark.skipif(VERIFY is None, reason="systemd-analyze is not on this machine")
@pytest.mark.parametrize("folder", ["systemd-user", "systemd-system"])
@pytest.mark.parametrize("home", ["/srv/emelex", str(TRICKY)])
def test_systemd_finds_no_fault(folder: str, home: str, program: Path, tmp_path: Path) -> None:
    """`systemd-analyze verify` reads every unit and says nothing, with a plain path and with a hostile one."""
    units = []
    for file in services.files(folder, program=program, home=Path(home)):
        # The account that a system unit runs as is made by whoever installs it.
        unit = tmp_path / file.name
        unit.write_text(file.text.replace("User=emelex\nGroup=emelex\n", ""), "utf-8")
        units.append(str(unit))
    scope = ["--user"] if folder == "systemd-user" else []
    done = subprocess.run(
        [VERIFY or "", *scope, "verify", *units],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    ours = [line for line in done.stderr.splitlines() if "emelex" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@pytest.mark.parametrize("folder", ["systemd-user", "systemd-system"])
def test_the_pools_unit_says_what_was_measured(folder: str) -> None:
    """measured.md, "Running under supervisors"."""
    (pool,) = [file.text for file in services.usual_files(folder) if file.name == "emelex-pool.service"]
    lines = pool.splitlines()
    for line in (
        "Type=notify",
        "NotifyAccess=main",
        "WatchdogSec=90",
        "Restart=on-failure",
        "RestartPreventExitStatus=2 3 6 7",
        "SuccessExitStatus=130 143",
        "KillMode=mixed",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "PrivateTmp=yes",
        "UMask=0077",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
        "SystemCallFilter=@system-service",
        "LockPersonality=yes",
    ):
        assert line in lines
    # llama.cpp maps pages that it may execute.
    assert "MemoryDenyWriteExecute" not in pool
    (stop,) = [int(line.partition("=")[2]) for line in lines if line.startswith("TimeoutStopSec=")]
    assert stop > 30 + 2
    timers = [file.text for file in services.usual_files(folder) if file.name.endswith(".timer")]
    assert len(timers) == 2
    assert all("Persistent=true" in timer and "RandomizedDelaySec=" in timer for timer in timers)


def test_a_crontab_line_survives_a_bare_environment_and_a_hostile_path(
    program: Path, emelex: Program, tmp_path: Path
) -> None:
    """K8: each line under `env -i` through sh, as cron calls it; nothing is printed, nothing is mailed."""
    home = tmp_path / "it's 100% $HOME"
    (cron,) = services.files("cron", program=program, home=home)
    lines = [line for line in cron.text.splitlines() if not line.startswith("#")]
    assert len(lines) == 2
    for line in lines:
        fields = line.split(" ", 5)
        assert all(field.isdigit() or field == "*" for field in fields[:5])
        # cron makes a line end of each bare per cent sign; a guarded one is one.
        command, *rest = fields[5].replace("\\%", "\0").split("%")
        assert rest == []
        done = subprocess.run(
            [
                "env",
                "-i",
                f"HOME={tmp_path}",
                "PATH=/usr/bin:/bin",
                "LANG=C",
                "SHELL=/bin/sh",
                "/bin/sh",
                "-c",
                command.replace("\0", "%"),
            ],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr in ("", f"emelex: nothing is stored yet in {home}\n")
    assert not home.exists()


def test_launchd_reads_the_property_lists(program: Path) -> None:
    """Whatever stands in the path."""
    for file in services.files("launchd", program=program, home=TRICKY):
        found = plistlib.loads(file.text.encode())
        assert file.name == f"{found['Label']}.plist"
        assert found["ProgramArguments"][:3] == [str(program), "--home", str(TRICKY)]
        assert found["ProgramArguments"][3] == "memory"
        assert found["Umask"] == 0o077
        assert found.get("ExitTimeOut", 45) > 32


def test_supervisord_reads_its_section(program: Path) -> None:
    """A per cent sign is doubled, a semicolon begins no comment, and the command splits as a shell would."""
    (file,) = services.files("supervisord", program=program, home=Path("/srv/100% o'clock"))
    parser = RawConfigParser()
    parser.read_string(file.text)
    section = dict(parser["program:emelex-pool"])
    assert shlex.split(section["command"] % {})[:4] == [str(program), "--home", "/srv/100% o'clock", "memory"]
    assert section["stopsignal"] == "TERM"
    assert int(section["stopwaitsecs"]) > 32


@pytest.mark.parametrize("path", ["/srv/a\nb", "/srv/a\x1bb", "/srv/a\udcff"])
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_path_that_no_file_can_carry_is_refused(path: str, folder: str, program: Path) -> None:
    """A line break would begin a directive of its own."""
    with pytest.raises(Invalid):
        services.files(folder, program=program, home=Path(path))


def test_print_names_this_installation_and_this_home(emelex: Program, program: Path) -> None:
    """Data on stdout, as text and as JSON; nothing is created."""
    result = emelex("service", "print", "cron", "--program", program)
    assert result.code == 0
    assert f"{program} --home {emelex.home} memory work" in result.out
    found = emelex("service", "print", "systemd", "--program", program, "--json").lines
    assert [file["name"] for file in found] == sorted(file["name"] for file in found)
    assert all(str(emelex.home) in file["text"] for file in found if file["name"].endswith(".service"))
    assert not emelex.home.exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("service", "print", "upstart"), 2),
        (("service", "print", "cron", "--system"), 2),
        (("service", "print", "cron", "--program", "/nowhere/emelex"), 2),
        (("service", "print"), 2),
    ],
)
def test_what_cannot_be_understood_is_a_usage_error(emelex: Program, words: tuple[str, ...], code: int) -> None:
    """One line with a hint."""
    result = emelex(*words)
    assert (result.code, result.out) == (code, "")
    assert "hint:" in result.err


def test_install_writes_once_and_never_over_others(emelex: Program, program: Path, tmp_path: Path) -> None:
    """Where systemd looks, with the next commands told; a changed file needs --force; nothing is started."""
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    words = ("service", "install", "systemd", "--program", program, "--json")
    first = emelex(*words, env=env).json
    assert {file["state"] for file in first["files"]} == {"written"}
    assert len(first["files"]) == 5
    assert first["next"][0] == "systemctl --user daemon-reload"
    assert {file["state"] for file in emelex(*words, env=env).json["files"]} == {"unchanged"}
    unit = tmp_path / "config" / "systemd" / "user" / "emelex-pool.service"
    assert unit.stat().st_mode & 0o777 == 0o644
    unit.write_text("[Service]\n", "utf-8")
    refused = emelex(*words, env=env)
    assert (refused.code, refused.error["kind"]) == (6, "Refused")
    assert unit.read_text("utf-8") == "[Service]\n"
    forced = emelex(*words, "--force", env=env).json
    assert {file["path"]: file["state"] for file in forced["files"]}[str(unit)] == "written"
    assert [path.name for path in unit.parent.iterdir() if path.name.startswith(".")] == []


def test_install_keeps_the_rest_of_a_crontab(emelex: Program, program: Path, tmp_path: Path) -> None:
    """Our lines stand between two marks; what is outside them is kept, a second run changes nothing."""
    tab = tmp_path / "tab"
    tools = tmp_path / "cron-tools"
    tools.mkdir()
    (tools / "crontab").write_text(f'#!/bin/sh\nif [ "$1" = -l ]; then cat "{tab}"; else cat > "{tab}"; fi\n', "utf-8")
    (tools / "crontab").chmod(0o755)
    env = {"PATH": f"{tools}:{os.environ['PATH']}"}
    words = ("service", "install", "cron", "--program", program)
    assert emelex(*words, env=env).out == "written: crontab\n"
    tab.write_text(f"MAILTO=me\n{tab.read_text('utf-8')}@daily backup\n", "utf-8")
    assert emelex(*words, env=env).out == "unchanged: crontab\n"
    emelex.home.mkdir(mode=0o700)
    assert emelex(*words, "--home", tmp_path / "other", env=env).out == "written: crontab\n"
    lines = tab.read_text("utf-8").splitlines()
    assert (lines[0], lines[-1]) == ("MAILTO=me", "@daily backup")
    assert sum("memory maintain" in line for line in lines) == 1
    assert any(str(tmp_path / "other") in line for line in lines)
    tab.write_text("# >>> emelex memory >>>\n", "utf-8")
    assert emelex(*words, env=env).code == 2
    assert emelex(*words, env={"PATH": str(tmp_path)}).code == 3
