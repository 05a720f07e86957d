"""`models …` and `memory jobs rerun` from outside (issue 4, items 3 and 6)."""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from emelex_core import MemoryStore, Session
from emelex_core.home import Home
from emelex_core.jobs import reading
from emelex_core.models import BUILTIN_REFERENCE, ModelManager
from emelex_core.models.probe import Probed
from program import TRICKY, Program
from tinymodels import tiny_model, word

Talk = Callable[..., Session]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_model())
    return path


@pytest.fixture
def installed(emelex: Program, tiny: Path) -> str:
    """A model that no probe has run; its snapshot."""
    manager = ModelManager(Home(emelex.home), prober=lambda path: Probed(grammar=True, engine="a test"))
    return manager.install(tiny, name="tiny").model.snapshot_id


def test_the_builtin_model_is_there_without_a_home(emelex: Program) -> None:
    """Looking makes nothing."""
    (model,) = emelex("models", "list", "--json").lines
    assert (model["reference"], model["kind"], model["default"]) == (BUILTIN_REFERENCE, "builtin", True)
    assert model["capabilities"]["chat"] == "chatml"
    assert BUILTIN_REFERENCE in emelex("models", "list").out
    assert Path(emelex("models", "path", BUILTIN_REFERENCE).out.strip()).is_file()
    assert emelex("models", "gc", "--json").json["removed"] == 0
    assert not emelex.home.exists()


@pytest.mark.model
def test_a_real_model_is_imported_made_the_default_and_removed(emelex: Program) -> None:
    """By link, so that 97 MB are read and not written; the probe is the real one."""
    source = emelex("models", "path", BUILTIN_REFERENCE).out.strip()
    result = emelex("models", "import", source, "--link", "--name", "mine", "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json["capabilities"]["evidence"]["grammar"].startswith("probed with llama.cpp")
    assert emelex("models", "import", source, "--link", "--name", "mine", "--json").json["already"]
    assert emelex("models", "default", "local:mine").out == "local:mine\n"
    assert [model["reference"] for model in emelex("models", "list", "--json").lines if model["default"]] == [
        "local:mine"
    ]
    verified = emelex("models", "verify", "--json").lines
    assert [(one["reference"], one["ok"]) for one in verified] == [(BUILTIN_REFERENCE, True), ("local:mine", True)]
    removed = emelex("models", "remove", result.json["snapshot"], "--json")
    assert (removed.json["bytes_freed"], removed.code) == (0, 0)
    assert "still the default" in removed.err
    assert Path(source).is_file()


def test_a_file_that_is_no_model_is_one_clear_error(emelex: Program, tmp_path: Path) -> None:
    """Text, hostile header, missing, folder: exit 1, one line, nothing made."""
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "hostile.gguf").write_bytes(tiny_model({"general.alignment": word("32")}))
    for name in ("notes.txt", "hostile.gguf", "missing.gguf", "."):
        result = emelex("models", "import", tmp_path / name, "--json")
        assert (result.code, result.error["kind"]) == (1, "ModelUnusable")
        assert len(result.err.splitlines()) == 1
    assert not emelex.home.exists()


def test_a_bound_model_stays(emelex: Program, store: MemoryStore, talk: Talk, installed: str) -> None:
    """Behaviour 57: exit 6, and the model is whole."""
    manager = ModelManager(Home(emelex.home))
    session = talk(1)
    store.bind_model(session.id, manager.get(installed), manager=manager)
    result = emelex("models", "remove", "local:tiny", "--json")
    assert (result.code, result.error["kind"]) == (6, "Refused")
    assert emelex("models", "verify", "local:tiny").code == 0
    (shown,) = [one for one in emelex("memory", "sessions", "list", "--json").lines if one["id"] == session.id]
    assert (shown["model"], shown["model_snapshot"]) == ("local:tiny", installed)
    store.delete_session(session.id)
    assert emelex("models", "remove", installed[-64:][:8]).code == 0


def test_damage_is_told_by_every_command_that_meets_it(emelex: Program, installed: str) -> None:
    weights = Path(emelex("models", "path", installed).out.strip())
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    result = emelex("models", "verify", "local:tiny", "--json")
    assert (result.code, result.error["kind"]) == (1, "ModelSnapshotInvalid")
    verified = emelex("models", "verify", "--json")
    assert verified.code == 1
    assert [(one["reference"], one["ok"]) for one in verified.lines] == [
        (BUILTIN_REFERENCE, True),
        ("local:tiny", False),
    ]
    weights.unlink()
    assert "damaged" in emelex("models", "list").err
    assert emelex("models", "remove", installed[-64:]).code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["path", "local:none"], 3),
        (["path", "nothing"], 2),
        (["path", "endpoint:none"], 3),
        (["remove", BUILTIN_REFERENCE], 6),
        (["remove", "local:none"], 3),
        (["default", "local:none"], 3),
        (["verify", "local:none"], 3),
        (["import", ""], 1),
        (["import", "x.gguf", "--name", "../x"], 2),
        (["import"], 2),
    ],
)
def test_what_cannot_be_is_refused_by_its_code(emelex: Program, words: list[str], code: int) -> None:
    result = emelex("models", *words, "--json")
    assert (result.code, result.out) == (code, "")
    assert result.error["message"]
    assert not emelex.home.exists()


