"""Configuration: layers, origins, strictness, and what a project may not do (contract, "Home, workspace, …")."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from emelex_core import config, limits
from emelex_core.errors import Refused, UsageError
from emelex_core.home import Home
from program import Program


@pytest.fixture
def home(tmp_path: Path) -> Home:
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    return Home(root)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory two levels below a Git root; returns it."""
    below = tmp_path / "project" / "src" / "parcels"
    below.mkdir(parents=True)
    (tmp_path / "project" / ".git").write_text("gitdir: elsewhere\n", "utf-8")
    return below


def _user(home: Home, text: str) -> None:
    home.config.write_text(text, "utf-8")
    home.config.chmod(0o600)


def _project(project: Path, text: str) -> Path:
    path = project.parents[1] / config.PROJECT_FILE
    path.write_text(text, "utf-8")
    return path


def _load(home: Home, project: Path | None = None, environment: Mapping[str, str] | None = None) -> config.Config:
    return config.load(home, directory=project, environment=environment or {})


def test_defaults_need_no_file(home: Home) -> None:
    """And every value says that it is one."""
    found = _load(home)
    assert (found.models.default, found.worker.threads, found.worker.nice) == ("builtin:smollm2-135m", 1, 10)
    assert set(found.origins.values()) == {config.DEFAULT}
    assert [key for key, _ in found.values()] == list(config.KEYS)


def test_later_layers_win_and_are_named(home: Home, project: Path) -> None:
    """Home file, then project, then environment."""
    _user(home, "[worker]\nthreads = 4\nnice = 5\n[compaction]\nkeep_turns = 6\n")
    place = _project(project, "[worker]\nthreads = 2\n")
    found = _load(home, project, {"EMELEX_WORKER_NICE": "15", "EMELEX_WORKER_CHUNKING": ""})
    assert (found.worker.threads, found.worker.nice, found.compaction.keep_turns) == (2, 15, 6)
    assert found.worker.chunking is True
    assert found.origins["worker.threads"] == str(place)
    assert found.origins["worker.nice"] == "environment (EMELEX_WORKER_NICE)"
    assert found.origins["compaction.keep_turns"] == str(home.config)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[worker]\nthread = 2\n", "unknown key worker.thread", "did you mean worker.threads?"),
        ("[workers]\nthreads = 2\n", "unknown table or key workers", "did you mean worker?"),
        (
            "threads = 2\n",
            "unknown table or key threads",
            "known are models, worker, compaction, distillation, retention",
        ),
        ("worker = 2\n", "worker must be a table", "write [worker]"),
        ("[worker]\nthreads = 0\n", "worker.threads is '0'", None),
        ("[worker]\nthreads = true\n", "worker.threads is 'True'", None),
        ("[worker]\nthreads = 1.5\n", "an integer from 1 to 64", None),
        ('[worker]\nchunking = "no"\n', "true or false", None),
        ("[models]\ndefault = 7\n", "models.default", None),
        ("[compaction]\ntarget_percent = 90\n", "must be below", None),
        ("[worker\n", "not TOML", None),
        ("[worker]\nthreads = 1\nthreads = 2\n", "not TOML", None),
        ('[models.endpoint.x]\nbase_url = "http://127.0.0.1/v1"\n', "lacks model, context_tokens", None),
        ("[models.endpoint]\nx = 1\n", "models.endpoint.x must be a table", None),
        ("[models]\nendpoint = 1\n", "one table for each endpoint", None),
    ],
)
def test_what_cannot_be_understood_is_named(home: Home, text: str, message: str, hint: str | None) -> None:
    """File, key, and the nearest valid name; exit code 2."""
    _user(home, text)
    with pytest.raises(UsageError) as caught:
        _load(home)
    assert message in caught.value.message
    if "compaction.target" not in caught.value.message:
        assert str(home.config) in caught.value.message
    if hint is not None:
        assert caught.value.hint == hint


ENDPOINT = '[models.endpoint.big]\nbase_url = "http://127.0.0.1:8080/v1"\nmodel = "m"\ncontext_tokens = 4096\n'


