"""Conversations, which have ids and branches but no byte offsets: what one is, its branches, and how it is stored."""
