"""Import: other agents' transcripts, read into typed turns and stored as Sessions that hold no tool authority.

`discover` finds transcript files, `transcripts.open_transcript` reads one, and `importer` stores what it yields. Each
agent's grammar has one reader (`claude_code`, `codex`); what they share stands beside them.

Formats that are rewritten whole, or are databases (`gemini`, `openai_chat`, `chatgpt`, `openai_agents`, `langgraph`),
yield conversations instead: `conversations.open_conversations` reads one file, `branching` says which Session a message
belongs to, `playing` makes turns of it, and `conversation_store` stores them.
"""
