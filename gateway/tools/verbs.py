"""The verbs that a question may have: a phrase with a verb answers only a question of the same one."""

from __future__ import annotations

__all__ = ["NO_VERBS", "VERBS"]

VERBS = frozenset(
    """approve archive block book buy cancel change close create delete deploy drop keep leave merge move pay publish
    refund reject restore send share skip stop transfer update""".split()  # noqa: SIM905
)
"""The values of `Confirm(verb=)`. Their forms, by language, are in gateway/pending/words."""
NO_VERBS = frozenset({"cancel", "drop", "keep", "leave", "reject", "skip", "stop"})
"""Verbs that are also a way to say no. They refuse no question of their own verb, and its buttons say what they do."""
