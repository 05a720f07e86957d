"""The agent: a model, tools and an exact history, turn by turn; and the same on a Session's journal."""
