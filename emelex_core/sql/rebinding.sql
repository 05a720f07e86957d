-- Giving what belongs to one directory to another one; see emelex_core/sessions/rebind.py.

-- name: displaced
-- Directories that the asking one may be: of the same path, or the same inode and birth under another device number.
SELECT id, path, device, inode, birth_ns,
       (SELECT count(*) FROM sessions AS s WHERE s.workspace_id = w.id),
       (SELECT count(*) FROM knowledge AS k WHERE k.workspace_id = w.id AND k.tombstoned_at IS NULL)
  FROM workspaces AS w
 WHERE (path = :path OR (inode = :inode AND birth_ns = :birth_ns AND device <> :device))
   AND NOT (device = :device AND inode = :inode AND ifnull(birth_ns, -1) = ifnull(:birth_ns, -1))
   AND (EXISTS (SELECT 1 FROM sessions AS s WHERE s.workspace_id = w.id)
     OR EXISTS (SELECT 1 FROM knowledge AS k WHERE k.workspace_id = w.id))
 ORDER BY path = :path DESC, id
 LIMIT 8;

-- name: sessions
SELECT id, last_sequence, chain FROM sessions WHERE workspace_id = :workspace_id ORDER BY row;

-- name: live
SELECT id, lease_until FROM sessions
 WHERE workspace_id = :workspace_id AND lease_token IS NOT NULL AND lease_until > :now AND owner_alive(lease_owner)
 LIMIT 1;

-- name: working
SELECT j.session_id, j.lease_until FROM jobs AS j JOIN sessions AS s ON s.id = j.session_id
 WHERE s.workspace_id = :workspace_id AND j.state = 'running' AND j.lease_until > :now AND owner_alive(j.lease_owner)
 LIMIT 1;

-- name: advance_by_audit
-- Without a lease, inside the transaction that found nobody holding one; the cursor proves the tail.
UPDATE sessions
   SET last_sequence = :last_sequence, chain = :chain, event_bytes = event_bytes + :bytes
 WHERE id = :id AND last_sequence = :cursor;

-- name: set_identity
UPDATE workspaces SET device = :device, inode = :inode, birth_ns = :birth_ns, path = :path WHERE id = :id;

-- name: move_sessions
UPDATE sessions SET workspace_id = :target WHERE workspace_id = :workspace_id;

-- name: move_knowledge
UPDATE knowledge SET workspace_id = :target
 WHERE workspace_id = :workspace_id
   AND NOT EXISTS (SELECT 1 FROM knowledge AS k WHERE k.workspace_id = :target AND k.key = knowledge.key);

-- name: move_proposals
UPDATE knowledge_proposals SET workspace_id = :target
 WHERE workspace_id = :workspace_id
   AND NOT EXISTS (SELECT 1 FROM knowledge_proposals AS p
                    WHERE p.workspace_id = :target AND p.key = knowledge_proposals.key
                      AND p.job_id = knowledge_proposals.job_id);

-- name: move_forgotten
-- A digest that the target has already stays behind, where it harms nothing.
UPDATE OR IGNORE forgotten_keys SET workspace_id = :target WHERE workspace_id = :workspace_id;

-- name: keys
SELECT key FROM knowledge WHERE workspace_id = :workspace_id ORDER BY key LIMIT :limit;

-- name: counts
SELECT (SELECT count(*) FROM sessions WHERE workspace_id = :workspace_id),
       (SELECT count(*) FROM knowledge WHERE workspace_id = :workspace_id);
