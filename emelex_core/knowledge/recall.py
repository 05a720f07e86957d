"""Reading Knowledge: active entries in pages, one entry, its versions and its record (behaviours 145 and 149)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from emelex_core import limits
from emelex_core.db.database import Row, Transaction, Value
from emelex_core.db.statements import load
from emelex_core.errors import Invalid, NotFound
from emelex_core.knowledge.records import Evidence, Knowledge, KnowledgeVersion

SQL: Final = load("emelex_core", "knowledge")


def active(transaction: Transaction, workspace_id: int, *, limit: int) -> dict[str, str]:
    """Key and content of the active entries, pinned and newest first: what a distillation is shown."""
    rows = transaction.all(SQL["active"], {"workspace_id": workspace_id, "limit": limit})
    return {cast(str, key): cast(str, content) for key, content in rows}


def page(
    transaction: Transaction,
    *,
    workspace_id: int | None,
    limit: int,
    before: tuple[int, int] | None = None,
    as_of: int | None = None,
) -> list[Knowledge]:
    """Active entries, the most recently changed first, after a cursor of (updated_at, row).

    With `as_of` those that held at that instant, as far as their versions are still kept. At most `limit`, and at most
    16 MiB of content beyond the first: go on until a page is empty. Raises: Invalid.
    """
    check_limit(limit)
    parameters: dict[str, Value] = {
        "workspace_id": workspace_id,
        "limit": limit,
        "before_updated_at": None if before is None else before[0],
        "before_row": None if before is None else before[1],
    }
    if as_of is None:
        return bounded(map(knowledge, transaction.iterate(SQL["page"], parameters)))
    return bounded(map(knowledge, transaction.iterate(SQL["page_as_of"], {**parameters, "at": as_of})))


def show(transaction: Transaction, workspace_id: int, key: str) -> Knowledge:
    """One entry by its exact key, a forgotten one too. Raises: NotFound."""
    row = transaction.one(SQL["show"], {"workspace_id": workspace_id, "key": key})
    if row is None:
        raise NotFound(f"no Knowledge under the key {key[:80]!r} in this workspace")
    return knowledge(row)


def history(transaction: Transaction, row: int, *, limit: int, before: int | None = None) -> list[KnowledgeVersion]:
    """Versions of an entry, the newest first, below a version number. Raises: Invalid."""
    check_limit(limit)
    found: list[KnowledgeVersion] = []
    size = 0
    for version in map(_version, transaction.iterate(SQL["versions"], {"row": row, "before": before, "limit": limit})):
        size += len(version.content.encode())
        if found and size > limits.PAGE_BYTES_MAX:
            break
        found.append(version)
    return found


def check_limit(limit: int) -> None:
    """Raise Invalid for a page of Knowledge that is out of bounds."""
    if not 1 <= limit <= limits.PAGE_KNOWLEDGE_MAX:
        raise Invalid(f"limit {limit} is not between 1 and {limits.PAGE_KNOWLEDGE_MAX}")


def bounded(found: Iterable[Knowledge]) -> list[Knowledge]:
    """Take entries up to the payload of one page; the first is always taken."""
    entries: list[Knowledge] = []
    size = 0
    for entry in found:
        size += len(entry.content.encode())
        if entries and size > limits.PAGE_BYTES_MAX:
            break
        entries.append(entry)
    return entries


def knowledge(row: Row) -> Knowledge:
    """One entry from the twenty columns that the statements of pages share."""
    return Knowledge(
        row=cast(int, row[0]),
        key=cast(str, row[1]),
        version=cast(int, row[2]),
        pinned=bool(row[3]),
        content=cast(str, row[4]),
        confidence=cast(float, row[5]),
        origin=cast(str, row[6]),
        session_id=cast("str | None", row[7]),
        evidence=evidence(row[8:12]),
        job_id=cast("str | None", row[12]),
        created_at=cast(int, row[13]),
        updated_at=cast(int, row[14]),
        tombstoned_at=cast("int | None", row[15]),
        source_alive=bool(row[16]),
        tombstoned_by=cast("str | None", row[17]),
        valid_from=cast(int, row[18]),
        workspace_path=cast(str, row[19]),
    )


def evidence(columns: Row) -> Evidence | None:
    """Evidence from its four columns, or None."""
    if columns[0] is None:
        return None
    return Evidence(
        event_id=cast(str, columns[0]),
        sequence=cast(int, columns[1]),
        speaker=cast(str, columns[2]),
        quote=cast(str, columns[3]),
    )


def _version(row: Row) -> KnowledgeVersion:
    return KnowledgeVersion(
        version=cast(int, row[0]),
        active=bool(row[1]),
        content=cast(str, row[2]),
        confidence=cast(float, row[3]),
        origin=cast(str, row[4]),
        session_id=cast("str | None", row[5]),
        source_alive=bool(row[6]),
        evidence=evidence(row[7:11]),
        job_id=cast("str | None", row[11]),
        valid_from=cast(int, row[12]),
        created_at=cast(int, row[13]),
    )
