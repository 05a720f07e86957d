-- Statements over the whole store.

-- name: totals
-- Sequences have no gap, so that the last ones add up to the number of events.
SELECT (SELECT count(*) FROM sessions), (SELECT ifnull(sum(last_sequence), 0) FROM sessions),
       (SELECT count(*) FROM knowledge WHERE tombstoned_at IS NULL),
       (SELECT count(*) FROM knowledge WHERE tombstoned_at IS NOT NULL),
       (SELECT count(*) FROM assets), (SELECT ifnull(sum(size), 0) FROM assets);
