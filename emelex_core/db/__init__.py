"""The database: one file, one connection recipe, two openers of transactions."""
