-- Schema 15: retention also removes proposals that nobody decided on; the removal journal says so.
CREATE TABLE removals_15 (
    row        INTEGER PRIMARY KEY,
    kind       TEXT NOT NULL CHECK (kind IN ('session', 'knowledge_tombstone', 'knowledge', 'knowledge_version',
                                             'knowledge_proposal', 'job')),
    id         TEXT NOT NULL CHECK (length(id) BETWEEN 1 AND 64),
    reason     TEXT NOT NULL CHECK (length(CAST(reason AS BLOB)) BETWEEN 1 AND 256),
    dated_at   INTEGER NOT NULL,
    removed_at INTEGER NOT NULL
) STRICT;

INSERT INTO removals_15 SELECT row, kind, id, reason, dated_at, removed_at FROM removals;
DROP TABLE removals;
ALTER TABLE removals_15 RENAME TO removals;
CREATE INDEX removals_by_time ON removals (removed_at DESC, row DESC);
CREATE INDEX knowledge_proposals_by_age ON knowledge_proposals (created_at);
CREATE INDEX knowledge_changes_by_age ON knowledge_changes (changed_at);
