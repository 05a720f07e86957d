"""Certification: what a model is trusted with, told by a fixed set of trials that code scores."""
