"""SessionSnapshot: what a Session was begun with, and is only ever resumed with (behaviours 61 to 66).

The configuration is what shapes the model's answers; the authority is what the Session's tools may do, and where. Both
stand outside the transcript, so that no compaction can lose them.

The module owns these invariants:

- A snapshot is stored once, for an empty Session; schema 11 refuses to change it.
- A Session is resumed with an identical one, or refused by the place that differs. Only the spelling of the root's path
  may change: the lease has proven that it is the same directory.
- Each of the two is at most 2 MiB of canonical JSON; a tool's schema is at most 64 levels deep by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Self, cast

import orjson

from emelex_core import codec, faults, limits
from emelex_core.clock import Clock
from emelex_core.codec import Json
from emelex_core.db.database import Database, Transaction, Value
from emelex_core.errors import Invalid, SnapshotMismatch
from emelex_core.journal.reading import SQL
from emelex_core.sessions.lease import SessionLease

VERSION: Final = 1
_ROOT: Final = "root"
_TOOLS: Final = "tools"
_PARAMETERS: Final = "parameters"
_DIFFERENCES_SHOWN: Final = 3
_VALUE_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSnapshot:
    """A resolved configuration and the exact authority of its tools, each as canonical JSON.

    The configuration has the model under `model`; the authority is
    {"root": {"path"}, "tools": {name: {"parameters", …}}}.
    """

    config: bytes
    authority: bytes

    @classmethod
    def of(cls, *, config: Mapping[str, Json], root: str, tools: Mapping[str, Mapping[str, Json]]) -> Self:
        """Make a snapshot. `tools` has for each name its JSON Schema under `parameters`, and whatever else binds it.

        Raises: Invalid for what is no JSON, too deep, or larger than 2 MiB.
        """
        encoded = codec.encode(dict(config), what="snapshot configuration", bytes_max=limits.SNAPSHOT_BYTES_MAX)
        return cls(config=encoded, authority=_encode_authority(root, tools))

    @property
    def root_path(self) -> str:
        """Where the authority is rooted."""
        return cast(str, self._authority()[_ROOT]["path"])

    @property
    def model(self) -> tuple[str | None, str | None]:
        """Reference and snapshot id of the model that the Session was begun with, as `config.model` says."""
        model = cast("dict[str, Any]", _decoded(self.config).get("model") or {})
        return model.get("reference"), model.get("snapshot_id")

    @property
    def configuration(self) -> dict[str, Any]:
        """The resolved configuration."""
        return _decoded(self.config)

    @property
    def tool_names(self) -> frozenset[str]:
        """The tools that the authority holds."""
        return frozenset(cast("dict[str, Any]", self._authority()[_TOOLS]))

    def difference(self, other: SessionSnapshot) -> str | None:
        """Where another snapshot differs, the root's path apart, as `path: mine != its`; None when nowhere."""
        mine, its = self._authority(), other._authority()
        found = [
            *_differences(_decoded(self.config), _decoded(other.config), ""),
            *_differences({**mine, _ROOT: None}, {**its, _ROOT: None}, ""),
        ]
        if not found:
            return None
        more = len(found) - _DIFFERENCES_SHOWN
        shown = "; ".join(islice(found, _DIFFERENCES_SHOWN))
        return f"{shown}; and {more} more" if more > 0 else shown

    def _authority(self) -> dict[str, Any]:
        return _decoded(self.authority)


def stored(transaction: Transaction, session_id: str) -> SessionSnapshot | None:
    """The snapshot of a Session, or None. Raises: Corrupt for one that does not parse."""
    row = transaction.one(SQL["snapshot"], {"session_id": session_id})
    if row is None:
        return None
    return SessionSnapshot(config=cast(bytes, row[1]), authority=cast(bytes, row[2]))


def load(database: Database, session_id: str) -> SessionSnapshot | None:
    """As `stored`, in a view of its own."""
    with database.read() as transaction:
        return stored(transaction, session_id)


