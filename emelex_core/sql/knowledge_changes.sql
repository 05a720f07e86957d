-- Statements over `knowledge_changes` and `forgotten_keys`.

-- name: note
INSERT INTO knowledge_changes (knowledge_row, action, actor, job_id, session_uuid, reason, version_before, hidden_by_before,
                               hidden_at_before, version_after, active_after, effective_at, changed_at)
VALUES (:row, :action, :actor, :job_id, :session_id, :reason, :version_before, :hidden_by_before,
        :hidden_at_before, :version_after, :active_after, :effective_at, :now);

-- name: of_entry
SELECT row, action, actor, job_id, session_uuid, reason, version_before, version_after, active_after, effective_at, changed_at
  FROM knowledge_changes WHERE knowledge_row = :row
 ORDER BY row DESC LIMIT :limit;

-- name: keep_forgotten
INSERT INTO forgotten_keys (workspace_id, key_sha256, forgotten_at) VALUES (:workspace_id, :digest, :now)
ON CONFLICT (workspace_id, key_sha256) DO NOTHING;

-- name: drop_forgotten
DELETE FROM forgotten_keys WHERE workspace_id = :workspace_id AND key_sha256 = :digest;

-- name: is_forgotten
SELECT 1 FROM forgotten_keys WHERE workspace_id = :workspace_id AND key_sha256 = :digest;

-- name: of_job
-- What a run changed, the last first; `is_last` says that nothing has changed the entry since.
SELECT c.row, c.knowledge_row, k.workspace_id, k.key, c.version_before, c.hidden_by_before, c.hidden_at_before,
       c.row = (SELECT max(row) FROM knowledge_changes WHERE knowledge_row = c.knowledge_row)
  FROM knowledge_changes AS c JOIN knowledge AS k ON k.row = c.knowledge_row
 WHERE c.job_id = :job_id AND c.actor = 'distillation'
 ORDER BY c.row DESC;

-- name: runs_by_prefix
SELECT job_id FROM (SELECT job_id FROM knowledge_changes WHERE job_id >= :prefix AND job_id < :prefix || 'g'
                     UNION SELECT job_id FROM knowledge_proposals WHERE job_id >= :prefix AND job_id < :prefix || 'g'
                     UNION SELECT id FROM jobs WHERE id >= :prefix AND id < :prefix || 'g' AND kind = 'distillation')
 ORDER BY job_id LIMIT 11;
