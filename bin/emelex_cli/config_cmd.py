"""`emelex config show`, `emelex paths` and `emelex --version`."""

from __future__ import annotations

from typing import Any

from emelex_cli.call import Call
from emelex_cli.output import one_line, path_text, to_json


def show(call: Call, *, origin: bool = False) -> int:
    """Print the configuration in effect, with `origin` also where each value comes from."""
    config = call.config
    values = dict(config.values())
    if call.out.json:
        found: dict[str, Any] = {"values": values}
        if origin:
            found["origins"] = {key: config.origins[key] for key in values}
        call.out.record(found)
        return 0
    rows = [(key, _word(value), *((one_line(config.origins[key]),) if origin else ())) for key, value in values.items()]
    call.out.table(rows, heading=("key", "value", *(("origin",) if origin else ())))
    return 0


def paths(call: Call) -> int:
    """Print where the Home and the things in it are, whether they exist or not."""
    from emelex_core.config import project_file
    from emelex_core.store import STANDARD_ASSETS

    home = call.home
    project = project_file(call.directory)
    found = {
        "home": path_text(home.root),
        "config": path_text(home.config),
        "database": path_text(home.database),
        "assets": path_text(home.memory / STANDARD_ASSETS),
        "models": path_text(home.models),
        "workspace": path_text(call.directory),
        "project_config": None if project is None else path_text(project),
    }
    if call.out.json:
        call.out.record(found)
        return 0
    for name, path in found.items():
        call.out.line(f"{name:15} {'-' if path is None else one_line(path)}")
    return 0


def version(call: Call) -> int:
    """Print the release, and what it runs on."""
    import platform
    from importlib.metadata import version as release

    import apsw

    found = {
        "emelex": release("emelex-memory"),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
    }
    if call.out.json:
        call.out.record(found)
    else:
        call.out.line(f"emelex {found['emelex']} (Python {found['python']}, SQLite {found['sqlite']})")
    return 0


def _word(value: object) -> str:
    return "-" if value is None else one_line(value) if isinstance(value, str) else to_json(value)
