-- Statements over `knowledge`, `knowledge_versions` and `knowledge_evidence`.

-- name: active
SELECT k.key, v.content FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
 WHERE k.workspace_id = :workspace_id AND k.tombstoned_at IS NULL
 ORDER BY k.pinned DESC, k.updated_at DESC, k.row DESC
 LIMIT :limit;

-- name: find
SELECT k.row, k.active_version, k.pinned, k.tombstoned_by, k.tombstoned_at, v.content, v.origin,
       (SELECT max(version) FROM knowledge_versions WHERE knowledge_row = k.row)
  FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
 WHERE k.workspace_id = :workspace_id AND k.key = :key;

-- name: add
INSERT INTO knowledge (workspace_id, key, active_version, pinned, created_at, updated_at)
VALUES (:workspace_id, :key, 1, 0, :now, :now)
RETURNING row;

-- name: activate_distilled
-- A distilled entry that retention or distillation had taken away comes back with its new evidence; what the user has
-- forgotten does not (behaviour 140). `touched_at` is clock.touched_at.
UPDATE knowledge
   SET active_version = :version, tombstoned_at = NULL, tombstoned_by = NULL, updated_at = touched_at(updated_at, :now)
 WHERE row = :row AND pinned = 0 AND tombstoned_by IS NOT 'user';

-- name: hide
-- `force` is a person's: it hides a pinned entry, which loses its pin.
UPDATE knowledge
   SET tombstoned_at = :now, tombstoned_by = :by, pinned = 0, updated_at = touched_at(updated_at, :now)
 WHERE row = :row AND tombstoned_at IS NULL AND (pinned = 0 OR :force);

-- name: add_version
INSERT INTO knowledge_versions (knowledge_row, version, content, confidence, origin, source_session_id, source_session_uuid,
                                source_first_sequence, source_last_sequence, source_sha256, evidence_event_id,
                                evidence_sequence, evidence_speaker, evidence_quote, job_id, made_by, valid_from, created_at)
VALUES (:row, :version, :content, :confidence, :origin, (SELECT id FROM sessions WHERE id = :session_id), :session_id,
        :first_sequence, :last_sequence, :sha256, :event_id, :sequence, :speaker, :quote, :job_id, :made_by, :valid_from, :now);

-- name: add_evidence
-- Once a version and Session, and not for the Session that the version rests on already.
INSERT INTO knowledge_evidence (knowledge_row, version, session_uuid, first_sequence, last_sequence, source_sha256,
                                evidence_event_id, evidence_sequence, evidence_speaker, evidence_quote, job_id, made_by,
                                valid_from, created_at)
SELECT :row, :version, :session_id, :first_sequence, :last_sequence, :sha256, :event_id, :sequence, :speaker, :quote, :job_id,
       :made_by, :valid_from, :now
  FROM knowledge_versions AS v
 WHERE v.knowledge_row = :row AND v.version = :version AND v.source_session_uuid IS NOT :session_id
ON CONFLICT (knowledge_row, version, session_uuid) DO NOTHING;

-- name: said_at
SELECT ifnull(occurred_at, created_at) FROM events WHERE session_id = :session_id AND sequence = :sequence;

-- name: page
SELECT k.row, k.key, v.version, k.pinned, v.content, v.confidence, v.origin, v.source_session_uuid,
       v.evidence_event_id, v.evidence_sequence, v.evidence_speaker, v.evidence_quote, v.job_id, k.created_at, k.updated_at,
       k.tombstoned_at, v.source_session_id IS NOT NULL, k.tombstoned_by, ifnull(v.valid_from, v.created_at), w.path
  FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
  JOIN workspaces AS w ON w.id = k.workspace_id
 WHERE (:workspace_id IS NULL OR k.workspace_id = :workspace_id) AND k.tombstoned_at IS NULL
   AND (:before_updated_at IS NULL OR (k.updated_at, k.row) < (:before_updated_at, :before_row))
 ORDER BY k.updated_at DESC, k.row DESC
 LIMIT :limit;

-- name: page_as_of
-- What held at an instant: of each entry the last change that had taken effect by then, in the order in which they came.
SELECT k.row, k.key, v.version, k.pinned, v.content, v.confidence, v.origin, v.source_session_uuid,
       v.evidence_event_id, v.evidence_sequence, v.evidence_speaker, v.evidence_quote, v.job_id, k.created_at, k.updated_at,
       k.tombstoned_at, v.source_session_id IS NOT NULL, k.tombstoned_by, ifnull(v.valid_from, v.created_at), w.path
  FROM (SELECT knowledge_row, max(row) AS row FROM knowledge_changes
         WHERE effective_at <= :at AND action NOT IN ('pinned', 'unpinned')
         GROUP BY knowledge_row) AS last
  JOIN knowledge_changes AS c ON c.row = last.row AND c.active_after = 1
  JOIN knowledge AS k ON k.row = c.knowledge_row
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = c.version_after
  JOIN workspaces AS w ON w.id = k.workspace_id
 WHERE (:workspace_id IS NULL OR k.workspace_id = :workspace_id)
   AND (:before_updated_at IS NULL OR (k.updated_at, k.row) < (:before_updated_at, :before_row))
 ORDER BY k.updated_at DESC, k.row DESC
 LIMIT :limit;

