-- Statements over `imports`: how far a foreign transcript has been read, and how far it is settled.

-- name: get
SELECT byte_offset, prefix_sha256, settled_offset, settled_sequence, finished FROM imports WHERE session_id = :session_id;

-- name: put
INSERT INTO imports (session_id, byte_offset, prefix_sha256, settled_offset, settled_sequence, finished, updated_at)
VALUES (:session_id, :byte_offset, :prefix_sha256, :settled_offset, :settled_sequence, :finished, :now)
ON CONFLICT (session_id) DO UPDATE
   SET byte_offset = excluded.byte_offset, prefix_sha256 = excluded.prefix_sha256,
       settled_offset = excluded.settled_offset, settled_sequence = excluded.settled_sequence,
       finished = excluded.finished, updated_at = excluded.updated_at;

-- name: stored
-- Events past a sequence as they were given, for comparing with what a transcript says now.
SELECT turn_position, turn_size, kind, payload, source_record, occurred_at FROM events
 WHERE session_id = :session_id AND sequence > :after AND sequence <= :through
 ORDER BY sequence;

-- name: is_redacted
SELECT 1 FROM redactions WHERE session_id = :session_id LIMIT 1;

-- name: entitle
-- Under the import's own lease, in the transaction that stores what the title comes from.
UPDATE sessions SET title = :title WHERE id = :id AND title <> :title;

-- name: past
-- What would go with the events past a sequence.
SELECT ifnull(sum(e.turn_position = 0), 0), count(*),
       (SELECT count(*) FROM event_assets AS a WHERE a.session_id = :session_id AND a.sequence > :after)
  FROM events AS e WHERE e.session_id = :session_id AND e.sequence > :after;

-- name: adopt
-- A part that was imported before its whole.
UPDATE sessions SET parent_session_id = :parent_id WHERE id = :id AND parent_session_id IS NULL;

-- name: records
-- The names of what a Session holds of its source, in order.
SELECT source_record FROM events WHERE session_id = :session_id AND source_record IS NOT NULL ORDER BY sequence;
