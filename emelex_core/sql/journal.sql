-- Statements over the journal of a Session's turn: `active_turns`, `pending_batches`, `pending_tools`, `pending_approvals`,
-- `turn_checkpoints`. Each runs in a transaction that has proven the Session lease first.

-- name: begin
INSERT INTO active_turns (session_id, turn_id, input, checkpoint_count, started_at)
SELECT :session_id, :turn_id, :input, 0, :now
 WHERE NOT EXISTS (SELECT 1 FROM active_turns WHERE session_id = :session_id);

-- name: turn
SELECT a.turn_id, a.input, a.checkpoint_count, a.started_at,
       (SELECT ifnull(sum(c.bytes), 0) FROM turn_checkpoints AS c WHERE c.session_id = a.session_id),
       (SELECT ifnull(sum(c.last_sequence - c.first_sequence + 1), 0) FROM turn_checkpoints AS c
         WHERE c.session_id = a.session_id),
       (SELECT count(*) FROM turn_checkpoints AS c WHERE c.session_id = a.session_id)
  FROM active_turns AS a WHERE a.session_id = :session_id;

-- name: batch
SELECT messages, reserved_bytes, reserved_events FROM pending_batches WHERE session_id = :session_id;

-- name: calls
SELECT t.ordinal, t.call_id, t.name, t.arguments, t.state, t.started_at, t.result, p.state
  FROM pending_tools AS t LEFT JOIN pending_approvals AS p ON p.session_id = t.session_id AND p.ordinal = t.ordinal
 WHERE t.session_id = :session_id
 ORDER BY t.ordinal;

-- name: call
SELECT t.state, t.name = :name AND t.arguments = :arguments, p.state
  FROM pending_tools AS t LEFT JOIN pending_approvals AS p ON p.session_id = t.session_id AND p.ordinal = t.ordinal
 WHERE t.session_id = :session_id AND t.call_id = :call_id;

-- name: plan_batch
INSERT INTO pending_batches (session_id, messages, reserved_bytes, reserved_events, planned_at)
VALUES (:session_id, :messages, :reserved_bytes, :reserved_events, :now);

-- name: plan_call
INSERT INTO pending_tools (session_id, ordinal, call_id, name, arguments, state, started_at, result)
VALUES (:session_id, :ordinal, :call_id, :name, :arguments, 'planned', NULL, NULL);

-- name: ask
-- Once for each call, and only before it is started.
INSERT INTO pending_approvals (session_id, ordinal, state, request, reason, asked_at, decided_at)
SELECT session_id, ordinal, 'asked', :request, NULL, :now, NULL FROM pending_tools
 WHERE session_id = :session_id AND call_id = :call_id AND name = :name AND arguments = :arguments AND state = 'planned'
   AND NOT EXISTS (SELECT 1 FROM pending_approvals AS p
                    WHERE p.session_id = pending_tools.session_id AND p.ordinal = pending_tools.ordinal);

-- name: decide
UPDATE pending_approvals SET state = :decision, reason = :reason, decided_at = :now
 WHERE session_id = :session_id AND state = 'asked'
   AND ordinal = (SELECT ordinal FROM pending_tools
                   WHERE session_id = :session_id AND call_id = :call_id AND state = 'planned');

-- name: start
-- Only what was planned, as it was planned, and not while somebody was asked and has not said yes.
UPDATE pending_tools SET state = 'started', started_at = :now
 WHERE session_id = :session_id AND call_id = :call_id AND name = :name AND arguments = :arguments AND state = 'planned'
   AND NOT EXISTS (SELECT 1 FROM pending_approvals AS p
                    WHERE p.session_id = pending_tools.session_id AND p.ordinal = pending_tools.ordinal
                      AND p.state <> 'granted');

-- name: complete
UPDATE pending_tools SET state = 'completed', result = :result
 WHERE session_id = :session_id AND call_id = :call_id AND name = :name AND arguments = :arguments AND state = :state;

-- name: room
-- What the batch was given room for, and what it holds so far.
SELECT b.reserved_bytes,
       length(b.messages) + (SELECT ifnull(sum(length(result)), 0) FROM pending_tools WHERE session_id = :session_id)
  FROM pending_batches AS b WHERE b.session_id = :session_id;

-- name: settle
-- Recovery: what a call ends with, whose state nobody changes any more.
UPDATE pending_tools SET state = 'completed', result = :result
 WHERE session_id = :session_id AND ordinal = :ordinal AND state = :state;

-- name: deny_open
UPDATE pending_approvals SET state = 'denied', decided_at = :now
 WHERE session_id = :session_id AND ordinal = :ordinal AND state = 'asked';

-- name: clear_calls
DELETE FROM pending_tools WHERE session_id = :session_id AND state = 'completed';

-- name: clear_batch
DELETE FROM pending_batches
 WHERE session_id = :session_id AND NOT EXISTS (SELECT 1 FROM pending_tools WHERE session_id = :session_id);

-- name: count_checkpoint
UPDATE active_turns SET checkpoint_count = checkpoint_count + 1
 WHERE session_id = :session_id AND turn_id = :turn_id AND checkpoint_count = :before;

-- name: note_checkpoint
-- In the transaction that appended `count` events: they are the Session's last.
INSERT INTO turn_checkpoints (session_id, ordinal, first_sequence, last_sequence, bytes)
SELECT id, :ordinal, last_sequence - :count + 1, last_sequence, :bytes FROM sessions WHERE id = :session_id;

-- name: drop_unstarted
-- A failed turn's batch of which nothing has run leaves no trace.
DELETE FROM pending_batches
 WHERE session_id = :session_id
   AND NOT EXISTS (SELECT 1 FROM pending_tools WHERE session_id = :session_id AND started_at IS NOT NULL);

-- name: drop_calls
DELETE FROM pending_tools WHERE session_id = :session_id AND started_at IS NULL;

-- name: close_turn
DELETE FROM active_turns
 WHERE session_id = :session_id AND turn_id = :turn_id AND checkpoint_count = :checkpoints
   AND NOT EXISTS (SELECT 1 FROM pending_batches WHERE session_id = :session_id)
   AND NOT EXISTS (SELECT 1 FROM pending_tools WHERE session_id = :session_id);

-- name: has_asset
SELECT size FROM assets WHERE sha256 = :sha256;

-- name: snapshot
SELECT version, config, authority, created_at FROM session_snapshots WHERE session_id = :session_id;

-- name: store_snapshot
-- For an empty Session only, and once (behaviours 61 and 62).
INSERT INTO session_snapshots (session_id, version, config, authority, created_at)
SELECT id, :version, :config, :authority, :now FROM sessions
 WHERE id = :session_id AND last_sequence = 0
   AND NOT EXISTS (SELECT 1 FROM active_turns AS a WHERE a.session_id = sessions.id)
   AND NOT EXISTS (SELECT 1 FROM session_snapshots AS s WHERE s.session_id = sessions.id);

-- name: move_snapshot
UPDATE session_snapshots SET authority = :authority WHERE session_id = :session_id AND authority = :before;
