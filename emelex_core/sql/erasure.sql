-- What was derived from a Session, and how it goes. A version that another Session's evidence bears out stays on that.

-- name: remaining
SELECT (SELECT count(DISTINCT v.knowledge_row) FROM knowledge_versions AS v
         WHERE v.source_session_uuid = :session_id AND v.job_id IS NOT NULL),
       (SELECT count(*) FROM knowledge_versions AS v WHERE v.source_session_uuid = :session_id AND v.job_id IS NOT NULL),
       (SELECT count(*) FROM knowledge_proposals AS p WHERE p.session_uuid = :session_id),
       (SELECT count(*) FROM knowledge_evidence AS e WHERE e.session_uuid = :session_id)
       + (SELECT count(*) FROM knowledge_changes AS c WHERE c.session_uuid = :session_id);

-- name: drop_evidence
DELETE FROM knowledge_evidence WHERE session_uuid = :session_id;

-- name: versions
SELECT v.knowledge_row, v.version,
       (SELECT e.session_uuid FROM knowledge_evidence AS e
         WHERE e.knowledge_row = v.knowledge_row AND e.version = v.version ORDER BY e.created_at, e.session_uuid LIMIT 1)
  FROM knowledge_versions AS v
 WHERE v.source_session_uuid = :session_id AND v.job_id IS NOT NULL
 ORDER BY v.knowledge_row, v.version;

-- name: rest_on
UPDATE knowledge_versions
   SET (source_session_id, source_session_uuid, source_first_sequence, source_last_sequence, source_sha256, evidence_event_id,
        evidence_sequence, evidence_speaker, evidence_quote, job_id, made_by, valid_from) =
       (SELECT (SELECT id FROM sessions WHERE id = e.session_uuid), e.session_uuid, e.first_sequence, e.last_sequence,
               e.source_sha256, e.evidence_event_id, e.evidence_sequence, e.evidence_speaker, e.evidence_quote, e.job_id,
               e.made_by, e.valid_from
          FROM knowledge_evidence AS e
         WHERE e.knowledge_row = :row AND e.version = :version AND e.session_uuid = :other)
 WHERE knowledge_row = :row AND version = :version;

-- name: drop_used_evidence
DELETE FROM knowledge_evidence WHERE knowledge_row = :row AND version = :version AND session_uuid = :other;

-- name: drop_version
DELETE FROM knowledge_versions WHERE knowledge_row = :row AND version = :version;

-- name: changed_entries
SELECT DISTINCT knowledge_row FROM knowledge_changes WHERE session_uuid = :session_id;

-- name: drop_changes
DELETE FROM knowledge_changes WHERE session_uuid = :session_id;

-- name: drop_proposals
DELETE FROM knowledge_proposals WHERE session_uuid = :session_id;

-- name: newest_left
-- What is left of an entry, and whether its last line still says so.
SELECT k.active_version,
       (SELECT max(version) FROM knowledge_versions WHERE knowledge_row = k.row),
       EXISTS (SELECT 1 FROM knowledge_versions WHERE knowledge_row = k.row AND version = k.active_version),
       (SELECT c.version_after = k.active_version AND c.active_after = (k.tombstoned_at IS NULL) FROM knowledge_changes AS c
         WHERE c.knowledge_row = k.row AND c.action NOT IN ('pinned', 'unpinned') ORDER BY c.row DESC LIMIT 1)
  FROM knowledge AS k WHERE k.row = :row;

-- name: use_version
UPDATE knowledge SET active_version = :version WHERE row = :row;

-- name: drop_entry
DELETE FROM knowledge WHERE row = :row;

-- name: note_erased
-- A version that is in use holds since its own evidence; what is hidden is so from now on.
INSERT INTO knowledge_changes (knowledge_row, action, actor, version_before, hidden_by_before, hidden_at_before, version_after,
                               active_after, effective_at, changed_at)
SELECT k.row, 'erased', 'user', :version_before, k.tombstoned_by, k.tombstoned_at, k.active_version, k.tombstoned_at IS NULL,
       CASE WHEN k.tombstoned_at IS NULL THEN min(ifnull(v.valid_from, v.created_at), :now) ELSE :now END, :now
  FROM knowledge AS k JOIN knowledge_versions AS v ON v.knowledge_row = k.row AND v.version = k.active_version
 WHERE k.row = :row;

-- name: overwrite_deleted
PRAGMA secure_delete = ON;

-- name: spare_deleted
PRAGMA secure_delete = OFF;

-- name: merge_knowledge_index
-- What was deleted leaves the index itself when its parts are merged, and not before.
INSERT INTO knowledge_index (knowledge_index) VALUES ('optimize');

-- name: merge_transcript_index
INSERT INTO transcript_index (transcript_index) VALUES ('optimize');
