-- What the core does with `jobs`: publish, publish again (retry), and read. Claims and settlements belong to emelex_queue.

-- name: publish
INSERT INTO jobs (id, kind, session_id, state, failure_count, run_at, published_at, through_sequence, source_event_count,
                  source_first_event_id, source_last_event_id, source_sha256, target_tokens)
VALUES (:id, :kind, :session_id, 'pending', 0, :now, :now, :through_sequence, :source_event_count,
        :source_first_event_id, :source_last_event_id, :source_sha256, :target_tokens)
ON CONFLICT (kind, session_id, source_sha256) DO NOTHING;

-- name: waiting_distillation
-- A distillation that nobody has tried yet: it can be pointed at what is said now, and keeps its place in the queue. One
-- that somebody retries has failed before, and runs at another instant than it was published.
SELECT id FROM jobs
 WHERE session_id = :session_id AND kind = 'distillation' AND state = 'pending' AND failure_count = 0
   AND run_at = published_at
 ORDER BY row LIMIT 1;

-- name: move
UPDATE jobs
   SET through_sequence = :through_sequence, source_event_count = :source_event_count,
       source_first_event_id = :source_first_event_id, source_last_event_id = :source_last_event_id,
       source_sha256 = :source_sha256
 WHERE id = :id AND state = 'pending' AND failure_count = 0 AND run_at = published_at;

-- name: supersede
-- Untried distillations beside the one that reads all that is said now.
DELETE FROM jobs
 WHERE session_id = :session_id AND kind = 'distillation' AND state = 'pending' AND failure_count = 0
   AND run_at = published_at AND id <> :id;

-- name: by_source
SELECT id, state FROM jobs WHERE kind = :kind AND session_id = :session_id AND source_sha256 = :source_sha256;

-- name: provenance
SELECT state, session_id, through_sequence, source_event_count, source_first_event_id, source_last_event_id, source_sha256
  FROM jobs WHERE id = :id;

-- name: distilled_through
-- The watermark: each event is evidence once (behaviour 177).
SELECT ifnull(max(through_sequence), 0) FROM jobs
 WHERE session_id = :session_id AND kind = 'distillation' AND state = 'completed';

-- name: unfinished_compaction
SELECT id, state FROM jobs
 WHERE session_id = :session_id AND kind = 'compaction' AND state IN ('pending', 'running')
 ORDER BY row LIMIT 1;

-- name: retry
UPDATE jobs
   SET state = 'pending', failure_count = 0, last_error = NULL, failed_at = NULL, run_at = :now
 WHERE id = :id AND state = 'failed';

-- name: failed_ids
SELECT id FROM jobs WHERE state = 'failed' ORDER BY row;

-- name: ids_by_prefix
SELECT id FROM jobs WHERE id >= :prefix AND id < :prefix || 'g' ORDER BY id LIMIT 11;

-- name: get
SELECT j.id, j.kind, j.session_id, j.state, j.failure_count, j.run_at, j.lease_until, j.retry_after, j.last_error,
       j.failed_at, j.completed_at, j.published_at, j.through_sequence, j.source_event_count, j.source_first_event_id,
       j.source_last_event_id, j.source_sha256, j.target_tokens
  FROM jobs AS j WHERE j.id = :id;

-- name: record
SELECT record FROM job_records WHERE job_id = :id;

-- name: page
SELECT j.id, j.kind, j.session_id, j.state, j.failure_count, j.run_at, j.lease_until, j.retry_after, j.last_error,
       j.failed_at, j.completed_at, j.published_at, j.through_sequence, j.source_event_count, j.source_first_event_id,
       j.source_last_event_id, j.source_sha256, j.target_tokens
  FROM jobs AS j
 WHERE (:state IS NULL OR j.state = :state) AND (:kind IS NULL OR j.kind = :kind)
   AND (:session_id IS NULL OR j.session_id = :session_id)
   AND (:before_row IS NULL OR j.row < :before_row)
 ORDER BY j.row DESC
 LIMIT :limit;

-- name: failures
SELECT j.id, j.kind, j.session_id, j.state, j.failure_count, j.run_at, j.lease_until, j.retry_after, j.last_error,
       j.failed_at, j.completed_at, j.published_at, j.through_sequence, j.source_event_count, j.source_first_event_id,
       j.source_last_event_id, j.source_sha256, j.target_tokens
  FROM jobs AS j WHERE j.state = 'failed'
 ORDER BY j.failed_at DESC, j.row DESC
 LIMIT :limit;

-- name: depth
-- `waiting` backs off after a failure, `blocked` waits for a live Session; neither counts as pending. Each state is counted
-- over an index of its own: most jobs are settled, and nothing of their rows is needed.
SELECT kind, state, 0, 0, count(*), NULL FROM jobs INDEXED BY jobs_settled
 WHERE state IN ('completed', 'failed') GROUP BY state, kind
UNION ALL
SELECT kind, 'running', 0, 0, count(*), NULL FROM jobs INDEXED BY jobs_running WHERE state = 'running' GROUP BY kind
UNION ALL
SELECT kind, 'pending', waiting, blocked, count(*), min(published_at) FROM (
    SELECT j.kind AS kind, j.published_at AS published_at,
           j.run_at > :now AND j.run_at <= :now + :backoff_max_ms AS waiting,
           EXISTS (
               SELECT 1 FROM sessions AS s
                WHERE s.id = j.session_id AND s.lease_token IS NOT NULL AND s.lease_until > :now
                  AND owner_alive(s.lease_owner)) AS blocked
      FROM jobs AS j INDEXED BY jobs_to_claim WHERE j.state = 'pending')
 GROUP BY kind, waiting, blocked;

-- name: coverage
SELECT count(*),
       ifnull(sum(EXISTS (SELECT 1 FROM jobs AS j WHERE j.session_id = s.id AND j.kind = 'distillation'
                           AND j.state = 'completed')), 0),
       ifnull(sum(EXISTS (SELECT 1 FROM jobs AS j WHERE j.session_id = s.id AND j.kind = 'distillation'
                           AND j.state = 'failed')
              AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.session_id = s.id AND j.kind = 'distillation'
                               AND j.state = 'completed')), 0),
       ifnull(sum(EXISTS (SELECT 1 FROM jobs AS j WHERE j.session_id = s.id AND j.kind = 'distillation'
                           AND j.state IN ('pending', 'running'))), 0)
  FROM sessions AS s;

-- name: remaining
-- What a drain leaves behind: everything that is not settled.
SELECT (SELECT count(*) FROM jobs INDEXED BY jobs_to_claim
         WHERE state = 'pending' AND (:kind IS NULL OR kind = :kind)
           AND (:session_id IS NULL OR session_id = :session_id))
     + (SELECT count(*) FROM jobs INDEXED BY jobs_running
         WHERE state = 'running' AND (:kind IS NULL OR kind = :kind)
           AND (:session_id IS NULL OR session_id = :session_id));
