-- Looks at the file as a whole, and what is done to it; see emelex_core/db/inspection.py.

-- name: integrity
PRAGMA integrity_check(100);

-- name: dangling
PRAGMA foreign_key_check;

-- name: rebuild_indexes
REINDEX;

-- name: give_up_log
PRAGMA journal_mode = DELETE;

-- name: pin
-- A first look, so that a view is of now.
PRAGMA schema_version;
