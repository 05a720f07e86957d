-- Schema 7: the first of Emelex memory. It takes up the numbering of Emelex 1.x (schemas 1 to 6), whose databases are
-- refused, and includes the turn and tool journals that 1.x brought with its schema 6.
--
-- Conventions: instants are integer milliseconds since the epoch, UTC. Tables are STRICT. Each state of a job has a CHECK
-- that says which columns it fills; queue/emelex_queue/states.py draws the same machine.

CREATE TABLE schema_migrations (
    number     INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;

-- A workspace is a directory by identity, not by spelling: device, inode, and birth time where the system has one (a
-- second witness, since inode numbers are reused). Device and inode are unsigned 64-bit numbers, stored as signed.
CREATE TABLE workspaces (
    id       INTEGER PRIMARY KEY,
    device   INTEGER NOT NULL,
    inode    INTEGER NOT NULL,
    birth_ns INTEGER,
    path     TEXT NOT NULL CHECK (length(path) > 0)
) STRICT;

CREATE UNIQUE INDEX workspaces_by_identity ON workspaces (device, inode, ifnull(birth_ns, -1));

CREATE TABLE sessions (
    row               INTEGER PRIMARY KEY,
    id                TEXT NOT NULL UNIQUE CHECK (length(id) = 36),
    workspace_id      INTEGER NOT NULL REFERENCES workspaces (id),
    title             TEXT NOT NULL CHECK (length(CAST(title AS BLOB)) BETWEEN 1 AND 512),
    source            TEXT NOT NULL CHECK (length(source) > 0),
    source_id         TEXT,
    source_cwd        TEXT,
    parent_session_id TEXT REFERENCES sessions (id) ON DELETE SET NULL,
    model_reference   TEXT CHECK (length(CAST(model_reference AS BLOB)) BETWEEN 1 AND 512),
    model_snapshot_id TEXT CHECK (length(CAST(model_snapshot_id AS BLOB)) BETWEEN 1 AND 512),
    last_sequence     INTEGER NOT NULL CHECK (last_sequence >= 0),
    event_bytes       INTEGER NOT NULL CHECK (event_bytes >= 0),
    chain             BLOB NOT NULL CHECK (length(chain) = 32),
    summary_sequence  INTEGER NOT NULL CHECK (summary_sequence BETWEEN 0 AND last_sequence),
    covered_sequence  INTEGER NOT NULL CHECK (covered_sequence >= 0),
    planned_sequence  INTEGER NOT NULL CHECK (planned_sequence BETWEEN 0 AND last_sequence),
    lease_token       BLOB CHECK (length(lease_token) = 16),
    lease_until       INTEGER,
    lease_owner       INTEGER,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    CHECK ((source = 'emelex') = (source_id IS NULL)),
    CHECK ((model_reference IS NULL) = (model_snapshot_id IS NULL)),
    CHECK ((lease_token IS NULL) = (lease_until IS NULL) AND (lease_token IS NULL) = (lease_owner IS NULL)),
    CHECK (covered_sequence < summary_sequence OR (covered_sequence = 0 AND summary_sequence = 0))
) STRICT;

CREATE UNIQUE INDEX sessions_by_source ON sessions (source, source_id) WHERE source_id IS NOT NULL;
-- Without the time of the last activity, which every append moves: a list of Sessions is sorted when it is asked for.
CREATE INDEX sessions_by_workspace ON sessions (workspace_id);
-- Without the deadline, which every append moves: a renewal writes no page of this index.
CREATE INDEX sessions_held ON sessions (id) WHERE lease_token IS NOT NULL;

-- `chain` is the digest of the Session's history up to and including the row; see emelex_core/digests.py.
CREATE TABLE events (
    row           INTEGER PRIMARY KEY,
    session_id    TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    sequence      INTEGER NOT NULL CHECK (sequence >= 1),
    id            TEXT NOT NULL UNIQUE CHECK (length(id) = 36),
    turn_id       TEXT NOT NULL CHECK (length(turn_id) = 36),
    turn_position INTEGER NOT NULL,
    turn_size     INTEGER NOT NULL CHECK (turn_size BETWEEN 1 AND 4096),
    kind          TEXT NOT NULL,
    role          TEXT NOT NULL,
    payload       BLOB NOT NULL CHECK (length(payload) BETWEEN 2 AND 4194304),
    source_record TEXT,
    occurred_at   INTEGER,
    created_at    INTEGER NOT NULL,
    chain         BLOB NOT NULL CHECK (length(chain) = 32),
    UNIQUE (session_id, sequence),
    CHECK (turn_position >= 0 AND turn_position < turn_size),
    CHECK ((kind IN ('user', 'context', 'summary') AND role = 'user')
        OR (kind = 'assistant' AND role = 'assistant')
        OR (kind = 'tool' AND role = 'tool')
        OR (kind IN ('audit', 'approval', 'error') AND role = 'none'))
) STRICT;

CREATE UNIQUE INDEX events_by_source_record ON events (session_id, source_record) WHERE source_record IS NOT NULL;

-- The resolved configuration and tool authority of a Session; immutable, outside the transcript.
CREATE TABLE session_snapshots (
    session_id TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    version    INTEGER NOT NULL CHECK (version = 1),
    config     BLOB NOT NULL CHECK (length(config) BETWEEN 2 AND 2097152),
    authority  BLOB NOT NULL CHECK (length(authority) BETWEEN 2 AND 2097152),
    created_at INTEGER NOT NULL
) STRICT;

-- Journals (the seed's schema 6): the turn that is under way, and what is known of each tool call in it.
CREATE TABLE active_turns (
    session_id       TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    turn_id          TEXT NOT NULL UNIQUE CHECK (length(turn_id) = 36),
    input            BLOB NOT NULL CHECK (length(input) BETWEEN 2 AND 2097152),
    checkpoint_count INTEGER NOT NULL CHECK (checkpoint_count >= 0),
    started_at       INTEGER NOT NULL
) STRICT;

CREATE TABLE pending_tools (
    session_id TEXT NOT NULL REFERENCES active_turns (session_id) ON DELETE CASCADE,
    ordinal    INTEGER NOT NULL CHECK (ordinal BETWEEN 0 AND 15),
    call_id    TEXT NOT NULL CHECK (length(CAST(call_id AS BLOB)) BETWEEN 1 AND 256),
    name       TEXT NOT NULL CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 256),
    arguments  BLOB NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('planned', 'started', 'completed')),
    started_at INTEGER,
    result     BLOB,
    PRIMARY KEY (session_id, ordinal),
    UNIQUE (session_id, call_id),
    CHECK ((state = 'planned') = (started_at IS NULL)),
    CHECK ((state = 'completed') = (result IS NOT NULL))
) STRICT;

