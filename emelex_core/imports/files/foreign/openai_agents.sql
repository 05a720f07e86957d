-- Statements over a session store of the OpenAI Agents SDK. Its tables can have other names, which replace these.

-- name: count_sessions
SELECT count(*) FROM agent_sessions WHERE session_id NOT IN (SELECT session_id FROM agent_messages);

-- name: sessions
SELECT session_id, min(id) FROM agent_messages GROUP BY session_id ORDER BY 2;

-- name: messages
SELECT id, CASE WHEN length(CAST(message_data AS BLOB)) <= :bytes_max THEN CAST(message_data AS BLOB) END, created_at
  FROM agent_messages
 WHERE session_id = :session_id
 ORDER BY id;
