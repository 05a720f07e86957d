"""Media bytes in files named by their digest, beside the database that catalogs them."""