def test_endpoints_belong_to_the_user(home: Home) -> None:
    """Read with their defaults and origins."""
    _user(home, ENDPOINT + 'api_key_env = "BIG_KEY"\n[models]\ndefault = "endpoint:big"\n')
    found = _load(home)
    assert found.models.endpoint["big"].reference == found.models.default == "endpoint:big"
    values = dict(found.values())
    assert (values["models.endpoint.big.api_key_env"], values["models.endpoint.big.grammar"]) == ("BIG_KEY", False)
    assert found.origins["models.endpoint.big.model"] == str(home.config)
    assert found.origins["models.endpoint.big.grammar"] == config.DEFAULT


@pytest.mark.parametrize("line", ['api_key = "s3cret-s3cret"', 'api_key_env = "s3cret s3cret"', "base_url = 5"])
def test_a_pasted_key_is_in_no_message(home: Home, line: str) -> None:
    """A wrong endpoint is named by its keys, not its values (187)."""
    table = "\n".join(row for row in ENDPOINT.splitlines() if row.split(" =")[0] != line.split(" =")[0])
    _user(home, f"{table}\n{line}\n")
    with pytest.raises(UsageError) as caught:
        _load(home)
    assert "s3cret" not in caught.value.message + str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (ENDPOINT, "endpoint"),
        ("[models]\nendpoint = {}\n", "endpoint"),
        ('[models]\ndefault = "endpoint:big"\n', "models.default"),
        ("[retention]\nsessions_days = 1\n", "retention.sessions_days"),
        ("[retention]\nknowledge_days = 3650\n", "retention.knowledge_days"),
    ],
)
def test_what_only_the_user_may_say(home: Home, project: Path, text: str, key: str) -> None:
    """Endpoints and choosing one, to which text would be sent; and how long a store keeps what all projects share."""
    _user(home, ENDPOINT)
    place = _project(project, text)
    with pytest.raises(Refused) as caught:
        _load(home, project)
    assert str(place) in caught.value.message
    assert key in caught.value.message


def test_a_project_only_takes_away(home: Home, project: Path) -> None:
    """The stricter of both values is in effect, and a project that asks for more changes nothing."""
    _user(
        home, "[worker]\nthreads = 2\nnice = 5\n[compaction]\ntrigger_percent = 70\n[distillation]\nenabled = false\n"
    )
    _project(
        project,
        "[worker]\nthreads = 8\nnice = 0\nchunking = false\n"
        "[compaction]\ntrigger_percent = 60\nkeep_turns = 9\n[distillation]\nenabled = true\n",
    )
    found = _load(home, project)
    assert (found.worker.threads, found.worker.nice, found.worker.chunking) == (2, 5, False)
    assert (found.compaction.trigger_percent, found.compaction.keep_turns) == (70, 9)
    assert found.distillation.enabled is False
    assert found.origins["distillation.enabled"] == str(home.config)


@pytest.mark.parametrize(
    ("user", "project_says", "mode"),
    [
        (None, None, "auto"),
        (None, "review", "review"),
        ("auto", "review", "review"),
        ("review", "auto", "review"),
        ("review", None, "review"),
    ],
)
def test_a_project_may_ask_for_review_and_never_end_one(
    home: Home, project: Path, user: str | None, project_says: str | None, mode: str
) -> None:
    """What a distillation finds waits for a person where the user or the project wants it."""
    if user is not None:
        _user(home, f'[distillation]\nmode = "{user}"\n')
    if project_says is not None:
        _project(project, f'[distillation]\nmode = "{project_says}"\n')
    assert _load(home, project).distillation.mode == mode


def test_a_mode_is_one_of_two(home: Home) -> None:
    """A dry run is a question that a person asks, not a way of working."""
    _user(home, '[distillation]\nmode = "dry-run"\n')
    with pytest.raises(UsageError, match="it must be auto or review"):
        _load(home)


@pytest.mark.parametrize(
    ("key", "value"), [("trigger_percent", 2), ("target_percent", 1), ("keep_turns", 1), ("keep_turns", 4)]
)
def test_a_project_cannot_undercut_what_the_user_left_unset(home: Home, project: Path, key: str, value: int) -> None:
    """An unset key stands for its default, which is as strict as a stated one; it stays unset."""
    _project(project, f"[compaction]\n{key} = {value}\n")
    found = _load(home, project)
    assert getattr(found.compaction, key) is None
    assert found.origins[f"compaction.{key}"] == config.DEFAULT


