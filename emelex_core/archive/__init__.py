"""The whole of a store: export, check, backup and restore (issue 3; behaviours 160, 161, 180)."""
