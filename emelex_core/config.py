"""Configuration: defaults, then the Home's `config.toml`, then `.emelex.toml` at the Git root, then the environment.

Flags come last and are the command line's business. The module owns these invariants:

- Strict: an unknown table, key or variable is a UsageError that names it, where it stands and the nearest valid one.
- Each value knows where it came from (`Config.origins`).
- The Home's file is the user's own: it is read only when nobody else can write it.
- A project's file may only take authority away. Numbers it may move in one direction, switches it may only turn off,
  models it may only choose among those on this machine; endpoints, which send text elsewhere, it may not name at all,
  nor how long a store keeps things.
"""

from __future__ import annotations

import difflib
import os
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from emelex_core import limits
from emelex_core.errors import Invalid, Refused, Storage, UsageError
from emelex_core.home import Home

if TYPE_CHECKING:
    from emelex_core.engine.endpoint import EndpointConfig

PROJECT_FILE: Final = ".emelex.toml"
DEFAULT_MODEL: Final = "builtin:smollm2-135m"
FILE_BYTES_MAX: Final = 64 * limits.KIB
ENVIRONMENT: Final = "environment"
DEFAULT: Final = "default"

_THREADS_MAX: Final = 64
_CONTEXT_TOKENS_MAX: Final = 16 * limits.MIB
_NICE_MAX: Final = 19
_LOCAL_MODELS: Final = ("builtin:", "local:")
_ENDPOINT_TABLE: Final = "models.endpoint"
_MODES: Final = ("auto", "review")
"""What becomes of what a distillation finds, the stricter one last."""

Plain = str | int | float | bool
Stricter = Callable[[Any, Any], Any]
"""From the user's value and the project's, makes the one in effect; raises Refused for what a project may not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """`[models]`: the model that works where no other is named, and the endpoints by name."""

    default: str
    endpoint: Mapping[str, EndpointConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """`[worker]`: threads for inference, niceness of `work`, and whether long sources are folded window by window."""

    threads: int
    nice: int
    chunking: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """`[compaction]`: what to change in the policy; None keeps its default, and for the context the model's own.

    `context_capped`: the context is a project's word alone, which never raises the model's own.
    """

    context_tokens: int | None
    context_capped: bool
    trigger_percent: int | None
    target_percent: int | None
    keep_turns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Distillation:
    """`[distillation]`: whether Sessions are queued for it at all, and whether what it finds waits for a person.

    `mode` is `auto` or `review`.
    """

    enabled: bool
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """`[retention]`: for how many days unused Sessions and Knowledge are kept; None is the default of who maintains."""

    sessions_days: int | None
    knowledge_days: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration in effect. `origins` maps each dotted key to `default`, `environment` or a file's path."""

    models: Models
    worker: Worker
    compaction: Compaction
    distillation: Distillation
    retention: Retention
    origins: Mapping[str, str] = field(default_factory=dict[str, str])

    def values(self) -> Iterator[tuple[str, Plain | None]]:
        """Every key with its value, in the order of the documentation; keys of endpoints last."""
        for key in KEYS:
            table, _, name = key.partition(".")
            yield key, getattr(getattr(self, table), name)
        for name, endpoint in sorted(self.models.endpoint.items()):
            for key in ENDPOINT_KEYS:
                yield f"{_ENDPOINT_TABLE}.{name}.{key}", getattr(endpoint, key)


def load(home: Home, *, directory: Path | None = None, environment: Mapping[str, str] | None = None) -> Config:
    """Read the configuration for a Home and, when given, the project around a directory. Writes nothing.

    Raises: UsageError for what cannot be understood, Refused for a file that is not to be trusted or a project that
    asks for authority, Storage for a file that cannot be read.
    """
    layers = _Layers()
    layers.take_user(_read_toml(home.config, private=True), str(home.config))
    project = None if directory is None else project_file(directory)
    if project is not None:
        layers.take_project(_read_toml(project, private=False), str(project))
    layers.take_environment(os.environ if environment is None else environment)
    return layers.config()