-- Media bytes live in files named by their digest; a reference's kind belongs to the link (behaviour 102).
CREATE TABLE assets (
    sha256     TEXT PRIMARY KEY CHECK (length(sha256) = 64),
    size       INTEGER NOT NULL CHECK (size BETWEEN 0 AND 134217728),
    created_at INTEGER NOT NULL,
    touched_at INTEGER NOT NULL
) STRICT;

CREATE TABLE event_assets (
    session_id TEXT NOT NULL,
    sequence   INTEGER NOT NULL,
    ordinal    INTEGER NOT NULL CHECK (ordinal BETWEEN 0 AND 1023),
    sha256     TEXT NOT NULL REFERENCES assets (sha256),
    kind       TEXT NOT NULL CHECK (kind IN ('image', 'audio', 'document')),
    PRIMARY KEY (session_id, sequence, ordinal),
    FOREIGN KEY (session_id, sequence) REFERENCES events (session_id, sequence) ON DELETE CASCADE
) STRICT;

CREATE INDEX event_assets_by_digest ON event_assets (sha256);

-- The queue: both kinds, one state machine. `row` is the order of publishing. `run_at` is when a pending job may be claimed.
-- The provenance is the exact source prefix: the events 1 to through_sequence of the Session.
CREATE TABLE jobs (
    row                   INTEGER PRIMARY KEY,
    id                    TEXT NOT NULL UNIQUE CHECK (length(id) = 36),
    kind                  TEXT NOT NULL CHECK (kind IN ('compaction', 'distillation')),
    session_id            TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    state                 TEXT NOT NULL CHECK (state IN ('pending', 'running', 'completed', 'failed')),
    failure_count         INTEGER NOT NULL CHECK (failure_count BETWEEN 0 AND 3),
    run_at                INTEGER NOT NULL,
    lease_token           BLOB CHECK (length(lease_token) = 16),
    lease_until           INTEGER,
    lease_owner           INTEGER,
    retry_after           INTEGER,
    last_error            TEXT CHECK (length(CAST(last_error AS BLOB)) BETWEEN 1 AND 4096),
    failed_at             INTEGER,
    completed_at          INTEGER,
    published_at          INTEGER NOT NULL,
    through_sequence      INTEGER NOT NULL CHECK (through_sequence >= 1),
    source_event_count    INTEGER NOT NULL CHECK (source_event_count = through_sequence),
    source_first_event_id TEXT NOT NULL CHECK (length(source_first_event_id) = 36),
    source_last_event_id  TEXT NOT NULL CHECK (length(source_last_event_id) = 36),
    source_sha256         TEXT NOT NULL CHECK (length(source_sha256) = 64),
    target_tokens         INTEGER CHECK (target_tokens >= 1),
    CHECK ((kind = 'compaction') = (target_tokens IS NOT NULL)),
    CHECK ((failure_count = 0) = (last_error IS NULL)),
    CHECK (state <> 'pending' OR (failure_count < 3 AND lease_token IS NULL AND lease_until IS NULL
        AND lease_owner IS NULL AND failed_at IS NULL AND completed_at IS NULL
        AND (retry_after IS NULL OR (failure_count > 0 AND retry_after = run_at)))),
    CHECK (state <> 'running' OR (failure_count < 3 AND lease_token IS NOT NULL AND lease_until IS NOT NULL
        AND lease_owner IS NOT NULL AND retry_after IS NULL AND failed_at IS NULL AND completed_at IS NULL)),
    CHECK (state <> 'completed' OR (lease_token IS NULL AND lease_until IS NULL AND lease_owner IS NULL
        AND retry_after IS NULL AND failed_at IS NULL AND completed_at IS NOT NULL)),
    CHECK (state <> 'failed' OR (failure_count > 0 AND lease_token IS NULL AND lease_until IS NULL
        AND lease_owner IS NULL AND retry_after IS NULL AND failed_at IS NOT NULL AND completed_at IS NULL))
) STRICT;

