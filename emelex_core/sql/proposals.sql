-- Statements over `knowledge_proposals`.

-- name: propose
INSERT INTO knowledge_proposals (id, workspace_id, key, operation, content, confidence, reason, why, session_uuid,
                                 first_sequence, last_sequence, source_sha256, evidence_event_id, evidence_sequence,
                                 evidence_speaker, evidence_quote, job_id, made_by, state, created_at)
VALUES (:id, :workspace_id, :key, :operation, :content, :confidence, :reason, :why, :session_id,
        :first_sequence, :last_sequence, :sha256, :event_id, :sequence,
        :speaker, :quote, :job_id, :made_by, 'pending', :now)
ON CONFLICT (workspace_id, key, job_id) DO NOTHING;

-- name: page
SELECT p.row, p.id, p.key, p.operation, p.content, p.confidence, p.reason, p.why, p.session_uuid, p.evidence_event_id,
       p.evidence_sequence, p.evidence_speaker, p.evidence_quote, p.job_id, p.state, p.created_at, p.decided_at,
       (SELECT v.content FROM knowledge AS k
          JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
         WHERE k.workspace_id = p.workspace_id AND k.key = p.key AND k.tombstoned_at IS NULL), w.path
  FROM knowledge_proposals AS p JOIN workspaces AS w ON w.id = p.workspace_id
 WHERE (:workspace_id IS NULL OR p.workspace_id = :workspace_id) AND p.state = 'pending' AND p.row > :after
 ORDER BY p.row LIMIT :limit;

-- name: get
SELECT p.row, p.id, p.key, p.operation, p.content, p.confidence, p.reason, p.why, p.session_uuid, p.evidence_event_id,
       p.evidence_sequence, p.evidence_speaker, p.evidence_quote, p.job_id, p.state, p.created_at, p.decided_at,
       (SELECT v.content FROM knowledge AS k
          JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
         WHERE k.workspace_id = p.workspace_id AND k.key = p.key AND k.tombstoned_at IS NULL), w.path
  FROM knowledge_proposals AS p JOIN workspaces AS w ON w.id = p.workspace_id
 WHERE p.id = :id;

-- name: source
SELECT workspace_id, session_uuid, first_sequence, last_sequence, source_sha256, job_id, made_by FROM knowledge_proposals
 WHERE id = :id;

-- name: ids_by_prefix
SELECT id FROM knowledge_proposals WHERE id >= :prefix AND id < :prefix || 'g' ORDER BY id LIMIT 11;

-- name: decide
UPDATE knowledge_proposals SET state = :state, decided_at = :now WHERE id = :id AND state = 'pending';

-- name: reject_of_job
UPDATE knowledge_proposals SET state = 'rejected', decided_at = :now WHERE job_id = :job_id AND state = 'pending';

-- name: workspaces_of_job
SELECT DISTINCT workspace_id FROM knowledge_proposals WHERE job_id = :job_id;
