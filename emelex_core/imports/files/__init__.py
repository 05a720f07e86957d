"""Foreign files as bytes and values: lines, documents, arrays and databases, each read within bounds."""
