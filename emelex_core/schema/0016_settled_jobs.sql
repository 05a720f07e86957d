-- Schema 16: what a claim and a count ask for stands in indexes of nothing else.
--
-- One job of a kind and Session runs at a time. Claims have kept to that by looking; now the database does, and the look
-- costs the same however many jobs a Session has had.
UPDATE jobs SET state = 'pending', lease_token = NULL, lease_until = NULL, lease_owner = NULL
 WHERE state = 'running' AND row NOT IN (SELECT min(row) FROM jobs WHERE state = 'running' GROUP BY session_id, kind);
CREATE UNIQUE INDEX jobs_running_once ON jobs (session_id, kind) WHERE state = 'running';

-- How many jobs are settled is counted without reading them.
CREATE INDEX jobs_settled ON jobs (state, kind) WHERE state IN ('completed', 'failed');
