-- Schema 12: Knowledge in full. A record of every change (who, why, which run; what can be undone and what was true when),
-- further evidence of a version, proposals that a person decides on, what must not come back, redactions, and two indexes
-- of words for searching.

-- Since when a version holds: when its evidence was said, never later than when it was stored. None is `created_at`.
ALTER TABLE knowledge_versions ADD COLUMN valid_from INTEGER;

-- The same content said in another Session. Where the first source is erased, one of these takes its place.
CREATE TABLE knowledge_evidence (
    knowledge_row     INTEGER NOT NULL,
    version           INTEGER NOT NULL,
    session_uuid      TEXT NOT NULL,
    first_sequence    INTEGER NOT NULL,
    last_sequence     INTEGER NOT NULL,
    source_sha256     TEXT NOT NULL CHECK (length(source_sha256) = 64),
    evidence_event_id TEXT NOT NULL,
    evidence_sequence INTEGER NOT NULL,
    evidence_speaker  TEXT NOT NULL,
    evidence_quote    TEXT NOT NULL CHECK (length(CAST(evidence_quote AS BLOB)) BETWEEN 1 AND 4096),
    job_id            TEXT NOT NULL,
    made_by           BLOB CHECK (made_by IS NULL OR length(made_by) BETWEEN 2 AND 65536),
    valid_from        INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    PRIMARY KEY (knowledge_row, version, session_uuid),
    FOREIGN KEY (knowledge_row, version) REFERENCES knowledge_versions (knowledge_row, version) ON DELETE CASCADE
) STRICT;

CREATE INDEX knowledge_evidence_by_session ON knowledge_evidence (session_uuid);
CREATE INDEX knowledge_versions_by_source ON knowledge_versions (source_session_uuid) WHERE source_session_uuid IS NOT NULL;

-- One line for each change of an entry; it goes with its entry, since a reason may repeat what somebody wrote.
-- `version_before` is null for an entry that is new; `hidden_by_before` and `hidden_at_before` are its tombstone before.
CREATE TABLE knowledge_changes (
    row              INTEGER PRIMARY KEY,
    knowledge_row    INTEGER NOT NULL REFERENCES knowledge (row) ON DELETE CASCADE,
    action           TEXT NOT NULL CHECK (action IN ('remembered', 'upserted', 'tombstoned', 'activated', 'forgotten', 'pinned',
                                                     'unpinned', 'accepted', 'expired', 'undone', 'erased')),
    actor            TEXT NOT NULL CHECK (actor IN ('user', 'distillation', 'retention')),
    job_id           TEXT,
    session_uuid     TEXT,
    reason           TEXT CHECK (length(CAST(reason AS BLOB)) BETWEEN 1 AND 1024),
    version_before   INTEGER,
    hidden_by_before TEXT,
    hidden_at_before INTEGER,
    version_after    INTEGER NOT NULL,
    active_after     INTEGER NOT NULL CHECK (active_after IN (0, 1)),
    effective_at     INTEGER NOT NULL,
    changed_at       INTEGER NOT NULL,
    CHECK ((hidden_by_before IS NULL) = (hidden_at_before IS NULL)),
    CHECK (actor <> 'distillation' OR job_id IS NOT NULL)
) STRICT;

