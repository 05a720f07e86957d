-- Schema 13: how far a transcript is settled (ADR 0012). Its turns that begin at `settled_offset` or later were ended only by
-- the end of the file as it was; they are the events past `settled_sequence`, and a file that has grown may say them anew.
-- `finished` is 0 while an import is under way, or after one that was killed: then more was read than is told here.
-- What was imported before this schema stays as it is: all of it counts as settled.
ALTER TABLE imports ADD COLUMN settled_offset INTEGER NOT NULL DEFAULT 0 CHECK (settled_offset BETWEEN 0 AND byte_offset);
ALTER TABLE imports ADD COLUMN settled_sequence INTEGER NOT NULL DEFAULT 0 CHECK (settled_sequence >= 0);
ALTER TABLE imports ADD COLUMN finished INTEGER NOT NULL DEFAULT 1 CHECK (finished IN (0, 1));

UPDATE imports
   SET settled_offset = byte_offset,
       settled_sequence = (SELECT s.last_sequence FROM sessions AS s WHERE s.id = imports.session_id);
