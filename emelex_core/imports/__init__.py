"""Import: other agents' transcripts, read into typed turns and stored as Sessions that hold no tool authority.

`discover` finds transcript files, `transcripts.open_transcript` reads one, and `importer` stores what it yields. Each
agent's grammar has one reader (`claude_code`, `codex`); what they share stands beside them.
"""
