"""TODO-docstring"""
