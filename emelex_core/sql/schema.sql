-- Statements over the schema itself; see emelex_core/db/schema.py.

-- name: has_any
SELECT 1 FROM sqlite_schema LIMIT 1;

-- name: record
INSERT INTO schema_migrations (number, name, applied_at) VALUES (:number, :name, :now);

-- name: recorded
SELECT count(*), min(number), max(number) FROM schema_migrations;
