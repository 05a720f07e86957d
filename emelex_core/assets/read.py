"""Reading assets: what the catalog, the link and the file say must agree (behaviours 103 and 106).

The catalog is asked in one short transaction; the file is read and hashed after it, so that no reader keeps a writer
waiting. A file that was collected in between is told from one that is missing by asking again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from emelex_core.assets import files
from emelex_core.assets.files import Missing
from emelex_core.assets.media import Writable
from emelex_core.assets.records import AssetLink
from emelex_core.db.database import Database, Value
from emelex_core.db.statements import load
from emelex_core.errors import Corrupt, Invalid
from emelex_core.events import AssetRef

SQL: Final = load("emelex_core", "assets")


def read(database: Database, directory: Path, ref: AssetRef, *, link: AssetLink | None = None) -> bytes:
    """Return an asset's bytes, proven; with `link`, also that the event there names it under this ordinal and kind.

    Raises: Invalid when it is not cataloged; Corrupt when reference, link, catalog and file do not agree; Storage.
    """
    path = _locate(database, directory, ref, link)
    try:
        return files.read(path, sha256=ref.sha256, size=ref.size)
    except Missing:
        _require_cataloged(database, ref)
        raise


def copy(
    database: Database, directory: Path, ref: AssetRef, target: Writable, *, link: AssetLink | None = None
) -> None:
    """Write an asset's bytes through one buffer; they stand only if nothing is raised. Raises: as `read`."""
    path = _locate(database, directory, ref, link)
    try:
        files.copy(path, target, sha256=ref.sha256, size=ref.size)
    except Missing:
        _require_cataloged(database, ref)
        raise


def _locate(database: Database, directory: Path, ref: AssetRef, link: AssetLink | None) -> Path:
    size = _require_cataloged(database, ref)
    if size != ref.size:
        raise Corrupt(f"asset {ref.sha256} has {size} bytes in the catalog, but its reference says {ref.size}")
    if link is not None:
        _check_link(database, ref, link)
    return directory / ref.sha256


def _require_cataloged(database: Database, ref: AssetRef) -> int:
    if not files.is_digest(ref.sha256):
        raise Invalid(f"{ref.sha256[:80]!r} is no SHA-256 of an asset")
    with database.read() as transaction:
        row = transaction.one(SQL["size"], {"sha256": ref.sha256})
    if row is None:
        raise Invalid(f"asset {ref.sha256} is not stored here")
    assert isinstance(row[0], int)
    return row[0]


def _check_link(database: Database, ref: AssetRef, link: AssetLink) -> None:
    place: dict[str, Value] = {"session_id": link.session_id, "sequence": link.sequence, "ordinal": link.ordinal}
    with database.read() as transaction:
        row = transaction.one(SQL["link"], place)
    what = f"Session {link.session_id}: event {link.sequence}"
    if row is None:
        raise Corrupt(f"{what} links no media at ordinal {link.ordinal}")
    if row != (ref.sha256, ref.kind):
        raise Corrupt(f"{what} links {row[1]!s} {row[0]!s} at ordinal {link.ordinal}, not {ref.kind} {ref.sha256}")
