-- Consuming `jobs`. Every settlement matches id, token and state in one statement; RETURNING gives the row.

-- name: clamp_leases
-- A clock that was set back must not make a lease live longer than a lease can (behaviour 182).
UPDATE jobs SET lease_until = :now + :lease_ms WHERE state = 'running' AND lease_until > :now + :lease_ms;

-- name: clamp_sessions
-- The same for the Sessions that jobs wait for.
UPDATE sessions SET lease_until = :now + :lease_ms WHERE lease_token IS NOT NULL AND lease_until > :now + :lease_ms;

-- name: expired
-- Claims whose lease ran out or whose owner is known dead.
SELECT id, lease_token, kind, session_id, failure_count, NOT owner_alive(lease_owner) FROM jobs
 WHERE state = 'running' AND (lease_until <= :now OR NOT owner_alive(lease_owner))
 ORDER BY lease_until
 LIMIT :limit;

-- name: claim
-- One job of a kind and Session at a time: two would read the same events as new, and the older could settle last.
-- The oldest one that is due, in the order of publishing. A due time further off than any back-off comes from a clock that
-- was set back since, and counts as come (behaviour 182).
UPDATE jobs
   SET state = 'running', lease_token = :token, lease_until = :now + :lease_ms, lease_owner = :owner, retry_after = NULL,
       run_at = min(run_at, :now)
 WHERE state = 'pending' AND row = (
       SELECT j.row FROM jobs AS j
        WHERE j.state = 'pending' AND j.kind = :kind AND (j.run_at <= :now OR j.run_at > :now + :backoff_max_ms)
          AND (:session_id IS NULL OR j.session_id = :session_id)
          AND NOT EXISTS (SELECT 1 FROM queue_pauses AS p WHERE p.kind = :kind)
          AND NOT EXISTS (SELECT 1 FROM jobs AS r INDEXED BY jobs_running_once
                           WHERE r.session_id = j.session_id AND r.kind = j.kind AND r.state = 'running')
          AND NOT EXISTS (SELECT 1 FROM sessions AS s
                           WHERE s.id = j.session_id AND s.lease_token IS NOT NULL AND s.lease_until > :now
                             AND owner_alive(s.lease_owner))
        ORDER BY j.row
        LIMIT 1)
RETURNING id, kind, session_id, failure_count, lease_until, through_sequence, source_event_count, source_first_event_id,
          source_last_event_id, source_sha256, target_tokens, published_at;

-- name: renew
UPDATE jobs SET lease_until = :now + :lease_ms WHERE id = :id AND lease_token = :token AND state = 'running';

-- name: complete
UPDATE jobs
   SET state = 'completed', completed_at = :now, lease_token = NULL, lease_until = NULL, lease_owner = NULL
 WHERE id = :id AND lease_token = :token AND state = 'running';

-- name: add_record
INSERT INTO job_records (job_id, record, created_at) VALUES (:id, :record, :now);

-- name: fail
UPDATE jobs
   SET state = 'pending', failure_count = failure_count + 1, last_error = :error, retry_after = :retry_after,
       run_at = :retry_after, lease_token = NULL, lease_until = NULL, lease_owner = NULL
 WHERE id = :id AND lease_token = :token AND state = 'running';

-- name: fail_last
UPDATE jobs
   SET state = 'failed', failure_count = failure_count + 1, last_error = :error, failed_at = :now,
       lease_token = NULL, lease_until = NULL, lease_owner = NULL
 WHERE id = :id AND lease_token = :token AND state = 'running';

-- name: release
UPDATE jobs
   SET state = 'pending', lease_token = NULL, lease_until = NULL, lease_owner = NULL
 WHERE id = :id AND lease_token = :token AND state = 'running';

-- name: cancel
-- An operator takes a claim away from whoever holds it. Like a release, it counts nothing.
UPDATE jobs
   SET state = 'pending', lease_token = NULL, lease_until = NULL, lease_owner = NULL
 WHERE id = :id AND state = 'running';

-- name: holds
SELECT 1 FROM jobs WHERE id = :id AND lease_token = :token AND state = 'running';

-- name: session_is_live
SELECT s.lease_until FROM sessions AS s
 WHERE s.id = :session_id AND s.lease_token IS NOT NULL AND s.lease_until > :now AND owner_alive(s.lease_owner);

-- name: has_claimable
SELECT 1 FROM jobs AS j
 WHERE j.state = 'pending' AND j.kind = :kind AND (j.run_at <= :now OR j.run_at > :now + :backoff_max_ms)
   AND (:session_id IS NULL OR j.session_id = :session_id)
   AND NOT EXISTS (SELECT 1 FROM queue_pauses AS p WHERE p.kind = :kind)
   AND NOT EXISTS (SELECT 1 FROM jobs AS r INDEXED BY jobs_running_once
                    WHERE r.session_id = j.session_id AND r.kind = j.kind AND r.state = 'running')
   AND NOT EXISTS (SELECT 1 FROM sessions AS s
                    WHERE s.id = j.session_id AND s.lease_token IS NOT NULL AND s.lease_until > :now
                      AND owner_alive(s.lease_owner))
 LIMIT 1;

-- name: orphan
-- The claim of one attempt, if its owner is known dead.
SELECT lease_token, kind, session_id FROM jobs
 WHERE id = :id AND state = 'running' AND failure_count = :failure_count AND NOT owner_alive(lease_owner);

-- name: explain_death
-- Somebody else counted this attempt first, without knowing more than that its owner died.
UPDATE jobs SET last_error = :error
 WHERE id = :id AND failure_count = :failure_count AND last_error = :unexplained;
