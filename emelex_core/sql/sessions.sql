-- Statements over `sessions` and `workspaces`. `touched_at` is clock.touched_at: it rises, unless it ran ahead by far.

-- name: find_workspace
SELECT id, path FROM workspaces
 WHERE device = :device AND inode = :inode AND ifnull(birth_ns, -1) = ifnull(:birth_ns, -1);

-- name: add_workspace
INSERT INTO workspaces (device, inode, birth_ns, path)
VALUES (:device, :inode, :birth_ns, :path)
RETURNING id;

-- name: move_workspace
UPDATE workspaces SET path = :path WHERE id = :id AND path <> :path;

-- name: add_session
INSERT INTO sessions (id, workspace_id, title, source, source_id, source_cwd, parent_session_id, last_sequence,
                      event_bytes, chain, summary_sequence, covered_sequence, planned_sequence, created_at, updated_at)
VALUES (:id, :workspace_id, :title, :source, :source_id, :source_cwd, :parent_session_id, 0,
        0, :chain, 0, 0, 0, :now, :now);

-- name: get
SELECT s.id, s.workspace_id, w.path, s.title, s.source, s.source_id, s.source_cwd, s.parent_session_id,
       s.model_reference, s.model_snapshot_id, s.last_sequence, s.summary_sequence, s.covered_sequence, s.event_bytes,
       CASE WHEN s.lease_token IS NOT NULL AND s.lease_until > :now AND owner_alive(s.lease_owner)
            THEN min(s.lease_until, :now + :lease_ms) END,
       s.created_at, s.updated_at, w.device, w.inode, w.birth_ns
  FROM sessions AS s JOIN workspaces AS w ON w.id = s.workspace_id
 WHERE s.id = :id;

-- name: page
SELECT s.id, s.workspace_id, w.path, s.title, s.source, s.source_id, s.source_cwd, s.parent_session_id,
       s.model_reference, s.model_snapshot_id, s.last_sequence, s.summary_sequence, s.covered_sequence, s.event_bytes,
       CASE WHEN s.lease_token IS NOT NULL AND s.lease_until > :now AND owner_alive(s.lease_owner)
            THEN min(s.lease_until, :now + :lease_ms) END,
       s.created_at, s.updated_at, w.device, w.inode, w.birth_ns
  FROM sessions AS s JOIN workspaces AS w ON w.id = s.workspace_id
 WHERE (:workspace_id IS NULL OR s.workspace_id = :workspace_id)
   AND (:before_updated_at IS NULL OR (s.updated_at, s.id) < (:before_updated_at, :before_id))
 ORDER BY s.updated_at DESC, s.id DESC
 LIMIT :limit;

-- name: ids_by_prefix
SELECT id FROM sessions WHERE id >= :prefix AND id < :prefix || 'g' ORDER BY id LIMIT 11;

-- name: find_by_source
SELECT id FROM sessions WHERE source = :source AND source_id = :source_id;

-- name: identity
SELECT w.path, w.device, w.inode, w.birth_ns, s.workspace_id
  FROM sessions AS s JOIN workspaces AS w ON w.id = s.workspace_id
 WHERE s.id = :id;

-- name: clamp_lease
-- A clock that was set back must not make a lease live longer than a lease can (behaviour 182).
UPDATE sessions SET lease_until = :now + :lease_ms
 WHERE id = :id AND lease_until > :now + :lease_ms;

-- name: claim
UPDATE sessions
   SET lease_token = :token, lease_until = :now + :lease_ms, lease_owner = :owner,
       updated_at = touched_at(updated_at, :now)
 WHERE id = :id
   AND (lease_token IS NULL OR lease_until <= :now OR NOT owner_alive(lease_owner))
RETURNING last_sequence, chain;

-- name: held_until
SELECT lease_until FROM sessions WHERE id = :id;

-- name: is_held
SELECT 1 FROM sessions WHERE id = :id AND lease_token = :token;

-- name: renew
-- An expired lease that nobody took is recovered by its holder (behaviour 24): the token alone decides.
UPDATE sessions SET lease_until = :now + :lease_ms WHERE id = :id AND lease_token = :token;

-- name: release
UPDATE sessions SET lease_token = NULL, lease_until = NULL, lease_owner = NULL WHERE id = :id AND lease_token = :token;

