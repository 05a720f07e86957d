-- What the core does with `jobs`: publish, publish again (retry), and read. Claims and settlements belong to emelex_queue.

-- name: publish
INSERT INTO jobs (id, kind, session_id, state, failure_count, run_at, published_at, through_sequence, source_event_count,
                  source_first_event_id, source_last_event_id, source_sha256, target_tokens)
VALUES (:id, :kind, :session_id, 'pending', 0, :now, :now, :through_sequence, :source_event_count,
        :source_first_event_id, :source_last_event_id, :source_sha256, :target_tokens)
ON CONFLICT (kind, session_id, source_sha256) DO NOTHING;

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
-- `waiting` backs off after a failure, `blocked` waits for a live Session; neither counts as pending.
SELECT kind, state, waiting, blocked, count(*), min(published_at) FROM (
    SELECT j.kind AS kind, j.state AS state, j.published_at AS published_at,
           j.state = 'pending' AND j.run_at > :now AND j.run_at <= :now + :backoff_max_ms AS waiting,
           j.state = 'pending' AND EXISTS (
               SELECT 1 FROM sessions AS s
                WHERE s.id = j.session_id AND s.lease_token IS NOT NULL AND s.lease_until > :now
                  AND owner_alive(s.lease_owner)) AS blocked
      FROM jobs AS j)
 GROUP BY kind, state, waiting, blocked;

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
SELECT count(*) FROM jobs
 WHERE state IN ('pending', 'running') AND (:kind IS NULL OR kind = :kind) AND (:session_id IS NULL OR session_id = :session_id);
