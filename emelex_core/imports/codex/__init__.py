"""Codex: its rollouts' kinds of lines, their response items, and what they say twice."""
