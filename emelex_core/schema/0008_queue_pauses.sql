-- Schema 8: the queue can be paused, one kind of job at a time. A row is a pause. Claims look here, so that a pause holds
-- for every drain and pool of this database, across restarts, until somebody resumes.
CREATE TABLE queue_pauses (
    kind      TEXT PRIMARY KEY CHECK (kind IN ('compaction', 'distillation')),
    paused_at INTEGER NOT NULL,
    reason    TEXT CHECK (length(CAST(reason AS BLOB)) BETWEEN 1 AND 512)
) STRICT;

-- The first databases of schema 7 carry these two indexes in another form; from here on all databases are the same.
-- `sessions_held` is without the deadline, which every append moves; `jobs_to_claim` is in the order of publishing.
DROP INDEX IF EXISTS sessions_by_lease;
DROP INDEX IF EXISTS sessions_held;
CREATE INDEX sessions_held ON sessions (id) WHERE lease_token IS NOT NULL;
DROP INDEX jobs_to_claim;
CREATE INDEX jobs_to_claim ON jobs (kind, row, run_at) WHERE state = 'pending';