def test_a_model_that_cannot_do_the_work_is_refused_before_a_claim(
    emelex: Program, store: MemoryStore, talk: Talk, tmp_path: Path
) -> None:
    """Issue 4, item 4: with the reason; no attempt is counted and the job waits."""
    path = tmp_path / "plain.gguf"
    path.write_bytes(tiny_model({"tokenizer.ggml.token_type": None, "llama.context_length": b"\x04\0\0\0\0\1\0\0"}))
    imported = emelex("models", "import", path)
    assert (imported.code, "cannot do the work" in imported.err) == (0, True)
    talk(1)
    result = emelex("memory", "work", "--model", "local:plain", "--json")
    assert (result.code, result.error["kind"]) == (1, "ModelUnusable")
    assert "ChatML" in result.error["message"]
    assert "context of 256 tokens" in result.error["message"]
    (job,) = reading.list_jobs(store.database)
    assert (job.state.value, job.failure_count) == ("pending", 0)
    assert emelex("models", "default", "local:plain", "--json").error["kind"] == "Refused"


class TestDefault:
    """One line of config.toml changes, and nothing else."""

    def write(self, emelex: Program, text: str) -> Path:
        emelex.home.mkdir(mode=0o700)
        path = emelex.home / "config.toml"
        path.write_text(text, "utf-8")
        path.chmod(0o600)
        return path

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "# mine\n",
            "[worker]\nthreads = 1\n",
            "[models]\n",
            "[models] # which\ndefault = 'endpoint:box' # was\n",
            '[models]\n# default = "x"\n\n[models.endpoint.box]\nbase_url = "http://127.0.0.1:1/v1"\n'
            'model = "default = 1"\ncontext_tokens = 2000\n[worker]\nnice = 3\n',
        ],
    )
    def test_the_rest_of_the_file_stays(self, emelex: Program, text: str) -> None:
        path = self.write(emelex, text)
        assert emelex("models", "default", BUILTIN_REFERENCE).code == 0
        after = path.read_text("utf-8")
        wanted = tomllib.loads(text)
        wanted.setdefault("models", {})["default"] = BUILTIN_REFERENCE
        assert tomllib.loads(after) == wanted
        assert all(line in after for line in text.splitlines() if not line.startswith("default"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert emelex("models", "default").out.strip() == BUILTIN_REFERENCE
        assert list(emelex.home.iterdir()) == [path]

    @pytest.mark.parametrize("text", ["models.default = 'endpoint:box'\n", "models = { default = 'endpoint:box' }\n"])
    def test_what_cannot_be_edited_safely_is_left_alone(self, emelex: Program, text: str) -> None:
        path = self.write(emelex, text)
        result = emelex("models", "default", BUILTIN_REFERENCE, "--json")
        assert (result.code, path.read_text("utf-8")) == (6, text)
        assert "yourself" in result.error["hint"]

    def test_who_has_the_last_word_here_is_told(self, emelex: Program) -> None:
        result = emelex("models", "default", BUILTIN_REFERENCE, env={"EMELEX_MODELS_DEFAULT": "endpoint:box"})
        assert (result.code, result.out) == (0, f"{BUILTIN_REFERENCE}\n")
        assert "endpoint:box still wins, by environment" in result.err


def test_what_a_file_says_of_itself_steers_no_terminal(emelex: Program, tmp_path: Path) -> None:
    """A licence is text of a stranger."""
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_model({"general.license": word(TRICKY), "tokenizer.ggml.token_type": None}))
    assert emelex("models", "import", path).code == 0
    result = emelex("models", "list")
    assert "\x1b" not in result.out
    assert "\u202e" not in result.out
    assert len(result.out.splitlines()) == 3
    licences = [json.loads(line)["license"] for line in emelex("models", "list", "--json").out.splitlines()]
    assert licences == ["apache-2.0", TRICKY]


@pytest.mark.model
def test_a_completed_job_is_repeated_beside_its_record(emelex: Program, store: MemoryStore, talk: Talk) -> None:
    """The same model gives the same bytes; `--dry-run` must be said, and nothing is written."""
    talk(2)
    assert emelex("memory", "work").code == 0
    (job,) = reading.list_jobs(store.database)
    result = emelex("memory", "jobs", "rerun", job.id[:8], "--json")
    assert (result.code, result.error["kind"]) == (2, "UsageError")
    found = emelex("memory", "jobs", "rerun", job.id[:8], "--dry-run", "--json").json
    assert (found["job_id"], found["same"], found["changed"], found["lines"]) == (job.id, True, [], [])
    assert "byte for byte" in emelex("memory", "jobs", "rerun", job.id, "--dry-run").out
    shown = emelex("memory", "jobs", "show", job.id, "--json").json["record"]
    assert {"model", "model_snapshot", "engine", "context_tokens", "wording", "result_sha256"} <= shown.keys()