def project_file(directory: Path) -> Path | None:
    """The path of `.emelex.toml` at the root of the Git work tree around a directory, whether it exists or not."""
    for place in (directory, *directory.parents):
        if (place / ".git").exists():
            return place / PROJECT_FILE
    return None


def variable(key: str) -> str:
    """The environment variable of a key: `worker.threads` is EMELEX_WORKER_THREADS."""
    return "EMELEX_" + key.replace(".", "_").upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What one key accepts: its default, how a value of it is checked, and what a project may make of it.

    `unset` is what a default of None stands for, where that is known without a model.
    """

    default: Plain | None
    check: Callable[[Any], str | None]
    stricter: Stricter
    unset: Plain | None = None

    @property
    def in_effect(self) -> Plain | None:
        """The value that holds when nobody states one; None when the model decides."""
        return self.unset if self.default is None else self.default


def _integer(least: int, most: int) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            return f"it must be an integer from {least} to {most}"
        return None

    return check


def _switch(value: Any) -> str | None:
    return None if isinstance(value, bool) else "it must be true or false"


def _text(value: Any) -> str | None:
    if isinstance(value, str) and value.strip() and len(value.encode("utf-8", "replace")) <= 512:
        return None
    return "it must be a text of 1 to 512 bytes"


def _mode(value: Any) -> str | None:
    return None if value in _MODES else f"it must be {' or '.join(_MODES)}"


def _number(value: Any) -> str | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 86_400:
        return None
    return "it must be a number of seconds, at most a day"


def _lower(user: Any, project: Any) -> Any:
    # Only the context is unknown here. What a project says of it is capped by the model's own (`Compaction`).
    return project if user is None else min(user, project)


def _higher(user: Any, project: Any) -> Any:
    return max(user, project)


def _off(user: Any, project: Any) -> Any:
    return user and project


def _later(user: Any, project: Any) -> Any:
    return max(user, project, key=_MODES.index)


def _not_a_projects(user: Any, project: Any) -> Any:
    del user, project
    raise Refused(
        "a project may not say how long a store keeps what all projects share", hint="the Home's config.toml may"
    )


def _local_model(user: Any, project: Any) -> Any:
    del user
    if project.startswith(_LOCAL_MODELS):
        return project
    raise Refused(
        f"a project may choose a {' or '.join(_LOCAL_MODELS)} model, not {project!r}",
        hint="name it in the Home's config.toml, or with --model",
    )


KEYS: Final[Mapping[str, Key]] = MappingProxyType(
    {
        "models.default": Key(default=DEFAULT_MODEL, check=_text, stricter=_local_model),
        "worker.threads": Key(default=1, check=_integer(1, _THREADS_MAX), stricter=_lower),
        "worker.nice": Key(default=10, check=_integer(0, _NICE_MAX), stricter=_higher),
        "worker.chunking": Key(default=True, check=_switch, stricter=_off),
        "compaction.context_tokens": Key(default=None, check=_integer(1, _CONTEXT_TOKENS_MAX), stricter=_lower),
        "compaction.trigger_percent": Key(
            default=None, check=_integer(2, 100), stricter=_higher, unset=limits.COMPACTION_TRIGGER_PERCENT
        ),
        "compaction.target_percent": Key(
            default=None, check=_integer(1, 99), stricter=_higher, unset=limits.COMPACTION_TARGET_PERCENT
        ),
        "compaction.keep_turns": Key(
            default=None,
            check=_integer(1, limits.COMPACTION_KEEP_TURNS_MAX),
            stricter=_higher,
            unset=limits.COMPACTION_KEEP_TURNS,
        ),
        "distillation.enabled": Key(default=True, check=_switch, stricter=_off),
        "distillation.mode": Key(default="auto", check=_mode, stricter=_later),
        "retention.sessions_days": Key(
            default=None, check=_integer(1, limits.RETENTION_DAYS_MAX), stricter=_not_a_projects
        ),
        "retention.knowledge_days": Key(
            default=None, check=_integer(1, limits.RETENTION_DAYS_MAX), stricter=_not_a_projects
        ),
    }
)
"""Every plain key. A project lowers threads and context, raises niceness, percentages and kept turns, turns off,
and asks for review."""

ENDPOINT_KEYS: Final[Mapping[str, Callable[[Any], str | None]]] = MappingProxyType(
    {
        "base_url": _text,
        "model": _text,
        "context_tokens": _integer(1, _CONTEXT_TOKENS_MAX),
        "api_key_env": _text,
        "grammar": _switch,
        "tokenize": _switch,
        "timeout_seconds": _number,
        "in_flight": _integer(1, limits.IN_FLIGHT_MAX),
        "tools": _switch,
        "images": _switch,
        "image_tokens": _integer(1, _CONTEXT_TOKENS_MAX),
    }
)
"""The keys of one `[models.endpoint.NAME]`; the first three must be there."""

_ENDPOINT_REQUIRED: Final = ("base_url", "model", "context_tokens")
_TABLES: Final = tuple(dict.fromkeys(key.partition(".")[0] for key in KEYS))


class _Layers:
    """The values while layer upon layer is taken in."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {key: spec.default for key, spec in KEYS.items()}
        self._origins: dict[str, str] = dict.fromkeys(KEYS, DEFAULT)
        self._endpoints: dict[str, EndpointConfig] = {}
        self._capped: set[str] = set()

    def take_user(self, tables: Mapping[str, Any], origin: str) -> None:
        """Take the Home's file: every key, and the endpoints."""
        models = _table(tables.get("models"))
        if models is not None and "endpoint" in models:
            tables = {**tables, "models": {key: value for key, value in models.items() if key != "endpoint"}}
            self._take_endpoints(models["endpoint"], origin)
        for key, value in _flat(tables, origin):
            self._set(key, value, origin)

    def take_project(self, tables: Mapping[str, Any], origin: str) -> None:
        """Take a project's file: only what takes authority away."""
        models = _table(tables.get("models"))
        if models is not None and "endpoint" in models:
            raise Refused(
                f"{origin}: a project may not name endpoints, to which text would be sent",
                hint="name them in the Home's config.toml",
            )
        for key, value in _flat(tables, origin):
            _require(KEYS[key].check, key, value, origin)
            stated = self._values[key]
            before = KEYS[key].in_effect if stated is None else stated
            try:
                chosen = KEYS[key].stricter(before, value)
            except Refused as error:
                raise Refused(f"{origin}: {key}: {error.message}", hint=error.hint) from None
            if chosen != before:
                self._values[key], self._origins[key] = chosen, origin
                if before is None:
                    self._capped.add(key)

    def take_environment(self, environment: Mapping[str, str]) -> None:
        """Take the variables of keys; an empty one counts as unset."""
        names = {variable(key): key for key in KEYS}
        for name, text in sorted(environment.items()):
            if not text or not name.startswith(tuple(f"EMELEX_{table.upper()}_" for table in _TABLES)):
                continue
            if name not in names:
                raise UsageError(f"environment: {name} is no setting", hint=_nearest(name, names))
            self._set(names[name], _from_text(KEYS[names[name]], text), f"{ENVIRONMENT} ({name})")

    def config(self) -> Config:
        """The configuration in effect. Raises: UsageError when values contradict each other."""
        trigger = self._values["compaction.trigger_percent"] or limits.COMPACTION_TRIGGER_PERCENT
        target = self._values["compaction.target_percent"] or limits.COMPACTION_TARGET_PERCENT
        if target >= trigger:
            raise UsageError(
                f"compaction.target_percent ({target}) must be below compaction.trigger_percent ({trigger})"
            )
        tables: dict[str, dict[str, Any]] = {table: {} for table in _TABLES}
        for key, value in self._values.items():
            table, _, name = key.partition(".")
            tables[table][name] = value
        return Config(
            models=Models(endpoint=MappingProxyType(self._endpoints), **tables["models"]),
            worker=Worker(**tables["worker"]),
            compaction=Compaction(context_capped="compaction.context_tokens" in self._capped, **tables["compaction"]),
            distillation=Distillation(**tables["distillation"]),
            retention=Retention(**tables["retention"]),
            origins=MappingProxyType(self._origins),
        )

    def _set(self, key: str, value: Any, origin: str) -> None:
        _require(KEYS[key].check, key, value, origin)
        self._values[key], self._origins[key] = value, origin
        self._capped.discard(key)

    def _take_endpoints(self, tables: Any, origin: str) -> None:
        named = _table(tables)
        if named is None:
            raise UsageError(f"{origin}: {_ENDPOINT_TABLE} must hold one table for each endpoint")
        for name, content in named.items():
            place = f"{_ENDPOINT_TABLE}.{name}"
            table = _table(content)
            if table is None:
                raise UsageError(f"{origin}: {place} must be a table", hint=f"write [{place}]")
            self._endpoints[name] = _endpoint(name, table, f"{origin}: {place}")
            self._origins.update({f"{place}.{key}": origin if key in table else DEFAULT for key in ENDPOINT_KEYS})