CREATE UNIQUE INDEX jobs_by_source ON jobs (kind, session_id, source_sha256);
CREATE INDEX jobs_by_session ON jobs (session_id, kind, through_sequence);
CREATE INDEX jobs_to_claim ON jobs (kind, row, run_at) WHERE state = 'pending';
CREATE INDEX jobs_running ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX jobs_failed ON jobs (failed_at DESC, row DESC) WHERE state = 'failed';

-- What made a completed job's result: model, prompt, grammar, sampling, counts. Apart from `jobs`, so that claims and
-- renewals rewrite small rows only.
CREATE TABLE job_records (
    job_id     TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    record     BLOB NOT NULL CHECK (length(record) BETWEEN 2 AND 4194304),
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE knowledge (
    row            INTEGER PRIMARY KEY,
    workspace_id   INTEGER NOT NULL REFERENCES workspaces (id),
    key            TEXT NOT NULL CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 256),
    active_version INTEGER NOT NULL CHECK (active_version BETWEEN 1 AND 4294967295),
    pinned         INTEGER NOT NULL CHECK (pinned IN (0, 1)),
    tombstoned_at  INTEGER,
    tombstoned_by  TEXT CHECK (tombstoned_by IN ('user', 'distillation', 'retention')),
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    UNIQUE (workspace_id, key),
    CHECK ((tombstoned_at IS NULL) = (tombstoned_by IS NULL)),
    CHECK (pinned = 0 OR tombstoned_at IS NULL)
) STRICT;