def require_same(session_id: str, found: SessionSnapshot | None, wanted: SessionSnapshot, *, is_empty: bool) -> None:
    """Raise SnapshotMismatch unless a Session with this stored snapshot may go on with the wanted one."""
    if found is None:
        if is_empty:
            return
        raise SnapshotMismatch(
            f"Session {session_id} has history, and no snapshot of what it was made with",
            difference="snapshot: none",
            hint="start a new Session; this one can still be shown, exported and distilled",
        )
    difference = found.difference(wanted)
    if difference is not None:
        raise SnapshotMismatch(
            f"Session {session_id} was begun with another configuration or authority: {difference}",
            difference=difference,
            hint="resume it with what it was begun with, or start a new Session",
        )


def keep(lease: SessionLease, wanted: SessionSnapshot, *, clock: Clock) -> None:
    """Store the snapshot of an empty Session, or note the new path of its root; identical ones need nothing.

    The lease has replayed. Raises: SnapshotMismatch; as `SessionLease.writing`.
    """
    with lease.reading() as transaction:
        found = stored(transaction, lease.session_id)
    if found == wanted:
        return
    place: dict[str, Value] = {"session_id": lease.session_id}
    with lease.writing() as transaction:
        if found is None:
            values: dict[str, Value] = {
                "version": VERSION,
                "config": wanted.config,
                "authority": wanted.authority,
                "now": clock(),
            }
            if not transaction.run(SQL["store_snapshot"], {**place, **values}):
                require_same(lease.session_id, stored(transaction, lease.session_id), wanted, is_empty=False)
        else:
            require_same(lease.session_id, found, wanted, is_empty=False)
            moved: dict[str, Value] = {"before": found.authority, "authority": wanted.authority}
            transaction.run(SQL["move_snapshot"], {**place, **moved})
        faults.reach("journal.before_commit")
    faults.reach("snapshot.stored")


def _encode_authority(root: str, tools: Mapping[str, Mapping[str, Json]]) -> bytes:
    """Canonical bytes. Each schema passes the gate by itself, since its place here is no depth of its own."""
    codec.check_text(root, what="snapshot root")
    shallow = {name: {key: value for key, value in tool.items() if key != _PARAMETERS} for name, tool in tools.items()}
    codec.check_json(shallow, what="snapshot authority", bytes_max=limits.SNAPSHOT_BYTES_MAX)
    for name, tool in tools.items():
        what = f"{_TOOLS}.{name[:80]}.{_PARAMETERS}"
        codec.check_json(tool.get(_PARAMETERS), what=what, bytes_max=limits.SNAPSHOT_BYTES_MAX)
    authority = {_ROOT: {"path": root}, _TOOLS: {name: dict(tool) for name, tool in tools.items()}}
    data = orjson.dumps(authority, option=orjson.OPT_SORT_KEYS)
    if len(data) > limits.SNAPSHOT_BYTES_MAX:
        raise Invalid(f"snapshot authority: {len(data)} bytes; at most {limits.SNAPSHOT_BYTES_MAX} are accepted")
    return data


def _decoded(data: bytes) -> dict[str, Any]:
    return cast("dict[str, Any]", codec.decode_stored(data, what="Session snapshot"))


def _differences(mine: Json, its: Json, path: str) -> Iterator[str]:
    """Yield each place at which two JSON values differ, the shallowest that tells."""
    left, right = _members(mine), _members(its)
    if left is not None and right is not None:
        for key in sorted(left.keys() | right.keys()):
            place = f"{path}.{key}" if path else key
            if key in left and key in right:
                yield from _differences(left[key], right[key], place)
            else:
                yield f"{place}: {_shown(left, key)} != {_shown(right, key)}"
    elif type(mine) is not type(its) or mine != its:
        yield f"{path}: {_short(mine)} != {_short(its)}"


def _members(value: object) -> dict[str, Json] | None:
    return cast("dict[str, Json]", value) if isinstance(value, dict) else None


def _shown(values: dict[str, Json], key: str) -> str:
    return _short(values[key]) if key in values else "absent"


def _short(value: object) -> str:
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return text if len(text) <= _VALUE_SHOWN else text[: _VALUE_SHOWN - 1] + "…"
