-- Statements over a checkpoint store of LangGraph.

-- name: threads
SELECT thread_id, checkpoint_ns, min(checkpoint_id) FROM checkpoints GROUP BY thread_id, checkpoint_ns ORDER BY 3;

-- name: tree
SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints
 WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns
 ORDER BY checkpoint_id;

-- name: checkpoint
SELECT type, CASE WHEN length(CAST(checkpoint AS BLOB)) <= :bytes_max THEN CAST(checkpoint AS BLOB) END
  FROM checkpoints
 WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND checkpoint_id = :checkpoint_id;

-- name: writes
SELECT count(*), coalesce(sum(checkpoint_id IN (SELECT value FROM json_each(:leaves))), 0) FROM writes
 WHERE thread_id = :thread_id AND checkpoint_ns = :checkpoint_ns AND channel = :channel;