CREATE INDEX knowledge_changes_by_entry ON knowledge_changes (knowledge_row, row);
CREATE INDEX knowledge_changes_by_job ON knowledge_changes (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX knowledge_changes_by_session ON knowledge_changes (session_uuid) WHERE session_uuid IS NOT NULL;

INSERT INTO knowledge_changes (knowledge_row, action, actor, job_id, session_uuid, version_before, version_after, active_after,
                               effective_at, changed_at)
SELECT v.knowledge_row, iif(v.origin = 'user', 'remembered', 'upserted'), v.origin, v.job_id, v.source_session_uuid,
       (SELECT max(o.version) FROM knowledge_versions AS o WHERE o.knowledge_row = v.knowledge_row AND o.version < v.version),
       v.version, 1, v.created_at, v.created_at
  FROM knowledge_versions AS v ORDER BY v.knowledge_row, v.version;
INSERT INTO knowledge_changes (knowledge_row, action, actor, version_before, version_after, active_after, effective_at, changed_at)
SELECT k.row, iif(k.tombstoned_by = 'user', 'forgotten', 'expired'), iif(k.tombstoned_by = 'user', 'user', 'retention'),
       k.active_version, k.active_version, 0, k.tombstoned_at, k.tombstoned_at
  FROM knowledge AS k WHERE k.tombstoned_at IS NOT NULL ORDER BY k.row;

-- A run's change that a person has to decide on: an upsert with its content, or a tombstone without.
CREATE TABLE knowledge_proposals_12 (
    row               INTEGER PRIMARY KEY,
    id                TEXT NOT NULL UNIQUE CHECK (length(id) = 36),
    workspace_id      INTEGER NOT NULL REFERENCES workspaces (id),
    key               TEXT NOT NULL CHECK (length(CAST(key AS BLOB)) BETWEEN 1 AND 256),
    operation         TEXT NOT NULL CHECK (operation IN ('upsert', 'tombstone')),
    content           TEXT CHECK (length(CAST(content AS BLOB)) BETWEEN 1 AND 1048576),
    confidence        REAL CHECK (confidence BETWEEN 0 AND 1),
    reason            TEXT NOT NULL CHECK (reason IN ('pinned', 'forgotten', 'user_written', 'quarantined', 'review')),
    why               TEXT CHECK (length(CAST(why AS BLOB)) BETWEEN 1 AND 1024),
    session_uuid      TEXT NOT NULL,
    first_sequence    INTEGER,
    last_sequence     INTEGER,
    source_sha256     TEXT CHECK (length(source_sha256) = 64),
    evidence_event_id TEXT NOT NULL,
    evidence_sequence INTEGER NOT NULL,
    evidence_speaker  TEXT NOT NULL,
    evidence_quote    TEXT NOT NULL CHECK (length(CAST(evidence_quote AS BLOB)) BETWEEN 1 AND 4096),
    job_id            TEXT NOT NULL,
    made_by           BLOB CHECK (made_by IS NULL OR length(made_by) BETWEEN 2 AND 65536),
    state             TEXT NOT NULL CHECK (state IN ('pending', 'accepted', 'rejected')),
    created_at        INTEGER NOT NULL,
    decided_at        INTEGER,
    UNIQUE (workspace_id, key, job_id),
    CHECK ((operation = 'upsert') = (content IS NOT NULL)),
    CHECK ((operation = 'upsert') = (confidence IS NOT NULL)),
    CHECK ((state = 'pending') = (decided_at IS NULL))
) STRICT;

INSERT INTO knowledge_proposals_12 (row, id, workspace_id, key, operation, content, confidence, reason, session_uuid,
                                    evidence_event_id, evidence_sequence, evidence_speaker, evidence_quote, job_id, state,
                                    created_at)
SELECT p.row, substr(p.hex, 1, 8) || '-' || substr(p.hex, 9, 4) || '-4' || substr(p.hex, 14, 3) || '-8' || substr(p.hex, 18, 3)
       || '-' || substr(p.hex, 21, 12),
       p.workspace_id, p.key, 'upsert', p.content, p.confidence, p.reason, p.session_uuid, p.evidence_event_id,
       p.evidence_sequence, p.evidence_speaker, p.evidence_quote, p.job_id, 'pending', p.created_at
  FROM (SELECT *, lower(hex(randomblob(16))) AS hex FROM knowledge_proposals) AS p ORDER BY p.row;
DROP TABLE knowledge_proposals;
ALTER TABLE knowledge_proposals_12 RENAME TO knowledge_proposals;
CREATE INDEX knowledge_proposals_pending ON knowledge_proposals (workspace_id, row) WHERE state = 'pending';
CREATE INDEX knowledge_proposals_by_job ON knowledge_proposals (job_id);
CREATE INDEX knowledge_proposals_by_session ON knowledge_proposals (session_uuid);

-- What a person has forgotten stays forgotten when its entry is gone: a digest of the key, and no word of it.
CREATE TABLE forgotten_keys (
    workspace_id INTEGER NOT NULL REFERENCES workspaces (id),
    key_sha256   BLOB NOT NULL CHECK (length(key_sha256) = 32),
    forgotten_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, key_sha256)
) STRICT;

