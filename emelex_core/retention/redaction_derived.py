"""What a redaction does to that which rests on the transcript: quotes, contents, proposals, jobs, the title.

The module owns these invariants:

- A quote reads what its event reads at the same place; its beginning where that has become longer than a quote may be.
- Contents and diagnostics lose the same places. What stands under a key that would have to lose one goes as a whole.
  So does what stands under a key with a struck word in it: a key is a slug, folded and joined, that no pattern finds.
- Stated digests are those of the transcript as it is now.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Final, cast

from emelex_core import limits, publish
from emelex_core.db.database import Row, Transaction, Value
from emelex_core.db.statements import load
from emelex_core.retention import erasure
from emelex_core.retention.masking import Finder, Masked, mask

SQL: Final = load("emelex_core", "redaction")
_WORD: Final = re.compile(r"[^\W_]{3,}")
"""Shorter words tell nothing, and would take keys along that have nothing to do with the place."""


@dataclass(slots=True, kw_only=True)
class Run:
    """One redaction under way: what it follows, and what it has come to. `chain` is the new one so far."""

    transaction: Transaction
    session_id: str
    find: Finder
    quotes: dict[int, list[str]]
    jobs: dict[int, list[Row]]
    chain: bytes
    sources: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    first: int | None = None
    events: int = 0
    places: int = 0
    bytes_added: int = 0
    knowledge: int = 0
    others: int = 0
    struck: set[str] = field(default_factory=set[str])

    def must_lose(self, key: str) -> bool:
        """Whether a key holds a place itself, or a word of one in the form that keys have."""
        return bool(mask(key, self.find).spans) or not self.struck.isdisjoint(_words(key))

    def tally(self, sequence: int, seen: list[Masked]) -> None:
        """Count the places of one event, and keep their words."""
        for text in seen:
            for start, end in text.spans:
                self.struck |= _words(text.before[start:end])
        if seen:
            self.first = self.first if self.first is not None else sequence
            self.events += 1
            self.places += sum(len(text.spans) for text in seen)


def rewrite(run: Run, *, now: int) -> None:
    """Bring everything in line with the transcript, once its events are rewritten."""
    _rewrite_jobs(run)
    _rewrite_derived(run, now=now)


def follow_quotes(run: Run, sequence: int, seen: list[Masked]) -> None:
    """Rewrite the quotes of an event to what they read now; one that was never there is a check's to find."""
    for quote in run.quotes.get(sequence, ()):
        after = next((found for text in seen if (found := text.follow(quote)) is not None), None)
        if after is None or after == quote:
            continue
        parameters: dict[str, Value] = {
            "id": run.session_id,
            "sequence": sequence,
            "before": quote,
            "quote": _cut(after, limits.EVIDENCE_QUOTE_BYTES_MAX),
        }
        for statement in (SQL["rewrite_quote"], SQL["rewrite_other_quote"], SQL["rewrite_proposed_quote"]):
            run.knowledge += run.transaction.run(statement, parameters)


def _rewrite_jobs(run: Run) -> None:
    for rows in run.jobs.values():
        for job_id, _, _, _, _, sha256, last_error in rows:
            after = run.sources.get(cast(str, job_id), (sha256, sha256))[1]
            told = None if last_error is None else mask(cast(str, last_error), run.find).after
            if (after, told) != (sha256, last_error):
                parameters: dict[str, Value] = {
                    "job_id": job_id,
                    "sha256": after,
                    "last_error": _cut(told, limits.DIAGNOSTIC_BYTES_MAX),
                }
                run.transaction.run(SQL["rewrite_job"], parameters)
                run.others += told != last_error


def _rewrite_derived(run: Run, *, now: int) -> None:
    """Contents, keys, proposals, reasons and the title. A key cannot be rewritten: what stands under it goes."""
    scope: dict[str, Value] = {"id": run.session_id}
    for row, version, key, content, job_id, last, sha256 in run.transaction.all(SQL["versions"], scope):
        place: dict[str, Value] = {"row": row, "version": version}
        if run.must_lose(cast(str, key)):
            run.knowledge += run.transaction.run(SQL["drop_version"], place)
            erasure.settle_entry(run.transaction, cast(int, row), now=now)
            continue
        masked = mask(cast(str, content), run.find)
        moved = _moved(run, job_id, last, sha256)
        if masked.spans or moved != sha256:
            parameters: dict[str, Value] = {**place, "content": masked.after, "sha256": moved}
            run.transaction.run(SQL["rewrite_version"], parameters)
            run.knowledge += bool(masked.spans)
    for row, version, job_id, sha256 in run.transaction.all(SQL["evidence"], scope):
        moved = run.sources.get(cast(str, job_id), (sha256, sha256))[1]
        run.transaction.run(SQL["rewrite_evidence"], {**scope, "row": row, "version": version, "sha256": moved})
    _rewrite_proposals(run)
    run.transaction.run(SQL["drop_reasons"], scope)
    (title,) = cast(tuple[str], run.transaction.one(SQL["titles"], scope))
    masked = mask(title, run.find)
    if masked.spans:
        kept = _cut(masked.after, limits.TITLE_BYTES_MAX)
        run.others += run.transaction.run(SQL["rewrite_title"], {**scope, "title": kept})


def _rewrite_proposals(run: Run) -> None:
    for row, key, content, why, job_id, sha256 in run.transaction.all(SQL["proposals"], {"id": run.session_id}):
        if run.must_lose(cast(str, key)):
            run.knowledge += run.transaction.run(SQL["drop_proposal"], {"row": row})
            continue
        told, reason = (None if text is None else mask(cast(str, text), run.find).after for text in (content, why))
        moved = run.sources.get(cast(str, job_id), (sha256, sha256))[1]
        if (told, reason, moved) != (content, why, sha256):
            parameters: dict[str, Value] = {
                "row": row,
                "content": told,
                "why": _cut(reason, limits.CHANGE_REASON_BYTES_MAX),
                "sha256": moved,
            }
            run.transaction.run(SQL["rewrite_proposal"], parameters)
            run.knowledge += told != content


def _moved(run: Run, job_id: Value, last: Value, sha256: Value) -> Value:
    """The digest of a version's source as it is now: a job's, or of the prefix that a person named."""
    if sha256 is None:
        return None
    if job_id is not None:
        return run.sources.get(cast(str, job_id), (sha256, sha256))[1]
    source = publish.current_source(run.transaction, "knowledge", run.session_id, cast(int, last))
    return sha256 if source is None else source.source_sha256


def _cut(text: str | None, bytes_max: int) -> str | None:
    return None if text is None else text.encode()[:bytes_max].decode("utf-8", "ignore")


def _words(text: str) -> set[str]:
    """The words of a text as keys hold them: folded, without what joins them."""
    return set(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))
