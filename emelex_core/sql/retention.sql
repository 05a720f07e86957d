-- Statements of retention and maintenance. `:cutoff` is the instant before which something is old, counted in time that the
-- store has seen pass (emelex_core/retention/lived.py). Candidates are read first; each removal asks again in its own WHERE.

-- name: time_seen
SELECT seen_at, counted_at, lived_ms FROM maintenance_time WHERE one = 1;

-- name: born
-- A store that was never maintained has seen its own creation, and nothing since.
SELECT min(applied_at) FROM schema_migrations;

-- name: see_time
INSERT INTO maintenance_time (one, seen_at, counted_at, lived_ms) VALUES (1, :seen_at, :counted_at, :lived_ms)
ON CONFLICT (one) DO UPDATE SET seen_at = :seen_at, counted_at = :counted_at, lived_ms = :lived_ms;

-- name: take_slot
INSERT INTO maintenance_slots (name, slot, taken_at) VALUES (:name, :slot, :now) ON CONFLICT (name, slot) DO NOTHING;

-- name: give_slot_back
DELETE FROM maintenance_slots WHERE name = :name AND slot = :slot;

-- name: slot_taken
SELECT 1 FROM maintenance_slots WHERE name = :name AND slot = :slot;

-- name: last_slot
SELECT slot, taken_at FROM maintenance_slots WHERE name = :name ORDER BY taken_at DESC LIMIT 1;

-- name: forget_slots
DELETE FROM maintenance_slots WHERE taken_at <= :cutoff;

-- name: note_removal
INSERT INTO removals (kind, id, reason, dated_at, removed_at) VALUES (:kind, :id, :reason, :dated_at, :now);

-- name: removals
SELECT row, kind, id, reason, dated_at, removed_at FROM removals
 WHERE :before IS NULL OR row < :before
 ORDER BY row DESC
 LIMIT :limit;

-- name: forget_removals
DELETE FROM removals WHERE row IN (SELECT row FROM removals WHERE removed_at <= :cutoff ORDER BY removed_at LIMIT :limit);

-- name: stale_leases
-- Of owners who are known dead. An expired lease whose owner lives is its owner's to renew (behaviour 24), unless nobody
-- came back for it for a week.
SELECT id, lease_until FROM sessions
 WHERE lease_token IS NOT NULL AND (NOT owner_alive(lease_owner) OR lease_until <= :abandoned)
 ORDER BY lease_until
 LIMIT :limit;

-- name: clear_lease
UPDATE sessions SET lease_token = NULL, lease_until = NULL, lease_owner = NULL
 WHERE id = :id AND lease_token IS NOT NULL AND (NOT owner_alive(lease_owner) OR lease_until <= :abandoned);

-- name: sessions_over_age
-- `keep` says why a Session that is old enough stays. A Session's row number tells when it was made, whatever the clock said:
-- one that claims to be older than one before it was dated by a clock that was wrong, and such a date deletes nothing. One
-- that is dated ahead of the time that counts says nothing of those after it.
WITH dated AS (
    SELECT s.id AS id, s.row AS row, s.updated_at AS updated_at, s.created_at AS created_at,
           max(CASE WHEN s.created_at <= :counted_at THEN s.created_at END)
               OVER (ORDER BY s.row ROWS UNBOUNDED PRECEDING) AS newest_before
      FROM sessions AS s)
SELECT d.id, d.updated_at,
       CASE WHEN d.created_at < d.newest_before - :tolerance AND d.updated_at < d.newest_before THEN 'clock'
            WHEN EXISTS (SELECT 1 FROM sessions AS s
                          WHERE s.id = d.id AND s.lease_token IS NOT NULL AND owner_alive(s.lease_owner)) THEN 'live'
            WHEN EXISTS (SELECT 1 FROM active_turns AS t WHERE t.session_id = d.id) THEN 'turn'
            WHEN EXISTS (SELECT 1 FROM jobs AS j
                          WHERE j.session_id = d.id AND j.state IN ('pending', 'running')) THEN 'jobs' END AS keep
  FROM dated AS d
 WHERE d.updated_at <= :cutoff
 ORDER BY keep IS NOT NULL, d.updated_at, d.row
 LIMIT :limit;

-- name: sessions_expiring
-- What the coming days will find old enough, unless it is used.
SELECT id, updated_at FROM sessions WHERE updated_at > :cutoff AND updated_at <= :soon ORDER BY updated_at, row LIMIT :limit;

-- name: session_still_due
-- The guard of the deletion, in its own transaction (behaviours 150 and 179).
SELECT 1 FROM sessions AS s
 WHERE s.id = :id AND s.updated_at = :updated_at AND s.updated_at <= :cutoff
   AND NOT (s.lease_token IS NOT NULL AND owner_alive(s.lease_owner))
   AND NOT EXISTS (SELECT 1 FROM active_turns AS t WHERE t.session_id = s.id)
   AND NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.session_id = s.id AND j.state IN ('pending', 'running'));

-- name: knowledge_old
SELECT row, 0, CAST(row AS TEXT), updated_at FROM knowledge
 WHERE pinned = 0 AND tombstoned_at IS NULL AND updated_at <= :cutoff
 ORDER BY updated_at, row
 LIMIT :limit;

-- name: tombstone_knowledge
UPDATE knowledge SET tombstoned_at = :now, tombstoned_by = 'retention'
 WHERE row = :key AND pinned = 0 AND tombstoned_at IS NULL AND updated_at <= :cutoff;

-- name: note_expired
-- The line of the entry's own record.
INSERT INTO knowledge_changes (knowledge_row, action, actor, reason, version_before, version_after, active_after, effective_at,
                               changed_at)
SELECT k.row, 'expired', 'retention', :reason, k.active_version, k.active_version, 0, :now, :now
  FROM knowledge AS k WHERE k.row = :key;

