-- Statements over `job_ledgers`, `job_leaves` and `job_calls`.

-- name: begin
-- Only a running job is worked at.
INSERT INTO job_ledgers (job_id, refusals)
SELECT j.id, 0 FROM jobs AS j WHERE j.id = :job_id AND j.state = 'running'
ON CONFLICT (job_id) DO NOTHING;

-- name: refusals
SELECT refusals FROM job_ledgers WHERE job_id = :job_id;

-- name: count_refusal
UPDATE job_ledgers SET refusals = min(refusals + 1, 3) WHERE job_id = :job_id;

-- name: state
SELECT state, chain FROM job_ledgers WHERE job_id = :job_id AND settings_sha256 = :settings;

-- name: leaves
SELECT first_sequence, last_sequence, events, tokens FROM job_leaves WHERE job_id = :job_id ORDER BY first_sequence;

-- name: drop_leaves
DELETE FROM job_leaves WHERE job_id = :job_id;

-- name: keep_state
UPDATE job_ledgers SET settings_sha256 = :settings, state = :state, chain = :chain WHERE job_id = :job_id;

-- name: add_leaf
INSERT INTO job_leaves (job_id, first_sequence, last_sequence, previous_last, events, tokens)
VALUES (:job_id, :first_sequence, :last_sequence, :previous_last, :events, :tokens);

-- name: find_call
SELECT generation FROM job_calls WHERE job_id = :job_id AND call_sha256 = :digest;

-- name: keep_call
INSERT INTO job_calls (job_id, call_sha256, generation)
SELECT l.job_id, :digest, :generation FROM job_ledgers AS l WHERE l.job_id = :job_id
ON CONFLICT (job_id, call_sha256) DO NOTHING;
