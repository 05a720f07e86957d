"""Media bytes in files named by their digest, beside the database that catalogs them.

    publish ── temporary file, sync ──▶ link ──▶ catalog row ◀── link rows of events (sessions/append.py)
    read    ── catalog row, then the file's owner, mode, size and digest
    collect ── rows that nothing refers to ──▶ their files; files without a row; temporaries that were left behind

The room owns these invariants:

- A catalog row never stands without its file: the row comes after the file, and goes before it.
- Catalog rows, final names and their removal change under the database's write lock only; hashing never holds it, but
  where a file appeared in the instant before.
- A file's name is the SHA-256 of its bytes; nothing is returned as an asset that was not held against it.
"""