-- name: knowledge_tombstoned
SELECT row, 0, CAST(row AS TEXT), tombstoned_at FROM knowledge
 WHERE tombstoned_at <= :cutoff
 ORDER BY tombstoned_at, row
 LIMIT :limit;

-- name: purge_knowledge
DELETE FROM knowledge WHERE row = :key AND tombstoned_at <= :cutoff;

-- name: purge_proposals_of_key
-- What was proposed for an entry goes with it; a later run may propose again.
DELETE FROM knowledge_proposals
 WHERE EXISTS (SELECT 1 FROM knowledge AS k
                WHERE k.row = :key AND k.tombstoned_at <= :cutoff AND k.workspace_id = knowledge_proposals.workspace_id
                  AND k.key = knowledge_proposals.key);

-- name: proposals_old
-- Decided ones, and those that nobody decided on.
SELECT row, 0, id, ifnull(decided_at, created_at) FROM knowledge_proposals
 WHERE created_at <= :cutoff AND ifnull(decided_at, created_at) <= :cutoff
 ORDER BY created_at, row
 LIMIT :limit;

-- name: drop_proposal
DELETE FROM knowledge_proposals WHERE row = :key AND ifnull(decided_at, created_at) <= :cutoff;

-- name: forget_changes
-- Old lines of records, but for the last of each entry, which says what is active.
DELETE FROM knowledge_changes
 WHERE row IN (SELECT c.row FROM knowledge_changes AS c
                WHERE c.changed_at <= :cutoff
                  AND c.row < (SELECT max(n.row) FROM knowledge_changes AS n
                                WHERE n.knowledge_row = c.knowledge_row AND n.action NOT IN ('pinned', 'unpinned'))
                ORDER BY c.changed_at LIMIT :limit);

-- name: versions_over
-- The newest so many of each entry stay, and the active one wherever it stands. Reads the primary key's index only.
SELECT v.knowledge_row, v.version, v.knowledge_row || '.' || v.version,
       (SELECT created_at FROM knowledge_versions AS c WHERE c.knowledge_row = v.knowledge_row AND c.version = v.version)
  FROM (SELECT knowledge_row, version, row_number() OVER (PARTITION BY knowledge_row ORDER BY version DESC) AS place
          FROM knowledge_versions) AS v
  JOIN knowledge AS k ON k.row = v.knowledge_row
 WHERE v.place > :cutoff AND k.pinned = 0 AND k.active_version <> v.version
 ORDER BY v.knowledge_row, v.version
 LIMIT :limit;

-- name: prune_version
DELETE FROM knowledge_versions
 WHERE knowledge_row = :key AND version = :version
   AND EXISTS (SELECT 1 FROM knowledge AS k
                WHERE k.row = :key AND k.pinned = 0 AND k.active_version <> :version)
   AND :cutoff <= (SELECT count(*) FROM knowledge_versions AS n WHERE n.knowledge_row = :key AND n.version > :version);

-- name: jobs_done
-- Finished distillations that a later one of the same Session has overtaken, and whose Knowledge is gone. The newest one of a
-- Session is its watermark (behaviour 177); a finished compaction is what a Summary proves itself by, and goes with its
-- Session only.
SELECT j.row, 0, j.id, j.completed_at FROM jobs AS j INDEXED BY jobs_completed
 WHERE j.state = 'completed' AND j.completed_at <= :cutoff AND j.kind = 'distillation'
   AND j.through_sequence < (SELECT max(n.through_sequence) FROM jobs AS n
                              WHERE n.session_id = j.session_id AND n.kind = 'distillation' AND n.state = 'completed')
   AND NOT EXISTS (SELECT 1 FROM knowledge_versions AS v WHERE v.job_id = j.id)
   AND NOT EXISTS (SELECT 1 FROM knowledge_proposals AS p WHERE p.job_id = j.id)
 ORDER BY j.completed_at, j.row
 LIMIT :limit;

-- name: prune_job
DELETE FROM jobs
 WHERE row = :key AND state = 'completed' AND completed_at <= :cutoff AND kind = 'distillation'
   AND through_sequence < (SELECT max(n.through_sequence) FROM jobs AS n
                            WHERE n.session_id = jobs.session_id AND n.kind = 'distillation' AND n.state = 'completed')
   AND NOT EXISTS (SELECT 1 FROM knowledge_versions AS v WHERE v.job_id = jobs.id)
   AND NOT EXISTS (SELECT 1 FROM knowledge_proposals AS p WHERE p.job_id = jobs.id);

-- name: jobs_overtaken
-- Terminal failures of a source that a later job of the same kind has covered.
SELECT j.row, 0, j.id, j.failed_at FROM jobs AS j INDEXED BY jobs_failed
 WHERE j.state = 'failed' AND j.failed_at <= :cutoff
   AND EXISTS (SELECT 1 FROM jobs AS n
                WHERE n.session_id = j.session_id AND n.kind = j.kind AND n.state = 'completed'
                  AND n.through_sequence >= j.through_sequence)
 ORDER BY j.failed_at, j.row
 LIMIT :limit;

-- name: prune_failure
DELETE FROM jobs
 WHERE row = :key AND state = 'failed' AND failed_at <= :cutoff
   AND EXISTS (SELECT 1 FROM jobs AS n
                WHERE n.session_id = jobs.session_id AND n.kind = jobs.kind AND n.state = 'completed'
                  AND n.through_sequence >= jobs.through_sequence);

-- name: optimize
PRAGMA optimize;

-- name: truncate_log
PRAGMA wal_checkpoint(TRUNCATE);

-- name: give_back_pages
PRAGMA incremental_vacuum(500);

-- name: rewrite
VACUUM;
