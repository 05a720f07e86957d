-- Schema 14: the ledger of a job under way: what of it is finished survives its worker. A row is made when there is
-- something to write down, and goes with its job's settlement.
--
-- `refusals` counts how often the gate refused what an attempt made; `state` is what a fold has read, under settings with
-- that digest, of the history whose digest is `chain`.
CREATE TABLE job_ledgers (
    job_id          TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    refusals        INTEGER NOT NULL CHECK (refusals BETWEEN 0 AND 3),
    settings_sha256 TEXT CHECK (length(settings_sha256) = 64),
    state           BLOB CHECK (length(state) BETWEEN 1 AND 67108864),
    chain           BLOB CHECK (length(chain) = 32),
    CHECK ((settings_sha256 IS NULL) = (state IS NULL) AND (state IS NULL) = (chain IS NULL))
) STRICT;

-- Each event is in exactly one leaf: a leaf begins behind the one that it follows, which no other follows, and one leaf
-- follows none.
CREATE TABLE job_leaves (
    job_id         TEXT NOT NULL REFERENCES job_ledgers (job_id) ON DELETE CASCADE,
    first_sequence INTEGER NOT NULL CHECK (first_sequence >= 1),
    last_sequence  INTEGER NOT NULL CHECK (last_sequence >= first_sequence),
    previous_last  INTEGER CHECK (previous_last IS NULL OR first_sequence = previous_last + 1),
    events         INTEGER NOT NULL CHECK (events BETWEEN 1 AND last_sequence - first_sequence + 1),
    tokens         INTEGER NOT NULL CHECK (tokens >= 0),
    PRIMARY KEY (job_id, first_sequence),
    UNIQUE (job_id, last_sequence),
    UNIQUE (job_id, previous_last),
    FOREIGN KEY (job_id, previous_last) REFERENCES job_leaves (job_id, last_sequence)
) STRICT;

CREATE UNIQUE INDEX job_leaves_first ON job_leaves (job_id) WHERE previous_last IS NULL;

-- What a call of the model gave, under the digest of the request and of the weights that it went to.
CREATE TABLE job_calls (
    job_id      TEXT NOT NULL REFERENCES job_ledgers (job_id) ON DELETE CASCADE,
    call_sha256 TEXT NOT NULL CHECK (length(call_sha256) = 64),
    generation  BLOB NOT NULL CHECK (length(generation) BETWEEN 2 AND 1048576),
    PRIMARY KEY (job_id, call_sha256)
) STRICT;

CREATE TRIGGER job_ledgers_settled AFTER UPDATE OF state ON jobs WHEN NEW.state IN ('completed', 'failed') BEGIN
    DELETE FROM job_ledgers WHERE job_id = NEW.id;
END;
