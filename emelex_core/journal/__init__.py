"""Turns under way: what is known of each step while it is taken, and how an interrupted one is closed (ADR 0017)."""
