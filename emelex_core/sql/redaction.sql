-- Replacing text in a transcript and in what was derived from it, with digests that hold again.

-- name: busy
-- Who uses the Session now: its lease, a worker's, or a turn that nobody has closed.
SELECT CASE WHEN s.lease_token IS NOT NULL AND s.lease_until > :now AND owner_alive(s.lease_owner) THEN s.lease_until
            ELSE (SELECT max(j.lease_until) FROM jobs AS j WHERE j.session_id = s.id AND j.state = 'running') END,
       EXISTS (SELECT 1 FROM active_turns AS t WHERE t.session_id = s.id)
  FROM sessions AS s WHERE s.id = :id;

-- name: events
SELECT row, sequence, id, turn_id, turn_position, turn_size, kind, payload, source_record, occurred_at, created_at, chain
  FROM events WHERE session_id = :id AND sequence > :after ORDER BY sequence LIMIT :limit;

-- name: rewrite_event
UPDATE events SET payload = :payload, chain = :chain WHERE row = :row;

-- name: rewrite_head
UPDATE sessions SET chain = :chain, event_bytes = event_bytes + :bytes WHERE id = :id AND last_sequence = :last_sequence;

-- name: titles
SELECT title FROM sessions WHERE id = :id;

-- name: rewrite_title
UPDATE sessions SET title = :title WHERE id = :id;

-- name: jobs
SELECT id, kind, through_sequence, source_first_event_id, source_last_event_id, source_sha256, last_error
  FROM jobs WHERE session_id = :id ORDER BY through_sequence;

-- name: rewrite_job
UPDATE jobs SET source_sha256 = :sha256, last_error = :last_error WHERE id = :job_id;

-- name: quotes
SELECT evidence_sequence, evidence_quote FROM knowledge_versions
 WHERE source_session_uuid = :id AND evidence_quote IS NOT NULL
 UNION SELECT evidence_sequence, evidence_quote FROM knowledge_evidence WHERE session_uuid = :id
 UNION SELECT evidence_sequence, evidence_quote FROM knowledge_proposals WHERE session_uuid = :id;

-- name: rewrite_quote
UPDATE knowledge_versions SET evidence_quote = :quote
 WHERE source_session_uuid = :id AND evidence_sequence = :sequence AND evidence_quote = :before;

-- name: rewrite_other_quote
UPDATE knowledge_evidence SET evidence_quote = :quote
 WHERE session_uuid = :id AND evidence_sequence = :sequence AND evidence_quote = :before;

-- name: rewrite_proposed_quote
UPDATE knowledge_proposals SET evidence_quote = :quote
 WHERE session_uuid = :id AND evidence_sequence = :sequence AND evidence_quote = :before;

-- name: versions
SELECT v.knowledge_row, v.version, k.key, v.content, v.job_id, v.source_last_sequence, v.source_sha256
  FROM knowledge_versions AS v JOIN knowledge AS k ON k.row = v.knowledge_row
 WHERE v.source_session_uuid = :id;

-- name: rewrite_version
UPDATE knowledge_versions SET content = :content, source_sha256 = :sha256 WHERE knowledge_row = :row AND version = :version;

-- name: drop_version
DELETE FROM knowledge_versions WHERE knowledge_row = :row AND version = :version;

-- name: evidence
SELECT knowledge_row, version, job_id, source_sha256 FROM knowledge_evidence WHERE session_uuid = :id;

-- name: rewrite_evidence
UPDATE knowledge_evidence SET source_sha256 = :sha256 WHERE knowledge_row = :row AND version = :version AND session_uuid = :id;

-- name: proposals
SELECT row, key, content, why, job_id, source_sha256 FROM knowledge_proposals WHERE session_uuid = :id;

-- name: rewrite_proposal
UPDATE knowledge_proposals SET content = :content, why = :why, source_sha256 = :sha256 WHERE row = :row;

-- name: drop_proposal
DELETE FROM knowledge_proposals WHERE row = :row;

-- name: drop_reasons
UPDATE knowledge_changes SET reason = NULL WHERE session_uuid = :id;

-- name: note
INSERT INTO redactions (session_id, kind, first_sequence, events, places, chain_before, chain_after, redacted_at)
VALUES (:id, :kind, :first_sequence, :events, :places, :chain_before, :chain_after, :now)
RETURNING row;

-- name: note_source
INSERT INTO redacted_sources (redaction_row, job_id, sha256_before, sha256_after)
VALUES (:redaction, :job_id, :before, :after);

-- name: of_session
SELECT kind, first_sequence, events, places, chain_before, chain_after, redacted_at FROM redactions
 WHERE session_id = :id ORDER BY row;
