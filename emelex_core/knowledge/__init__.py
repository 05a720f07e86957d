"""Workspace Knowledge: versioned entries, each resting on quoted evidence."""
