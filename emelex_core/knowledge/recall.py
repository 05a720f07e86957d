"""Reading Knowledge: active entries of a workspace, in pages (behaviours 145 and 149)."""

from __future__ import annotations

from typing import Final, cast

from emelex_core import limits
from emelex_core.db.database import Row, Transaction
from emelex_core.db.statements import load
from emelex_core.errors import Invalid, NotFound
from emelex_core.knowledge.records import Evidence, Knowledge

SQL: Final = load("emelex_core", "knowledge")


def active(transaction: Transaction, workspace_id: int, *, limit: int) -> dict[str, str]:
    """Key and content of the active entries, pinned and newest first: what a distillation is shown."""
    rows = transaction.all(SQL["active"], {"workspace_id": workspace_id, "limit": limit})
    return {cast(str, key): cast(str, content) for key, content in rows}


def page(
    transaction: Transaction, *, workspace_id: int | None, limit: int, before: tuple[int, int] | None = None
) -> list[Knowledge]:
    """Active entries, the most recently changed first, after a cursor of (updated_at, row).

    At most `limit`, and at most 16 MiB of content beyond the first: go on until a page is empty. Raises: Invalid.
    """
    if not 1 <= limit <= limits.PAGE_KNOWLEDGE_MAX:
        raise Invalid(f"limit {limit} is not between 1 and {limits.PAGE_KNOWLEDGE_MAX}")
    rows = transaction.iterate(
        SQL["page"],
        {
            "workspace_id": workspace_id,
            "limit": limit,
            "before_updated_at": None if before is None else before[0],
            "before_row": None if before is None else before[1],
        },
    )
    entries: list[Knowledge] = []
    size = 0
    for entry in map(_knowledge, rows):
        size += len(entry.content.encode())
        if entries and size > limits.PAGE_BYTES_MAX:
            break
        entries.append(entry)
    return entries


def show(transaction: Transaction, workspace_id: int, key: str) -> Knowledge:
    """One entry by its exact key, a forgotten one too. Raises: NotFound."""
    row = transaction.one(SQL["show"], {"workspace_id": workspace_id, "key": key})
    if row is None:
        raise NotFound(f"no Knowledge under the key {key[:80]!r} in this workspace")
    return _knowledge(row)


def _knowledge(row: Row) -> Knowledge:
    evidence = None
    if row[8] is not None:
        evidence = Evidence(
            event_id=cast(str, row[8]),
            sequence=cast(int, row[9]),
            speaker=cast(str, row[10]),
            quote=cast(str, row[11]),
        )
    return Knowledge(
        row=cast(int, row[0]),
        key=cast(str, row[1]),
        version=cast(int, row[2]),
        pinned=bool(row[3]),
        content=cast(str, row[4]),
        confidence=cast(float, row[5]),
        origin=cast(str, row[6]),
        session_id=cast("str | None", row[7]),
        evidence=evidence,
        job_id=cast("str | None", row[12]),
        created_at=cast(int, row[13]),
        updated_at=cast(int, row[14]),
        tombstoned_at=cast("int | None", row[15]),
        source_alive=bool(row[16]),
    )
