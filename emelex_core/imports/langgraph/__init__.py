"""LangGraph: its checkpoint store, the values in it, and LangChain's messages."""
