"""Import: other agents' transcripts, read into typed turns and stored as Sessions that hold no tool authority.

    discover ── sniff, shapes ──▶ files with their formats
    importer ── transcripts, conversations/readers ──▶ a reader ──▶ storing, conversations/store ──▶ report

Each agent has a room: `claude`, `codex`, `gemini`, `openai`, `chatgpt`, `langgraph`. What their readers share is in
`reading` (turns, parts, media, who speaks) and `files` (lines, documents, databases, each within bounds).

What only grows (`claude`, `codex`) is read on from a byte offset; `storing` holds it against what is stored. What is
rewritten whole, or is a database, yields conversations: `conversations` says which Session a message belongs to, makes
turns of it, and stores them.
"""
