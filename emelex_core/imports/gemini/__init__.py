"""Gemini CLI: its recordings, and their messages."""
