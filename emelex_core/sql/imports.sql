-- Statements over `imports`: how far a foreign transcript has been read.

-- name: get
SELECT byte_offset, prefix_sha256 FROM imports WHERE session_id = :session_id;

-- name: put
INSERT INTO imports (session_id, byte_offset, prefix_sha256, updated_at)
VALUES (:session_id, :byte_offset, :prefix_sha256, :now)
ON CONFLICT (session_id) DO UPDATE
   SET byte_offset = excluded.byte_offset, prefix_sha256 = excluded.prefix_sha256, updated_at = excluded.updated_at;