def _endpoint(name: str, table: dict[str, Any], place: str) -> EndpointConfig:
    """Check one endpoint's table. Values stay out of messages: somebody may have pasted a key."""
    for key, value in table.items():
        if key not in ENDPOINT_KEYS:
            raise UsageError(f"{place}: unknown key {key}", hint=_nearest(key, ENDPOINT_KEYS))
        problem = ENDPOINT_KEYS[key](value)
        if problem is not None:
            raise UsageError(f"{place}.{key}: {problem}")
    missing = [key for key in _ENDPOINT_REQUIRED if key not in table]
    if missing:
        raise UsageError(f"{place} lacks {', '.join(missing)}")
    try:
        from emelex_core.engine.endpoint import EndpointConfig

        return EndpointConfig(name=name, **table)
    except Invalid as error:
        raise UsageError(f"{place}: {error.message}", hint=error.hint) from None


def _read_toml(path: Path, *, private: bool) -> Mapping[str, Any]:
    """Parse a file, {} when there is none. Raises: Refused, Storage, UsageError naming file and line."""
    data = _read(path, private=private)
    if data is None:
        return {}
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{path}: it is nested too deeply") from None


def _read(path: Path, *, private: bool) -> bytes | None:
    # Non-blocking, so that a pipe put in the file's place cannot hang whoever reads it.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Storage(f"cannot read {path}: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Refused(f"{path} is not a regular file")
        if private and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
            raise Refused(
                f"{path} can be written by others (owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o})",
                hint=f"look what it says, then chmod go-w {path}",
            )
        data = os.read(descriptor, FILE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{path}: more than {FILE_BYTES_MAX} bytes")
    return data


def _flat(tables: Mapping[str, Any], origin: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values. Raises: UsageError naming the nearest valid table or key."""
    for table, content in tables.items():
        if table not in _TABLES:
            raise UsageError(f"{origin}: unknown table or key {table}", hint=_nearest(table, _TABLES))
        values = _table(content)
        if values is None:
            raise UsageError(f"{origin}: {table} must be a table", hint=f"write [{table}]")
        for name, value in values.items():
            key = f"{table}.{name}"
            if key not in KEYS:
                known = [known for known in KEYS if known.startswith(f"{table}.")]
                raise UsageError(f"{origin}: unknown key {key}", hint=_nearest(key, known))
            yield key, value


def _table(value: Any) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _require(check: Callable[[Any], str | None], key: str, value: Any, origin: str) -> None:
    problem = check(value)
    if problem is not None:
        raise UsageError(f"{origin}: {key} is {str(value)[:80]!r}; {problem}")


def _from_text(spec: Key, text: str) -> Any:
    """Read a variable's text as the type of its key; what does not fit is left for the check to name."""
    if spec.check is _switch:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    if spec.check is not _text:
        try:
            return int(text)
        except ValueError:
            return text
    return text


def _nearest(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    """A hint with the nearest valid name, or with all of them."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
