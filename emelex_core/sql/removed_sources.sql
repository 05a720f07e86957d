-- Statements over `removed_sources`: foreign Sessions that were removed here.

-- name: note
INSERT INTO removed_sources (source_sha256, session_uuid, removed_at) VALUES (:digest, :session_id, :now)
ON CONFLICT (source_sha256) DO UPDATE SET session_uuid = :session_id, removed_at = :now;

-- name: find
SELECT session_uuid, removed_at FROM removed_sources WHERE source_sha256 = :digest;

-- name: clear
DELETE FROM removed_sources WHERE source_sha256 = :digest;
