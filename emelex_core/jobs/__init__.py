"""Jobs as rows: publishing is `emelex_core.publish`, consuming is the package emelex_queue."""
