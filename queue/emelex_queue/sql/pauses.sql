-- name: pause
INSERT INTO queue_pauses (kind, paused_at, reason) VALUES (:kind, :now, :reason) ON CONFLICT (kind) DO NOTHING;

-- name: resume
DELETE FROM queue_pauses WHERE kind = :kind;

-- name: all
SELECT kind, paused_at, reason FROM queue_pauses ORDER BY kind;
