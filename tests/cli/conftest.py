"""The program, with real Homes."""

from homes import elsewhere, emelex, learn, store, talk, transcript, workspace

__all__ = ["elsewhere", "emelex", "learn", "store", "talk", "transcript", "workspace"]
