-- Finding events. `transcript_index` knows the events up to `through_row`; its rows go with their events by trigger.

-- name: search
SELECT e.row, h.rank
  FROM (SELECT rowid AS row, bm25(transcript_index) AS rank FROM transcript_index WHERE transcript_index MATCH :match) AS h
  JOIN events AS e ON e.row = h.row
  JOIN sessions AS s ON s.id = e.session_id
 WHERE (:workspace_id IS NULL OR s.workspace_id = :workspace_id) AND (:session_id IS NULL OR s.id = :session_id)
   AND (:rank IS NULL OR (h.rank, -e.row) > (:rank, :row))
 ORDER BY h.rank, -e.row;

-- name: scan
-- For words that the index does not know: `needle` is the first of them as JSON writes it.
SELECT e.row, 0.0
  FROM events AS e JOIN sessions AS s ON s.id = e.session_id
 WHERE (:workspace_id IS NULL OR s.workspace_id = :workspace_id) AND (:session_id IS NULL OR s.id = :session_id)
   AND (:rank IS NULL OR -e.row > :row)
   AND instr(e.payload, :needle)
 ORDER BY e.row DESC;

-- name: event
SELECT e.session_id, s.title, w.path, e.id, e.sequence, e.kind, ifnull(e.occurred_at, e.created_at), e.payload,
       e.sequence <= s.covered_sequence
  FROM events AS e JOIN sessions AS s ON s.id = e.session_id JOIN workspaces AS w ON w.id = s.workspace_id
 WHERE e.row = :row;

-- name: through
SELECT through_row FROM transcript_index_state WHERE one = 1;

-- name: behind
SELECT count(*) FROM events WHERE row > (SELECT through_row FROM transcript_index_state WHERE one = 1);

-- name: to_index
SELECT row, payload FROM events WHERE row > :through ORDER BY row LIMIT :limit;

-- name: add
INSERT OR REPLACE INTO transcript_index (rowid, text) VALUES (:row, :text);

-- name: drop
DELETE FROM transcript_index WHERE rowid = :row;

-- name: advance
UPDATE transcript_index_state SET through_row = :row WHERE one = 1;

-- name: clear
INSERT INTO transcript_index (transcript_index) VALUES ('delete-all');

-- name: index_faults
-- Events up to the mark that the index does not know, and others that it does.
SELECT (SELECT count(*) FROM events AS e
         WHERE e.row <= (SELECT through_row FROM transcript_index_state)
           AND NOT EXISTS (SELECT 1 FROM transcript_index_docsize AS d WHERE d.id = e.row)),
       (SELECT count(*) FROM transcript_index_docsize AS d WHERE NOT EXISTS (SELECT 1 FROM events AS e WHERE e.row = d.id));