-- Foreign Sessions that were removed, so that the next import of their transcripts does not bring them back unasked.
CREATE TABLE removed_sources (
    source_sha256 BLOB PRIMARY KEY CHECK (length(source_sha256) = 32),
    session_uuid  TEXT NOT NULL CHECK (length(session_uuid) = 36),
    removed_at    INTEGER NOT NULL
) STRICT;

-- Explicit changes of a transcript: how many places of how many events, and the digest of the whole before and after.
CREATE TABLE redactions (
    row            INTEGER PRIMARY KEY,
    session_id     TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    kind           TEXT NOT NULL CHECK (kind IN ('pattern', 'secrets')),
    first_sequence INTEGER NOT NULL CHECK (first_sequence >= 1),
    events         INTEGER NOT NULL CHECK (events >= 1),
    places         INTEGER NOT NULL CHECK (places >= events),
    chain_before   BLOB NOT NULL CHECK (length(chain_before) = 32),
    chain_after    BLOB NOT NULL CHECK (length(chain_after) = 32),
    redacted_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX redactions_by_session ON redactions (session_id);

-- Which digest a job's source had before a redaction, and which it has since.
CREATE TABLE redacted_sources (
    redaction_row INTEGER NOT NULL REFERENCES redactions (row) ON DELETE CASCADE,
    job_id        TEXT NOT NULL,
    sha256_before TEXT NOT NULL CHECK (length(sha256_before) = 64),
    sha256_after  TEXT NOT NULL CHECK (length(sha256_after) = 64),
    PRIMARY KEY (redaction_row, job_id)
) STRICT;

-- Words of active Knowledge. Derived: it holds no text of its own, follows its tables by triggers, and can be made anew.
CREATE VIRTUAL TABLE knowledge_index USING fts5 (
    key, content, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);

INSERT INTO knowledge_index (rowid, key, content)
SELECT k.row, k.key, v.content FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
 WHERE k.tombstoned_at IS NULL;

CREATE TRIGGER knowledge_index_version AFTER INSERT ON knowledge_versions BEGIN
    INSERT OR REPLACE INTO knowledge_index (rowid, key, content)
    SELECT k.row, k.key, new.content FROM knowledge AS k
     WHERE k.row = new.knowledge_row AND k.active_version = new.version AND k.tombstoned_at IS NULL;
END;

CREATE TRIGGER knowledge_index_content AFTER UPDATE OF content ON knowledge_versions BEGIN
    INSERT OR REPLACE INTO knowledge_index (rowid, key, content)
    SELECT k.row, k.key, new.content FROM knowledge AS k
     WHERE k.row = new.knowledge_row AND k.active_version = new.version AND k.tombstoned_at IS NULL;
END;

CREATE TRIGGER knowledge_index_entry AFTER UPDATE OF active_version, tombstoned_at ON knowledge BEGIN
    DELETE FROM knowledge_index WHERE rowid = old.row;
    INSERT INTO knowledge_index (rowid, key, content)
    SELECT new.row, new.key, v.content FROM knowledge_versions AS v
     WHERE v.knowledge_row = new.row AND v.version = new.active_version AND new.tombstoned_at IS NULL;
END;

CREATE TRIGGER knowledge_index_gone AFTER DELETE ON knowledge BEGIN
    DELETE FROM knowledge_index WHERE rowid = old.row;
END;

-- Words of transcripts, of the events up to `through_row`: appending writes nothing here, searching catches up.
CREATE VIRTUAL TABLE transcript_index USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 2'
);

CREATE TABLE transcript_index_state (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    through_row INTEGER NOT NULL CHECK (through_row >= 0)
) STRICT;

INSERT INTO transcript_index_state (one, through_row) VALUES (1, 0);

-- Row numbers of the newest events are given again once those are gone: the index must not believe that it has them.
CREATE TRIGGER transcript_index_gone AFTER DELETE ON events
WHEN old.row <= (SELECT through_row FROM transcript_index_state) BEGIN
    DELETE FROM transcript_index WHERE rowid = old.row;
    UPDATE transcript_index_state SET through_row = ifnull((SELECT max(row) FROM events), 0)
     WHERE through_row > ifnull((SELECT max(row) FROM events), 0);
END;
