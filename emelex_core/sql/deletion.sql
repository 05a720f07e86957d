-- Statements that delete a Session; everything that hangs on it goes by cascade.

-- name: worker
SELECT lease_until FROM jobs
 WHERE session_id = :session_id AND state = 'running' AND lease_until > :now AND owner_alive(lease_owner)
 ORDER BY lease_until DESC LIMIT 1;

-- name: contents
SELECT (SELECT count(*) FROM events WHERE session_id = :session_id), (SELECT count(*) FROM jobs WHERE session_id = :session_id);

-- name: delete
DELETE FROM sessions
 WHERE id = :id AND (lease_token IS NULL OR lease_until <= :now OR NOT owner_alive(lease_owner));
