"""Start-up stays light: the model stack, the HTTP client and the terminal painter are imported where they are used."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

HEAVY = ("llama_cpp", "numpy", "httpx", "rich", "jinja2", "hypothesis")
ENTRANCES = [
    module
    for module in (
        "emelex_core",
        "emelex_queue",
        "emelex_workers",
        "emelex_cli",
        "emelex_core.engine",
        "emelex_cli.app",
        "emelex_cli.line",
    )
    if find_spec(module) is not None
]


@pytest.mark.parametrize("module", ENTRANCES)
def test_importing_an_entrance_leaves_the_heavy_modules_alone(module: str) -> None:
    """`emelex memory status` must not pay for a model that it does not run (issue 2, item 7)."""
    code = f"import sys, {module}; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert not result.stdout.split(), (
        f"{module} imports {result.stdout.split()} at start-up; import inside the function"
    )
