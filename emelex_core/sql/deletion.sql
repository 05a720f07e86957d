-- Statements that delete a Session; everything that hangs on it goes by cascade.

-- name: worker
SELECT lease_until FROM jobs
 WHERE session_id = :session_id AND state = 'running' AND lease_until > :now AND owner_alive(lease_owner)
 ORDER BY lease_until DESC LIMIT 1;

-- name: contents
-- Knowledge counts where an entry that is in use has a version of this Session.
SELECT (SELECT count(*) FROM events WHERE session_id = :session_id),
       (SELECT count(*) FROM jobs WHERE session_id = :session_id),
       (SELECT count(DISTINCT v.knowledge_row) FROM knowledge_versions AS v JOIN knowledge AS k ON k.row = v.knowledge_row
         WHERE v.source_session_id = :session_id AND k.tombstoned_at IS NULL);

-- name: delete
DELETE FROM sessions
 WHERE id = :id AND (lease_token IS NULL OR lease_until <= :now OR NOT owner_alive(lease_owner));
