"""The default model, as one line of the Home's `config.toml`; everything else in the file stays as it is.

The module owns these invariants:

- The new text says exactly what the old one said, but for `models.default`: both are parsed and compared before a byte
  is written.
- The file is replaced in one rename, private and synced. A crash leaves the old or the new one.
"""

from __future__ import annotations

import re
import secrets
import tomllib
from pathlib import Path
from typing import Any, Final

import orjson

from emelex_core import home, limits
from emelex_core.errors import Refused, UsageError
from emelex_core.models import files

_TABLE: Final = re.compile(r"^[ \t]*\[[ \t]*models[ \t]*\][ \t]*(#.*)?$", re.MULTILINE)
_ANY_TABLE: Final = re.compile(r"^[ \t]*\[", re.MULTILINE)
_KEY: Final = re.compile(r"^([ \t]*default[ \t]*=[ \t]*).*$", re.MULTILINE)
_BYTES_MAX: Final = limits.MIB


def set_default(config: Path, reference: str) -> None:
    """Make a reference the default model. The directory exists; the file need not.

    Raises: Refused for a file that is not private and ours, or that is written in a way that cannot be edited safely;
    UsageError when it is not TOML; Storage.
    """
    before = _read(config)
    after = _edited(before, orjson.dumps(reference).decode())
    wanted = _parse(before, config)
    models = wanted.setdefault("models", {})
    if not isinstance(models, dict):
        raise Refused(f"{config}: models is not a table", hint="edit it by hand")
    models["default"] = reference
    try:
        same = tomllib.loads(after) == wanted
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise Refused(
            f"{config} is written in a way that cannot be changed safely",
            hint=f'write default = "{reference}" into its [models] yourself',
        )
    _replace(config, after)


def _edited(text: str, value: str) -> str:
    """Put the value where the key stands, else below the table's heading, else into a table of its own at the end."""
    table = _TABLE.search(text)
    if table is None:
        gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
        return f"{text}{gap}[models]\ndefault = {value}\n"
    following = _ANY_TABLE.search(text, table.end())
    end = len(text) if following is None else following.start()
    inside = text[table.end() : end]
    if _KEY.search(inside):
        # As a function, so that nothing in the value is read as a reference to a group.
        changed = _KEY.sub(lambda match: match[1] + value, inside, count=1)
        return text[: table.end()] + changed + text[end:]
    return f"{text[: table.end()]}\ndefault = {value}{inside}{text[end:]}"


def _read(config: Path) -> str:
    if not home.exists(config):
        return ""
    with files.reading(config) as file:
        data = file.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise Refused(f"{config}: more than {_BYTES_MAX} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{config}: byte {error.start} is not UTF-8") from None


def _parse(text: str, config: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{config}: not TOML: {error}") from None


def _replace(config: Path, text: str) -> None:
    if config.is_symlink():
        raise Refused(f"{config} is a symbolic link", hint="edit the file that it leads to")
    part = config.with_name(f".{config.name}.{secrets.token_hex(8)}")
    try:
        files.write_private(part, text.encode())
        with files.translated(config):
            part.replace(config)
    finally:
        files.remove(part)
    home.sync_directory(config.parent)
