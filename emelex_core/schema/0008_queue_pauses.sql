-- Schema 8: the queue can be paused, one kind of job at a time. A row is a pause. Claims look here, so that a pause holds
-- for every drain and pool of this database, across restarts, until somebody resumes.
CREATE TABLE queue_pauses (
    kind      TEXT PRIMARY KEY CHECK (kind IN ('compaction', 'distillation')),
    paused_at INTEGER NOT NULL,
    reason    TEXT CHECK (length(CAST(reason AS BLOB)) BETWEEN 1 AND 512)
) STRICT;
