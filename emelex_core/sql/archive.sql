-- What export, check, backup and restore look at beyond the other rooms' statements, and what a repair sets right.

-- name: snapshot
SELECT version, config, authority, created_at FROM session_snapshots WHERE session_id = :session_id;

-- name: sessions_after
SELECT id FROM sessions
 WHERE id > :after AND (:workspace_id IS NULL OR workspace_id = :workspace_id)
 ORDER BY id LIMIT :limit;

-- name: entries_after
SELECT k.row, k.workspace_id, k.key, w.path FROM knowledge AS k JOIN workspaces AS w ON w.id = k.workspace_id
 WHERE k.row > :after AND k.tombstoned_at IS NULL AND (:workspace_id IS NULL OR k.workspace_id = :workspace_id)
 ORDER BY k.row LIMIT :limit;

-- name: versions
SELECT version, content, confidence, origin, source_session_uuid, source_first_sequence, source_last_sequence,
       source_sha256, evidence_event_id, evidence_sequence, evidence_speaker, evidence_quote, job_id, created_at
  FROM knowledge_versions
 WHERE knowledge_row = :row AND version > :after
 ORDER BY version LIMIT :limit;

-- name: jobs_of_session
SELECT id, kind, through_sequence, source_event_count, source_first_event_id, source_last_event_id, source_sha256
  FROM jobs WHERE session_id = :session_id ORDER BY row;

-- name: evidence
SELECT v.knowledge_row, v.version, k.key, v.source_session_id, v.evidence_event_id, v.evidence_sequence,
       v.evidence_quote, e.id, e.payload
  FROM knowledge_versions AS v
  JOIN knowledge AS k ON k.row = v.knowledge_row
  LEFT JOIN events AS e ON e.session_id = v.source_session_id AND e.sequence = v.evidence_sequence
 WHERE (v.knowledge_row, v.version) > (:row, :version)
 ORDER BY v.knowledge_row, v.version
 LIMIT :limit;

-- name: without_active_version
SELECT k.key FROM knowledge AS k
 WHERE NOT EXISTS (SELECT 1 FROM knowledge_versions AS v WHERE v.knowledge_row = k.row AND v.version = k.active_version);

-- name: interrupted_turns
SELECT a.session_id, a.turn_id,
       s.lease_token IS NOT NULL AND s.lease_until > :now AND owner_alive(s.lease_owner)
  FROM active_turns AS a JOIN sessions AS s ON s.id = a.session_id
 ORDER BY a.session_id;

-- name: snapshots
SELECT session_id, config, authority FROM session_snapshots ORDER BY session_id;

-- name: dead_sessions
SELECT id FROM sessions WHERE lease_token IS NOT NULL AND (lease_until <= :now OR NOT owner_alive(lease_owner));

-- name: dead_jobs
SELECT id, session_id FROM jobs WHERE state = 'running' AND (lease_until <= :now OR NOT owner_alive(lease_owner));

-- name: repair_bytes
UPDATE sessions
   SET event_bytes = (SELECT ifnull(sum(length(payload)), 0) FROM events WHERE session_id = :id)
 WHERE id = :id;

-- name: repair_coverage
UPDATE sessions SET summary_sequence = :summary_sequence, covered_sequence = :covered_sequence WHERE id = :id;

-- name: drop_links
DELETE FROM event_assets WHERE session_id = :session_id AND sequence = :sequence;

-- name: drop_session_leases
-- A lease is the authority of a living process; a copy of the file holds none.
UPDATE sessions SET lease_token = NULL, lease_until = NULL, lease_owner = NULL WHERE lease_token IS NOT NULL;

-- name: drop_job_leases
UPDATE jobs SET state = 'pending', lease_token = NULL, lease_until = NULL, lease_owner = NULL WHERE state = 'running';

-- name: workspaces
SELECT w.id, w.path, w.device, w.inode, w.birth_ns,
       (SELECT count(*) FROM sessions AS s WHERE s.workspace_id = w.id),
       (SELECT count(*) FROM knowledge AS k WHERE k.workspace_id = w.id)
  FROM workspaces AS w ORDER BY w.id;

-- name: drop_orphan
DELETE FROM assets
 WHERE sha256 = :sha256 AND NOT EXISTS (SELECT 1 FROM event_assets AS e WHERE e.sha256 = :sha256);
