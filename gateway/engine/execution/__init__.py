"""Execution: the effects of confirmed actions, each at most once."""
