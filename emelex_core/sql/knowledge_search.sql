-- Finding Knowledge. `knowledge_index` holds active entries only; bm25 is lower the better, and the key weighs double.

-- name: search
WITH hits AS (
    SELECT rowid AS row, bm25(knowledge_index, 2.0, 1.0) AS rank FROM knowledge_index WHERE knowledge_index MATCH :match
     UNION
    SELECT k.row, -1000000.0 FROM knowledge AS k
     WHERE k.key = :key AND k.tombstoned_at IS NULL
       AND (:workspace_id IS NULL OR k.workspace_id = :workspace_id)),
placed AS (
    SELECT k.row AS row, CASE WHEN k.key = :key THEN 0 WHEN k.pinned THEN 1 ELSE 2 END AS place, min(h.rank) AS rank
      FROM hits AS h JOIN knowledge AS k ON k.row = h.row
     WHERE k.tombstoned_at IS NULL AND (:workspace_id IS NULL OR k.workspace_id = :workspace_id)
     GROUP BY k.row)
SELECT k.row, k.key, v.version, k.pinned, v.content, v.confidence, v.origin, v.source_session_uuid,
       v.evidence_event_id, v.evidence_sequence, v.evidence_speaker, v.evidence_quote, v.job_id, k.created_at, k.updated_at,
       k.tombstoned_at, v.source_session_id IS NOT NULL, k.tombstoned_by, ifnull(v.valid_from, v.created_at), w.path,
       p.place, p.rank, -p.row
  FROM placed AS p JOIN knowledge AS k ON k.row = p.row
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
  JOIN workspaces AS w ON w.id = k.workspace_id
 WHERE :group IS NULL OR (p.place, p.rank, -p.row) > (:group, :rank, :row)
 ORDER BY p.place, p.rank, -p.row;

-- name: scan
-- For words that the index does not know.
SELECT k.row, k.key, v.version, k.pinned, v.content, v.confidence, v.origin, v.source_session_uuid,
       v.evidence_event_id, v.evidence_sequence, v.evidence_speaker, v.evidence_quote, v.job_id, k.created_at, k.updated_at,
       k.tombstoned_at, v.source_session_id IS NOT NULL, k.tombstoned_by, ifnull(v.valid_from, v.created_at), w.path,
       CASE WHEN k.key = :key THEN 0 WHEN k.pinned THEN 1 ELSE 2 END AS place, 0.0, -k.row
  FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
  JOIN workspaces AS w ON w.id = k.workspace_id
 WHERE k.tombstoned_at IS NULL AND (:workspace_id IS NULL OR k.workspace_id = :workspace_id)
   AND (:group IS NULL
    OR (CASE WHEN k.key = :key THEN 0 WHEN k.pinned THEN 1 ELSE 2 END, 0.0, -k.row) > (:group, :rank, :row))
 ORDER BY place, -k.row;

-- name: recall
-- Materialized, so that each entry looks its hit up instead of asking the index anew: 5 s at 2,000 entries without.
WITH hits AS MATERIALIZED (
    SELECT rowid AS row, bm25(knowledge_index, 2.0, 1.0) AS rank FROM knowledge_index WHERE knowledge_index MATCH :match)
SELECT k.row, k.key, v.version, k.pinned, v.content, v.confidence, v.origin, v.source_session_uuid,
       v.evidence_event_id, v.evidence_sequence, v.evidence_speaker, v.evidence_quote, v.job_id, k.created_at, k.updated_at,
       k.tombstoned_at, v.source_session_id IS NOT NULL, k.tombstoned_by, ifnull(v.valid_from, v.created_at), w.path
  FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
  JOIN workspaces AS w ON w.id = k.workspace_id
  LEFT JOIN hits AS h ON h.row = k.row
 WHERE k.workspace_id = :workspace_id AND k.tombstoned_at IS NULL AND v.confidence >= :confidence
 ORDER BY k.pinned DESC, ifnull(h.rank, 0.0), k.updated_at DESC, k.row DESC
 LIMIT :limit;

-- name: index_faults
-- Active entries that the index does not know, and others that it does.
SELECT (SELECT count(*) FROM knowledge AS k
         WHERE k.tombstoned_at IS NULL AND NOT EXISTS (SELECT 1 FROM knowledge_index_docsize AS d WHERE d.id = k.row)),
       (SELECT count(*) FROM knowledge_index_docsize AS d
         WHERE NOT EXISTS (SELECT 1 FROM knowledge AS k WHERE k.row = d.id AND k.tombstoned_at IS NULL));

-- name: clear_index
INSERT INTO knowledge_index (knowledge_index) VALUES ('delete-all');

-- name: fill_index
INSERT INTO knowledge_index (rowid, key, content)
SELECT k.row, k.key, v.content FROM knowledge AS k
  JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
 WHERE k.tombstoned_at IS NULL;
