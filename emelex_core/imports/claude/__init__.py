"""Claude Code: its rows, the blocks of its messages, and the titles that it gives."""