-- name: show
SELECT k.row, k.key, v.version, k.pinned, v.content, v.confidence, v.origin, v.source_session_uuid,
       v.evidence_event_id, v.evidence_sequence, v.evidence_speaker, v.evidence_quote, v.job_id, k.created_at, k.updated_at,
       k.tombstoned_at, v.source_session_id IS NOT NULL, k.tombstoned_by, ifnull(v.valid_from, v.created_at), w.path
  FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
  JOIN workspaces AS w ON w.id = k.workspace_id
 WHERE k.workspace_id = :workspace_id AND k.key = :key;

-- name: version_exists
SELECT 1 FROM knowledge_versions WHERE knowledge_row = :row AND version = :version;

-- name: put_version
-- A person puts a version into use; what was hidden is in use again.
UPDATE knowledge
   SET active_version = :version, tombstoned_at = NULL, tombstoned_by = NULL, updated_at = touched_at(updated_at, :now)
 WHERE row = :row;

-- name: restore_state
-- What an undone run had found.
UPDATE knowledge
   SET active_version = :version, tombstoned_at = :hidden_at, tombstoned_by = :hidden_by,
       updated_at = touched_at(updated_at, :now)
 WHERE row = :row;

-- name: forget
UPDATE knowledge
   SET tombstoned_at = :now, tombstoned_by = 'user', pinned = 0, updated_at = touched_at(updated_at, :now)
 WHERE row = :row AND tombstoned_by IS NOT 'user';

-- name: set_pin
UPDATE knowledge SET pinned = :pinned, updated_at = touched_at(updated_at, :now)
 WHERE row = :row AND pinned <> :pinned AND tombstoned_at IS NULL;

-- name: elsewhere
SELECT w.path FROM knowledge AS k JOIN workspaces AS w ON w.id = k.workspace_id WHERE k.key = :key ORDER BY k.row LIMIT 1;

-- name: versions
SELECT v.version, v.version = k.active_version AND k.tombstoned_at IS NULL, v.content, v.confidence, v.origin,
       v.source_session_uuid, v.source_session_id IS NOT NULL, v.evidence_event_id, v.evidence_sequence, v.evidence_speaker,
       v.evidence_quote, v.job_id, ifnull(v.valid_from, v.created_at), v.created_at
  FROM knowledge_versions AS v JOIN knowledge AS k ON k.row = v.knowledge_row
 WHERE v.knowledge_row = :row AND (:before IS NULL OR v.version < :before)
 ORDER BY v.version DESC LIMIT :limit;

-- name: before_job
-- The active entries as they stood when a job was done, without what it made or hid: for comparing a run that is repeated.
SELECT k.key, v.content FROM knowledge AS k
  JOIN knowledge_changes AS c
    ON c.row = (SELECT max(o.row) FROM knowledge_changes AS o
                 WHERE o.knowledge_row = k.row AND o.changed_at <= :at AND o.job_id IS NOT :job_id
                   AND o.action NOT IN ('pinned', 'unpinned'))
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = c.version_after
 WHERE k.workspace_id = :workspace_id AND c.active_after = 1
 ORDER BY k.row
 LIMIT :limit;

-- name: keys
-- Every key of a workspace that has an entry, hidden ones included.
SELECT key FROM knowledge WHERE workspace_id = :workspace_id;

-- name: made_by_job
-- The contents that a distillation wrote or proposed, as far as they are still there; its tombstones stand in its record.
SELECT k.key, v.content, v.confidence, v.evidence_event_id, v.evidence_sequence, v.evidence_speaker, v.evidence_quote,
       0 AS quarantined
  FROM knowledge_versions AS v JOIN knowledge AS k ON k.row = v.knowledge_row
 WHERE v.source_session_id = :session_id AND v.job_id = :job_id
 UNION ALL
SELECT p.key, p.content, p.confidence, p.evidence_event_id, p.evidence_sequence, p.evidence_speaker, p.evidence_quote,
       p.reason = 'quarantined'
  FROM knowledge_proposals AS p
 WHERE p.workspace_id = :workspace_id AND p.job_id = :job_id AND p.operation = 'upsert'
 ORDER BY 5, 1;