-- name: advance
-- `touched_at` answers `now` where that is later, and calling it costs more than the comparison.
-- A turn that is under way or was interrupted is gone on with by its own journal only.
UPDATE sessions
   SET last_sequence = :last_sequence, chain = :chain, event_bytes = event_bytes + :bytes,
       lease_until = :now + :lease_ms,
       updated_at = CASE WHEN updated_at < :now THEN :now ELSE touched_at(updated_at, :now) END
 WHERE id = :id AND lease_token = :token AND lease_until > :now AND last_sequence = :cursor
   AND (:from_journal OR NOT EXISTS (SELECT 1 FROM active_turns WHERE session_id = :id));

-- name: advance_unclaimed
-- Without a lease: only while no live one holds the Session, and beside no turn that only its journal may go on with.
UPDATE sessions
   SET last_sequence = :last_sequence, chain = :chain, event_bytes = event_bytes + :bytes,
       updated_at = touched_at(updated_at, :now)
 WHERE id = :id AND last_sequence = :cursor
   AND (lease_token IS NULL OR lease_until <= :now OR NOT owner_alive(lease_owner))
   AND NOT EXISTS (SELECT 1 FROM active_turns WHERE session_id = :id);

-- name: advance_by_summary
-- The compaction worker appends its Summary without a lease: only while no live lease holds the Session, and only past the
-- newest Summary, since two compactions of one Session may run at once and the longer one may be done first.
UPDATE sessions
   SET last_sequence = :last_sequence, chain = :chain, event_bytes = event_bytes + :bytes,
       summary_sequence = :last_sequence, covered_sequence = :covered_sequence
 WHERE id = :id AND last_sequence = :cursor AND summary_sequence < :covered_sequence
   AND (lease_token IS NULL OR lease_until <= :now OR NOT owner_alive(lease_owner));

-- name: head
SELECT last_sequence, chain, summary_sequence, covered_sequence FROM sessions WHERE id = :id;

-- name: has_turn
SELECT 1 FROM active_turns WHERE session_id = :id;

-- name: rename_claimed
UPDATE sessions SET title = :title, updated_at = touched_at(updated_at, :now) WHERE id = :id AND lease_token = :token;

-- name: rename_unclaimed
UPDATE sessions SET title = :title, updated_at = touched_at(updated_at, :now)
 WHERE id = :id AND (lease_token IS NULL OR lease_until <= :now OR NOT owner_alive(lease_owner));

-- name: to_plan
-- Sessions that can be due for compaction: what is not covered has at least as many bytes as the trigger has tokens (a
-- token is at least one byte, so fewer bytes prove that it is not due), and has grown since the last look.
SELECT s.id FROM sessions AS s
 WHERE s.last_sequence > s.planned_sequence
   AND s.event_bytes >= :trigger_tokens
   AND (:session_id IS NULL OR s.id = :session_id)
   AND NOT (s.lease_token IS NOT NULL AND s.lease_until > :now AND owner_alive(s.lease_owner))
 ORDER BY s.row;

-- name: mark_small_planned
-- Fewer bytes than the trigger has tokens prove that a Session is not due, without reading it.
UPDATE sessions SET planned_sequence = last_sequence
 WHERE last_sequence > planned_sequence AND event_bytes < :trigger_tokens
   AND (:session_id IS NULL OR id = :session_id);

-- name: mark_planned
UPDATE sessions SET planned_sequence = :sequence WHERE id = :id AND planned_sequence < :sequence AND last_sequence >= :sequence;

-- name: bind_model
-- Once: a binding is never changed. `token` is that of the lease under which a claimed Session is bound, else null.
UPDATE sessions
   SET model_reference = :reference, model_snapshot_id = :snapshot_id, updated_at = touched_at(updated_at, :now)
 WHERE id = :id AND model_reference IS NULL
   AND (lease_token IS :token OR lease_token IS NULL OR lease_until <= :now OR NOT owner_alive(lease_owner));

-- name: binding
SELECT model_reference, model_snapshot_id,
       CASE WHEN lease_token IS NOT NULL AND lease_token IS NOT :token AND lease_until > :now AND owner_alive(lease_owner)
            THEN min(lease_until, :now + :lease_ms) END
  FROM sessions WHERE id = :id;

-- name: bound_to_snapshot
-- Both texts end in the 64 digits of the snapshot's digest.
SELECT 1 FROM sessions WHERE substr(model_snapshot_id, -64) = substr(:snapshot_id, -64) LIMIT 1;