CREATE INDEX knowledge_by_update ON knowledge (workspace_id, updated_at DESC, row DESC);

-- Versions are immutable. Deleting a source Session clears its foreign key; the uuid, range and digest stay for audit.
CREATE TABLE knowledge_versions (
    knowledge_row         INTEGER NOT NULL REFERENCES knowledge (row) ON DELETE CASCADE,
    version               INTEGER NOT NULL CHECK (version BETWEEN 1 AND 4294967295),
    content               TEXT NOT NULL CHECK (length(CAST(content AS BLOB)) BETWEEN 1 AND 1048576),
    confidence            REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    origin                TEXT NOT NULL CHECK (origin IN ('user', 'distillation')),
    source_session_id     TEXT REFERENCES sessions (id) ON DELETE SET NULL,
    source_session_uuid   TEXT,
    source_first_sequence INTEGER,
    source_last_sequence  INTEGER,
    source_sha256         TEXT CHECK (length(source_sha256) = 64),
    evidence_event_id     TEXT,
    evidence_sequence     INTEGER,
    evidence_speaker      TEXT,
    evidence_quote        TEXT CHECK (length(CAST(evidence_quote AS BLOB)) BETWEEN 1 AND 4096),
    job_id                TEXT,
    created_at            INTEGER NOT NULL,
    PRIMARY KEY (knowledge_row, version),
    CHECK (origin <> 'distillation' OR (source_session_uuid IS NOT NULL AND source_first_sequence IS NOT NULL
        AND source_last_sequence IS NOT NULL AND source_sha256 IS NOT NULL AND evidence_event_id IS NOT NULL
        AND evidence_sequence IS NOT NULL AND evidence_speaker IS NOT NULL AND evidence_quote IS NOT NULL
        AND job_id IS NOT NULL)),
    CHECK (source_session_id IS NULL OR source_session_id = source_session_uuid)
) STRICT;

CREATE INDEX knowledge_versions_by_session ON knowledge_versions (source_session_id) WHERE source_session_id IS NOT NULL;

-- What distillation may not change by itself: pinned entries and keys that the user has forgotten (behaviours 138, 140).
CREATE TABLE knowledge_proposals (
    row               INTEGER PRIMARY KEY,
    workspace_id      INTEGER NOT NULL REFERENCES workspaces (id),
    key               TEXT NOT NULL CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 256),
    content           TEXT NOT NULL CHECK (length(CAST(content AS BLOB)) BETWEEN 1 AND 1048576),
    confidence        REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    reason            TEXT NOT NULL CHECK (reason IN ('pinned', 'forgotten', 'user_written')),
    session_uuid      TEXT NOT NULL,
    evidence_event_id TEXT NOT NULL,
    evidence_sequence INTEGER NOT NULL,
    evidence_speaker  TEXT NOT NULL,
    evidence_quote    TEXT NOT NULL CHECK (length(CAST(evidence_quote AS BLOB)) BETWEEN 1 AND 4096),
    job_id            TEXT NOT NULL,
    created_at        INTEGER NOT NULL,
    UNIQUE (workspace_id, key, job_id)
) STRICT;

-- How far a foreign transcript has been read: `byte_offset` bytes whose digest is `prefix_sha256`.
CREATE TABLE imports (
    session_id    TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    byte_offset   INTEGER NOT NULL CHECK (byte_offset >= 0),
    prefix_sha256 TEXT NOT NULL CHECK (length(prefix_sha256) = 64),
    updated_at    INTEGER NOT NULL
) STRICT;
