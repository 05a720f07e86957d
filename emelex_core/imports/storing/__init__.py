"""The store's side of an import: what is stored already, what is new, and how far a file is read."""
