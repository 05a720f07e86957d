-- Statements over `assets`.

-- name: size
SELECT size FROM assets WHERE sha256 = :sha256;

-- name: catalog
-- Storing the same bytes again refreshes the grace period that collection grants (issue of a concurrent append).
INSERT INTO assets (sha256, size, created_at, touched_at)
VALUES (:sha256, :size, :now, :now)
ON CONFLICT (sha256) DO UPDATE SET touched_at = max(touched_at, excluded.touched_at);
