"""Every bound of the system, with its unit and its reason. Sources: the limits table of behaviours.md and measured.md.

Names end in the unit, then `_max` or `_min`. The assertions at the end relate bounds that depend on each other; they
run at import, so that an inconsistent edit cannot start.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- text and JSON -------------------------------------------------------------------------------------------------
TITLE_BYTES_MAX: Final = 512
MODEL_REFERENCE_BYTES_MAX: Final = 512
JSON_DEPTH_MAX: Final = 64
JSON_NODES_MAX: Final = 65_536
DIAGNOSTIC_BYTES_MAX: Final = 4 * KIB
"""A job's stored diagnostic; blank or longer is invalid (behaviour 134)."""

# --- events and turns ----------------------------------------------------------------------------------------------
EVENT_BYTES_MAX: Final = 4 * MIB
TURN_BYTES_MAX: Final = 16 * MIB
TURN_EVENTS_MAX: Final = 4_096
REPLAY_EVENTS_MAX: Final = 100_000
REPLAY_BYTES_MAX: Final = 64 * MIB
REPLAY_MEDIA_BYTES_MAX: Final = 256 * MIB

# --- pages: item bounds are per request, payload bounds keep one page in memory -------------------------------------
PAGE_BYTES_MAX: Final = 16 * MIB
"""Payload of one page; the first row is always returned, whatever its size."""
PAGE_SESSIONS_MAX: Final = 500
PAGE_EVENTS_MAX: Final = 100
PROOF_EVENTS_MAX: Final = 250
"""Events of one view while a history is proven, within a page's bytes: fixed costs vanish, and caches still hold it."""
PAGE_KNOWLEDGE_MAX: Final = 100
PAGE_FAILURES_MAX: Final = 500
PAGE_JOBS_MAX: Final = 500

# --- leases --------------------------------------------------------------------------------------------------------
LEASE_MS: Final = 5 * 60 * 1000
"""Session and worker leases. Owner death is noticed earlier, by the kernel lock (behaviour 181)."""
RENEW_EVERY_MS: Final = 60 * 1000
IN_FLIGHT_MAX: Final = 256
"""Jobs of one pool worker that wait for a server at once: more wait for the worker's one connection instead."""
BUSY_WAIT_MS: Final = 5_000
SETTLE_WAIT_MS: Final = 60_000
"""How long a worker tries to settle beside a lock that others hold: minutes of inference may be behind it."""
BUSY_WAIT_DROP_MS: Final = 0
"""A lease that is merely dropped never waits for a lock (behaviour 27)."""

# --- the queue -----------------------------------------------------------------------------------------------------
FAILURES_TERMINAL: Final = 3
BACKOFF_FIRST_MS: Final = 30 * 1000
BACKOFF_MAX_MS: Final = 5 * 60 * 1000
EXPIRED_PER_CLAIM_MAX: Final = 128
"""How many expired claims one claim call recovers, so that its cost stays bounded."""

# --- compaction (seed, "Compaction and distillation") ----------------------------------------------------------------
COMPACTION_TRIGGER_PERCENT: Final = 80
COMPACTION_TARGET_PERCENT: Final = 50
COMPACTION_KEEP_TURNS: Final = 4
COMPACTION_KEEP_TURNS_MAX: Final = 64

# --- Knowledge -----------------------------------------------------------------------------------------------------
CANDIDATES_MAX: Final = 128
KNOWLEDGE_KEY_BYTES_MAX: Final = 256
KNOWLEDGE_CONTENT_BYTES_MAX: Final = 1 * MIB
KNOWLEDGE_VERSION_MAX: Final = 2**32 - 1
EVIDENCE_QUOTE_BYTES_MAX: Final = 4 * KIB
SEARCH_QUERY_BYTES_MAX: Final = 256
RECALL_ENTRIES: Final = 8
RECALL_ENTRIES_MAX: Final = 100
RECALL_BYTES: Final = 6 * KIB
RECALL_BYTES_MAX: Final = 1 * MIB
RECALL_CONFIDENCE: Final = 0.70
"""What a prompt is given of a workspace's Knowledge: entries, their keys and contents, and how sure they must be."""
RECALL_CANDIDATES_MAX: Final = 1_000
"""Entries that are tried for a place; beyond them nothing is near enough."""
INDEX_BATCH_EVENTS: Final = 500
INDEX_BATCH_BYTES: Final = 512 * KIB
"""Events that are indexed under one write lock; the first is always taken."""
CHANGE_REASON_BYTES_MAX: Final = KIB
"""Why a run or a person changed an entry, in its record."""

