-- Statements over `knowledge`, `knowledge_versions` and `knowledge_proposals`.

-- name: active
SELECT k.key, v.content FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
 WHERE k.workspace_id = :workspace_id AND k.tombstoned_at IS NULL
 ORDER BY k.pinned DESC, k.updated_at DESC, k.row DESC
 LIMIT :limit;

-- name: find
SELECT k.row, k.pinned, k.tombstoned_by, v.content, v.origin,
       (SELECT max(version) FROM knowledge_versions WHERE knowledge_row = k.row)
  FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
 WHERE k.workspace_id = :workspace_id AND k.key = :key;

-- name: add
INSERT INTO knowledge (workspace_id, key, active_version, pinned, created_at, updated_at)
VALUES (:workspace_id, :key, 1, 0, :now, :now)
RETURNING row;

-- name: activate
-- A distilled entry that retention or distillation had taken away comes back with its new evidence; what the user has
-- forgotten does not (behaviour 140). `touched_at` is clock.touched_at.
UPDATE knowledge
   SET active_version = :version, tombstoned_at = NULL, tombstoned_by = NULL, updated_at = touched_at(updated_at, :now)
 WHERE row = :row AND pinned = 0 AND tombstoned_by IS NOT 'user';

-- name: add_version
INSERT INTO knowledge_versions (knowledge_row, version, content, confidence, origin, source_session_id, source_session_uuid,
                                source_first_sequence, source_last_sequence, source_sha256, evidence_event_id,
                                evidence_sequence, evidence_speaker, evidence_quote, job_id, made_by, created_at)
VALUES (:row, :version, :content, :confidence, 'distillation', :session_id, :session_id,
        :first_sequence, :last_sequence, :sha256, :event_id, :sequence, :speaker, :quote, :job_id, :made_by, :now);

-- name: propose
INSERT INTO knowledge_proposals (workspace_id, key, content, confidence, reason, session_uuid, evidence_event_id,
                                 evidence_sequence, evidence_speaker, evidence_quote, job_id, created_at)
VALUES (:workspace_id, :key, :content, :confidence, :reason, :session_id, :event_id, :sequence, :speaker, :quote, :job_id,
        :now)
ON CONFLICT (workspace_id, key, job_id) DO NOTHING;

-- name: page
SELECT k.row, k.key, k.active_version, k.pinned, v.content, v.confidence, v.origin, v.source_session_uuid,
       v.evidence_event_id, v.evidence_sequence, v.evidence_speaker, v.evidence_quote, v.job_id, k.created_at, k.updated_at,
       k.tombstoned_at, v.source_session_id IS NOT NULL
  FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
 WHERE (:workspace_id IS NULL OR k.workspace_id = :workspace_id) AND k.tombstoned_at IS NULL
   AND (:before_updated_at IS NULL OR (k.updated_at, k.row) < (:before_updated_at, :before_row))
 ORDER BY k.updated_at DESC, k.row DESC
 LIMIT :limit;

-- name: show
SELECT k.row, k.key, k.active_version, k.pinned, v.content, v.confidence, v.origin, v.source_session_uuid,
       v.evidence_event_id, v.evidence_sequence, v.evidence_speaker, v.evidence_quote, v.job_id, k.created_at, k.updated_at,
       k.tombstoned_at, v.source_session_id IS NOT NULL
  FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
 WHERE k.workspace_id = :workspace_id AND k.key = :key;

-- name: before_job
-- The active entries as they stood when a job was done, without what it made: for comparing a run that is repeated.
SELECT k.key, v.content FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row
 WHERE k.workspace_id = :workspace_id AND (k.tombstoned_at IS NULL OR k.tombstoned_at > :at)
   AND v.version = (SELECT max(o.version) FROM knowledge_versions AS o
                     WHERE o.knowledge_row = k.row AND o.created_at <= :at AND o.job_id IS NOT :job_id)
 ORDER BY k.row
 LIMIT :limit;

-- name: made_by_job
-- What a distillation wrote or proposed, as far as it is still there.
SELECT k.key, v.content, v.confidence, v.evidence_event_id, v.evidence_sequence, v.evidence_speaker, v.evidence_quote
  FROM knowledge_versions AS v JOIN knowledge AS k ON k.row = v.knowledge_row
 WHERE v.source_session_id = :session_id AND v.job_id = :job_id
 UNION ALL
SELECT p.key, p.content, p.confidence, p.evidence_event_id, p.evidence_sequence, p.evidence_speaker, p.evidence_quote
  FROM knowledge_proposals AS p
 WHERE p.workspace_id = :workspace_id AND p.job_id = :job_id
 ORDER BY 5, 1;
