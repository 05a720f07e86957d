-- Statements over the tail of an imported Session: what was read before its agent had finished it (ADR 0012).

-- name: kept_through
-- The last event past `after` that something rests on, or that no transcript said. A distillation that was never claimed
-- rests on nothing yet: it can be pointed at what is said now.
SELECT max(:after,
           ifnull((SELECT max(through_sequence) FROM jobs
                    WHERE session_id = :session_id
                      AND (kind = 'compaction' OR state <> 'pending' OR failure_count > 0 OR run_at <> published_at)), 0),
           ifnull((SELECT max(source_last_sequence) FROM knowledge_versions WHERE source_session_id = :session_id), 0),
           ifnull((SELECT max(evidence_sequence) FROM knowledge_proposals WHERE session_uuid = :session_id), 0),
           ifnull((SELECT max(evidence_sequence) FROM knowledge_evidence WHERE session_uuid = :session_id), 0),
           ifnull((SELECT max(sequence) FROM events
                    WHERE session_id = :session_id
                      AND EXISTS (SELECT 1 FROM redactions WHERE session_id = :session_id)), 0),
           ifnull((SELECT max(sequence) FROM events
                    WHERE session_id = :session_id AND sequence > :after AND source_record IS NULL), 0));

-- name: turn_end
SELECT sequence + turn_size - 1 - turn_position FROM events WHERE session_id = :session_id AND sequence = :sequence;

-- name: shorten
-- Guarded as an append is. What rests on the events was asked in the same transaction.
UPDATE sessions
   SET last_sequence = :through, chain = :chain, planned_sequence = min(planned_sequence, :through),
       event_bytes = event_bytes - (SELECT sum(length(payload)) FROM events
                                     WHERE session_id = :id AND sequence > :through),
       updated_at = touched_at(updated_at, :now)
 WHERE id = :id AND lease_token = :token AND lease_until > :now AND last_sequence = :cursor
   AND :through < last_sequence AND summary_sequence <= :through;

-- name: touch_assets
-- Media that are not said again begin their grace now.
UPDATE assets SET touched_at = max(touched_at, :now)
 WHERE sha256 IN (SELECT sha256 FROM event_assets WHERE session_id = :id AND sequence > :through);

-- name: remove
DELETE FROM events WHERE session_id = :id AND sequence > :through;