# --- workers -------------------------------------------------------------------------------------------------------
OUTPUT_TOKENS_MAX: Final = 1_024
WINDOW_BYTES_MAX: Final = 16 * MIB
"""Source text of one window of a fold, beside its token budget."""

# --- assets --------------------------------------------------------------------------------------------------------
ASSET_BYTES_MAX: Final = 128 * MIB
ASSETS_PER_EVENT_MAX: Final = 1_024
IO_BUFFER_BYTES: Final = 64 * KIB
TEMPORARY_NAME_ATTEMPTS_MAX: Final = 32
TEMPORARY_AGE_MS_MIN: Final = 60 * 60 * 1000
"""A younger temporary file is left alone, even when nobody holds its lock: its writer may just have made it."""
ASSET_GRACE_MS: Final = 7 * 24 * 60 * 60 * 1000
"""How long an asset that nothing refers to is kept by default."""
COLLECT_ROWS_MAX: Final = 256
"""Catalog rows that one pass of collection removes."""
COLLECT_ENTRIES_MAX: Final = 4_096
"""Directory entries that one pass of collection looks at."""
COLLECT_FILES_PER_LOCK_MAX: Final = 16
"""Files that are removed under one write lock: unlinking 16 of 128 MiB took 40 ms, and others wait for it."""
ASSET_PROBLEMS_MAX: Final = 1_000
"""Problems that a report lists; more are only counted."""
PAGE_ASSETS_MAX: Final = 500
SESSION_ASSETS_MAX: Final = 100_000
"""One listing of a Session's media."""

# --- retention and maintenance ---------------------------------------------------------------------------------------
DAY_MS: Final = 24 * 60 * 60 * 1000
RETENTION_SESSION_MS: Final = 90 * DAY_MS
RETENTION_KNOWLEDGE_MS: Final = 180 * DAY_MS
RETENTION_TOMBSTONE_MS: Final = 30 * DAY_MS
"""How long what was forgotten can be brought back."""
RETENTION_JOB_MS: Final = 90 * DAY_MS
"""The history of finished jobs that nothing rests on."""
RETENTION_REMOVALS_MS: Final = 365 * DAY_MS
"""The removal journal, and the slots that were run."""
RETENTION_VERSIONS: Final = 8
RETENTION_VERSIONS_MAX: Final = 1_000
RETENTION_DAYS: Final = 30
"""What the command line keeps Sessions and Knowledge for by default."""
RETENTION_DAYS_MAX: Final = 3_650
RETENTION_NOTICE_MS: Final = 7 * DAY_MS
"""How long before its removal a Session is announced; using it once keeps it."""
MAINTAIN_ROWS: Final = 1_000
MAINTAIN_ROWS_MAX: Final = 10_000
"""Rows that one phase of one maintenance run may remove."""
MAINTAIN_BATCH_ROWS: Final = 100
"""Rows that are removed under one write lock, so that others' waits stay short."""
CLOCK_GAP_MS_MAX: Final = 3 * DAY_MS
"""A step of the clock up to this long is taken for time that passed; a machine is off for a weekend."""
CLOCK_AHEAD_MS_MAX: Final = DAY_MS
"""A stored instant of activity further ahead than this was written by a clock that was wrong."""
CLOCK_MS_MIN: Final = 1_767_225_600_000
"""The start of 2026, when there was no store yet: a clock that says less runs from its epoch, and corrects nothing."""
CLOCK_BELIEF_MS: Final = 7 * DAY_MS
"""How long the store must live on the far side of a longer step before that counts, too."""
VACUUM_PAGES: Final = 500
"""Pages that one step of an incremental vacuum gives back: 8 to 14 ms under the write lock."""
VACUUM_BYTES_MAX: Final = 256 * MIB
"""A larger database is vacuumed step by step: a whole VACUUM held as much memory as the database has bytes."""

