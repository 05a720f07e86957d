-- Schema 11: what the journal of a turn must carry beside its input, and a snapshot that nobody can change
-- (emelex_core/journal; ADR 0017). States of a call, as emelex_core/journal/states.py draws them:
--
--     planned ─start─▶ started ─complete─▶ completed
--        └────────────complete────────────────▲        (refused, denied or not reached: it never ran)

-- A call may be completed without having been started; `started_at` says for ever whether it ran.
CREATE TABLE pending_tools_11 (
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
    CHECK (state <> 'planned' OR (started_at IS NULL AND result IS NULL)),
    CHECK (state <> 'started' OR (started_at IS NOT NULL AND result IS NULL)),
    CHECK (state <> 'completed' OR result IS NOT NULL)
) STRICT;

INSERT INTO pending_tools_11 SELECT * FROM pending_tools;
DROP TABLE pending_tools;
ALTER TABLE pending_tools_11 RENAME TO pending_tools;

-- The batch that is under way: its messages, and the worst case that it was given room for before its first tool.
CREATE TABLE pending_batches (
    session_id      TEXT PRIMARY KEY REFERENCES active_turns (session_id) ON DELETE CASCADE,
    messages        BLOB NOT NULL CHECK (length(messages) BETWEEN 2 AND 15728640),
    reserved_bytes  INTEGER NOT NULL CHECK (reserved_bytes BETWEEN 1 AND 15728640),
    reserved_events INTEGER NOT NULL CHECK (reserved_events BETWEEN 1 AND 2048),
    planned_at      INTEGER NOT NULL
) STRICT;

-- Somebody was asked whether a planned call may run, and what they said. An answer holds for this one call.
CREATE TABLE pending_approvals (
    session_id TEXT NOT NULL,
    ordinal    INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('asked', 'granted', 'denied')),
    request    TEXT NOT NULL CHECK (length(CAST(request AS BLOB)) BETWEEN 1 AND 4096),
    reason     TEXT CHECK (length(CAST(reason AS BLOB)) BETWEEN 1 AND 4096),
    asked_at   INTEGER NOT NULL,
    decided_at INTEGER,
    PRIMARY KEY (session_id, ordinal),
    FOREIGN KEY (session_id, ordinal) REFERENCES pending_tools (session_id, ordinal) ON DELETE CASCADE,
    CHECK ((state = 'asked') = (decided_at IS NULL)),
    CHECK (reason IS NULL OR state <> 'asked')
) STRICT;

-- Which events each checkpoint of the turn under way has put into the history.
CREATE TABLE turn_checkpoints (
    session_id     TEXT NOT NULL REFERENCES active_turns (session_id) ON DELETE CASCADE,
    ordinal        INTEGER NOT NULL CHECK (ordinal >= 1),
    first_sequence INTEGER NOT NULL CHECK (first_sequence >= 1),
    last_sequence  INTEGER NOT NULL CHECK (last_sequence >= first_sequence),
    bytes          INTEGER NOT NULL CHECK (bytes BETWEEN 1 AND 15728640),
    PRIMARY KEY (session_id, ordinal)
) STRICT;

-- A snapshot is immutable but for the spelling of the path that its authority is rooted at (behaviour 64).
CREATE TRIGGER session_snapshots_stand BEFORE UPDATE ON session_snapshots
WHEN NEW.session_id IS NOT OLD.session_id OR NEW.version IS NOT OLD.version OR NEW.config IS NOT OLD.config
  OR NEW.created_at IS NOT OLD.created_at
  OR json_set(CAST(NEW.authority AS TEXT), '$.root.path', '') IS NOT json_set(CAST(OLD.authority AS TEXT), '$.root.path', '')
BEGIN
    SELECT RAISE(ABORT, 'a Session snapshot is immutable');
END;