def test_a_context_that_only_a_project_states_is_capped(home: Home, project: Path) -> None:
    """The user's own statement, in the file or the environment, is not."""
    _project(project, "[compaction]\ncontext_tokens = 16000000\n")
    assert _load(home, project).compaction.context_capped
    assert not _load(home, project, {"EMELEX_COMPACTION_CONTEXT_TOKENS": "9000"}).compaction.context_capped
    _user(home, "[compaction]\ncontext_tokens = 6000\n")
    found = _load(home, project).compaction
    assert (found.context_tokens, found.context_capped) == (6_000, False)


def test_a_project_may_be_stricter_than_an_unset_default(home: Home, project: Path) -> None:
    """Later, less, and with more turns kept."""
    place = _project(project, "[compaction]\ntrigger_percent = 90\ntarget_percent = 60\nkeep_turns = 5\n")
    found = _load(home, project)
    assert (found.compaction.trigger_percent, found.compaction.target_percent) == (90, 60)
    assert found.compaction.keep_turns == 5
    assert found.origins["compaction.keep_turns"] == str(place)


def test_a_project_is_a_git_work_tree(home: Home, tmp_path: Path) -> None:
    """Without one, a file in the directory itself is not read."""
    (tmp_path / config.PROJECT_FILE).write_text("[worker]\nthreads = 0\n", "utf-8")
    assert _load(home, tmp_path).worker.threads == 1


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("EMELEX_WORKER_THREAD", "2", "did you mean EMELEX_WORKER_THREADS?"),
        ("EMELEX_WORKER_THREADS", "two", None),
        ("EMELEX_WORKER_CHUNKING", "maybe", None),
    ],
)
def test_variables_are_strict_too(home: Home, name: str, value: str, hint: str | None) -> None:
    """The variable is named."""
    with pytest.raises(UsageError) as caught:
        _load(home, environment={name: value, "EMELEX_UNRELATED": "x"})
    assert name in caught.value.message
    assert caught.value.hint == hint


def test_files_that_cannot_be_trusted(home: Home, project: Path) -> None:
    """Writable by others, no regular file, too large, not UTF-8."""
    _user(home, "")
    home.config.chmod(0o622)
    with pytest.raises(Refused, match="written by others"):
        _load(home)
    home.config.unlink()
    home.config.mkdir()
    with pytest.raises(Refused, match="not a regular file"):
        _load(home)
    home.config.rmdir()
    place = _project(project, "#" * (config.FILE_BYTES_MAX + 1))
    with pytest.raises(UsageError, match=f"more than {config.FILE_BYTES_MAX}"):
        _load(home, project)
    place.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not UTF-8"):
        _load(home, project)
    place.write_text("a = " + "[" * 20_000, "utf-8")
    with pytest.raises(UsageError):
        _load(home, project)


def test_bounds_are_those_of_the_policy() -> None:
    """What the configuration accepts, the policy accepts."""
    assert config.KEYS["compaction.keep_turns"].check(limits.COMPACTION_KEEP_TURNS_MAX) is None
    assert config.KEYS["compaction.keep_turns"].check(limits.COMPACTION_KEEP_TURNS_MAX + 1) is not None
    assert limits.COMPACTION_TARGET_PERCENT < limits.COMPACTION_TRIGGER_PERCENT


def test_config_show_with_origins(emelex: Program) -> None:
    """Values alone, or with where each comes from."""
    env = {"EMELEX_WORKER_THREADS": "3"}
    plain = emelex("config", "show", "--json", env=env).json
    assert (list(plain), plain["values"]["worker.threads"]) == (["values"], 3)
    full = emelex("config", "show", "--origin", "--json", env=env).json
    assert full["origins"]["worker.threads"] == "environment (EMELEX_WORKER_THREADS)"
    assert full["origins"].keys() == full["values"].keys()
    text = emelex("config", "show", "--origin", env=env).out
    assert "worker.threads" in text
    assert "EMELEX_WORKER_THREADS" in text


def test_a_bad_configuration_stops_what_uses_it(emelex: Program) -> None:
    """Exit 2, and `doctor` tells it too."""
    emelex.home.mkdir(mode=0o700)
    (emelex.home / "config.toml").write_text("[worker]\nthread = 2\n", "utf-8")
    result = emelex("config", "show", "--json")
    assert (result.code, result.error["kind"]) == (2, "UsageError")
    assert "did you mean worker.threads?" in result.error["hint"]
    doctor = emelex("doctor", "--json")
    checks = {check["name"]: check["state"] for check in doctor.json["checks"]}
    assert (doctor.code, checks["config"]) == (1, "fail")
