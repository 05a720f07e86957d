-- Schema 9: maintenance. What time the store has itself seen pass, which slot of a schedule has been run, and what
-- retention has removed.

-- One row. `counted_at` is the instant up to which time counts for retention: it follows the clock, but a leap of the clock
-- only once the store has lived for a while on its far side (emelex_core/retention/lived.py).
CREATE TABLE maintenance_time (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    seen_at    INTEGER NOT NULL,
    counted_at INTEGER NOT NULL,
    lived_ms   INTEGER NOT NULL CHECK (lived_ms >= 0),
    CHECK (counted_at <= seen_at)
) STRICT;

-- A slot is taken once, however many pools fire at its instant; `slot` is that instant.
CREATE TABLE maintenance_slots (
    name     TEXT NOT NULL CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 64),
    slot     INTEGER NOT NULL,
    taken_at INTEGER NOT NULL,
    PRIMARY KEY (name, slot)
) STRICT;

-- The removal journal: ids, instants and reasons, never a text that anybody wrote. What is deleted must stay deleted.
CREATE TABLE removals (
    row        INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL CHECK (kind IN ('session', 'knowledge_tombstone', 'knowledge', 'knowledge_version', 'job')),
    id         TEXT NOT NULL CHECK (length(id) BETWEEN 1 AND 64),
    reason     TEXT NOT NULL CHECK (length(CAST(reason AS BLOB)) BETWEEN 1 AND 256),
    dated_at   INTEGER NOT NULL,
    removed_at INTEGER NOT NULL
) STRICT;

CREATE INDEX removals_by_time ON removals (removed_at DESC, row DESC);
CREATE INDEX jobs_completed ON jobs (completed_at) WHERE state = 'completed';
CREATE INDEX knowledge_versions_by_job ON knowledge_versions (job_id) WHERE job_id IS NOT NULL;
