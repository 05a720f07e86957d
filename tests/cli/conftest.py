"""The program, with real Homes."""

from homes import elsewhere, emelex, learn, show, store, talk, transcript, workspace

__all__ = ["elsewhere", "emelex", "learn", "show", "store", "talk", "transcript", "workspace"]
