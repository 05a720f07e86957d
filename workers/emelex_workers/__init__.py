"""The executing side: read a job's source, run a model, settle. Composes the floors below."""
