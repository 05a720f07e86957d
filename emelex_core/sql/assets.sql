-- Statements over `assets` and its links. `touched_at` is the instant of the newest storing that no append has followed
-- yet, or the instant at which the last link went; while neither is so it equals `created_at`.

-- name: size
SELECT size FROM assets WHERE sha256 = :sha256;

-- name: catalog
-- Storing the same bytes again refreshes the grace period: a concurrent append is about to link them.
INSERT INTO assets (sha256, size, created_at, touched_at)
VALUES (:sha256, :size, :now, :now)
ON CONFLICT (sha256) DO UPDATE SET touched_at = max(touched_at, excluded.touched_at)
RETURNING size;

-- name: take
-- An append follows the storing: the asset waits for nobody any more.
UPDATE assets SET touched_at = created_at WHERE sha256 = :sha256 RETURNING size;

-- name: link
SELECT sha256, kind FROM event_assets WHERE session_id = :session_id AND sequence = :sequence AND ordinal = :ordinal;

-- name: ids_by_prefix
SELECT sha256 FROM assets WHERE sha256 >= :prefix AND sha256 < :prefix || 'g' ORDER BY sha256 LIMIT 11;

-- name: get
SELECT a.sha256, a.size, a.created_at, a.touched_at,
       (SELECT count(*) FROM event_assets AS e WHERE e.sha256 = a.sha256)
  FROM assets AS a WHERE a.sha256 = :sha256;

-- name: page
SELECT a.sha256, a.size, a.created_at, a.touched_at,
       (SELECT count(*) FROM event_assets AS e WHERE e.sha256 = a.sha256)
  FROM assets AS a
 WHERE :before_created_at IS NULL OR (a.created_at, a.sha256) < (:before_created_at, :before_sha256)
 ORDER BY a.created_at DESC, a.sha256 DESC
 LIMIT :limit;

-- name: page_of_session
SELECT e.sequence, e.ordinal, e.sha256, e.kind, a.size
  FROM event_assets AS e JOIN assets AS a ON a.sha256 = e.sha256
 WHERE e.session_id = :session_id AND (e.sequence, e.ordinal) > (:after_sequence, :after_ordinal)
 ORDER BY e.sequence, e.ordinal
 LIMIT :limit;

-- name: after
SELECT sha256, size FROM assets WHERE sha256 > :after ORDER BY sha256 LIMIT :limit;

-- name: clamp
-- A clock that was set back must not keep an orphan alive until it comes round again (behaviour 182).
UPDATE assets SET touched_at = :now WHERE touched_at > :now;

-- name: count_ahead
SELECT count(*) FROM assets WHERE touched_at > :now;

-- name: orphans
SELECT a.sha256 FROM assets AS a
 WHERE a.sha256 > :after AND a.touched_at <= :cutoff
   AND NOT EXISTS (SELECT 1 FROM event_assets AS e WHERE e.sha256 = a.sha256)
 ORDER BY a.sha256
 LIMIT :limit;

-- name: remove_orphan
DELETE FROM assets
 WHERE sha256 = :sha256 AND touched_at <= :cutoff
   AND NOT EXISTS (SELECT 1 FROM event_assets AS e WHERE e.sha256 = :sha256)
RETURNING size, created_at, touched_at;

-- name: remove_freed
-- What was stored again since its last link is about to be linked: it is left to the grace period.
DELETE FROM assets
 WHERE sha256 = :sha256 AND touched_at <= created_at
   AND NOT EXISTS (SELECT 1 FROM event_assets AS e WHERE e.sha256 = :sha256)
RETURNING size, created_at, touched_at;

-- name: touch
UPDATE assets SET touched_at = max(touched_at, :now) WHERE sha256 = :sha256;

-- name: put_back
-- The row of a file that could not be removed.
INSERT INTO assets (sha256, size, created_at, touched_at) VALUES (:sha256, :size, :created_at, :touched_at);

-- name: only_of_session
-- What the Session links and no other one does.
SELECT DISTINCT e.sha256 FROM event_assets AS e
 WHERE e.session_id = :session_id
   AND NOT EXISTS (SELECT 1 FROM event_assets AS o WHERE o.sha256 = e.sha256 AND o.session_id <> :session_id);

-- name: journals
-- What a turn under way has put down; its media are linked when the turn closes (behaviour 108). A batch's messages name
-- no others than the input does.
SELECT input FROM active_turns
UNION ALL SELECT arguments FROM pending_tools
UNION ALL SELECT result FROM pending_tools WHERE result IS NOT NULL;
