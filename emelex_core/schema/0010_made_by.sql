-- Schema 10: a Knowledge version carries what made it (model snapshot, prompt, grammar, sampling, engine), since versions outlive
-- the jobs and the Sessions that they came from. Versions that a person wrote have none.
ALTER TABLE knowledge_versions ADD COLUMN made_by BLOB CHECK (made_by IS NULL OR length(made_by) BETWEEN 2 AND 65536);
