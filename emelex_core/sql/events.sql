-- Statements over `events` and `event_assets`.

-- name: add
-- Bound by position, in this order (EventRow of sessions/append.py).
INSERT INTO events (session_id, sequence, id, turn_id, turn_position, turn_size, kind, role, payload, source_record,
                    occurred_at, created_at, chain)
VALUES (:session_id, :sequence, :id, :turn_id, :turn_position, :turn_size, :kind, :role, :payload, :source_record,
        :occurred_at, :created_at, :chain);

-- name: link_asset
INSERT INTO event_assets (session_id, sequence, ordinal, sha256, kind)
VALUES (:session_id, :sequence, :ordinal, :sha256, :kind);

-- name: page
SELECT sequence, id, turn_id, turn_position, turn_size, kind, role, payload, source_record, occurred_at, created_at, chain
  FROM events
 WHERE session_id = :session_id AND sequence > :after AND sequence <= :through
 ORDER BY sequence
 LIMIT :limit;

-- name: links
SELECT sequence, ordinal, sha256, kind FROM event_assets
 WHERE session_id = :session_id AND sequence > :after AND sequence <= :through
 ORDER BY sequence, ordinal;

-- name: at
SELECT id, chain, turn_position, turn_size FROM events WHERE session_id = :session_id AND sequence = :sequence;

-- name: has_source_record
SELECT sequence FROM events WHERE session_id = :session_id AND source_record = :source_record;

-- name: summaries_past
-- Where Summaries stand behind a boundary, the oldest first.
SELECT sequence FROM events WHERE session_id = :session_id AND sequence > :after AND kind = 'summary' ORDER BY sequence;

-- name: last_evidence_sequence
-- Summaries are no evidence: a compaction must not make a Session look new to distillation.
SELECT max(sequence) FROM events WHERE session_id = :session_id AND kind <> 'summary';
