"""Sessions: rows, leases, appended turns, pages and replay."""