# --- the agent -------------------------------------------------------------------------------------------------------
CHAT_TOKENS_MAX: Final = 131_072
"""One answer that a person asks for."""
AGENT_ROUNDS: Final = 16
AGENT_ROUNDS_MAX: Final = 20
AGENT_CALLS_PER_ROUND_MAX: Final = 16
AGENT_INPUT_BYTES_MAX: Final = 2 * MIB
"""One input, raw as well as encoded."""
AGENT_TURN_BYTES_MAX: Final = 15 * MIB
AGENT_TURN_EVENTS_MAX: Final = 2_048
TOOL_NAME_BYTES_MAX: Final = 256
TOOL_CALL_ID_BYTES_MAX: Final = 256
TOOL_OUTPUT_BYTES_MAX: Final = 256 * KIB
TURN_OUTPUT_BYTES_MAX: Final = 768 * KIB
"""What all tools of one turn may answer together."""
TURN_ARGUMENT_BYTES_MAX: Final = 512 * KIB
TOOL_SCHEMA_BYTES_MAX: Final = 64 * KIB
APPROVAL_TEXT_BYTES_MAX: Final = 4 * KIB
SNAPSHOT_BYTES_MAX: Final = 2 * MIB
"""A Session snapshot's configuration, and its authority; each."""
BATCH_EVENTS_PER_CALL: Final = 5
"""A call's result, and at most four audit events."""
BATCH_BYTES_FIXED: Final = 12 * TURN_OUTPUT_BYTES_MAX
"""All outputs of a turn as JSON, which escapes one byte to six, in the result and in whatever repeats it."""
BATCH_BYTES_PER_CALL: Final = 4 * KIB + 112 * KIB
"""A refusal's words, and a call's audit events."""

# --- import: foreign files are hostile until read --------------------------------------------------------------------
IMPORT_LINE_BYTES_MAX: Final = 64 * MIB
"""One transcript line; images inside reached about 1 MB in real files."""
IMPORT_BATCH_BYTES_MAX: Final = 4 * MIB
"""Turns are committed together up to this payload, so that one fsync carries several."""
IMPORT_FILE_BYTES_MAX: Final = 16 * 1024 * MIB
"""One transcript, unpacked. It stops a decompression bomb; real files end below 1 GiB."""
IMPORT_NESTING_MAX: Final = 128
"""JSON nested deeper than this is replaced by a labelled text before it is parsed."""
IMPORT_RECENT_RECORDS_MAX: Final = 16_384
"""How many record ids one generation of a reader's window remembers; two generations live at a time."""
IMPORT_TEXT_BYTES_MAX: Final = EVENT_BYTES_MAX - 64 * KIB
"""One text of an imported event as JSON; the rest of the event needs the difference."""
IMPORT_ARGUMENT_NODES_MAX: Final = 16_384
"""JSON values in one imported call's arguments; more are kept as JSON text. Several calls share one event."""

assert EVENT_BYTES_MAX <= TURN_BYTES_MAX <= PAGE_BYTES_MAX, "a turn must fit a page"
assert RENEW_EVERY_MS * 3 < LEASE_MS, "a lease must survive two missed renewals"
assert BUSY_WAIT_MS < SETTLE_WAIT_MS < LEASE_MS, "a settlement outlasts a statement's wait, and ends before its lease"
assert BACKOFF_FIRST_MS <= BACKOFF_MAX_MS
assert COMPACTION_TARGET_PERCENT < COMPACTION_TRIGGER_PERCENT
assert 1 <= COMPACTION_KEEP_TURNS <= COMPACTION_KEEP_TURNS_MAX
assert 1 <= MAINTAIN_BATCH_ROWS <= MAINTAIN_ROWS <= MAINTAIN_ROWS_MAX
assert RETENTION_NOTICE_MS < RETENTION_DAYS * DAY_MS <= RETENTION_SESSION_MS
assert CLOCK_GAP_MS_MAX < CLOCK_BELIEF_MS <= ASSET_GRACE_MS, "a leap of the clock must not use up a grace"
assert BATCH_BYTES_FIXED + AGENT_CALLS_PER_ROUND_MAX * BATCH_BYTES_PER_CALL < AGENT_TURN_BYTES_MAX < TURN_BYTES_MAX
assert AGENT_ROUNDS <= AGENT_ROUNDS_MAX
assert AGENT_ROUNDS_MAX * (1 + AGENT_CALLS_PER_ROUND_MAX * BATCH_EVENTS_PER_CALL) < AGENT_TURN_EVENTS_MAX
assert EVENT_BYTES_MAX < IMPORT_LINE_BYTES_MAX < IMPORT_FILE_BYTES_MAX
assert 2 * IMPORT_ARGUMENT_NODES_MAX < JSON_NODES_MAX
assert JSON_DEPTH_MAX < IMPORT_NESTING_MAX
