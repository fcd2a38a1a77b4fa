"""The verbs of questions: an answer with a verb counts only for a question with the same verb."""

from __future__ import annotations

__all__ = ["NO_VERBS", "VERBS"]

VERBS = frozenset(
    """approve archive block book buy cancel change close create delete deploy drop keep leave merge move pay publish
    refund reject restore send share skip stop transfer update""".split()  # noqa: SIM905
)
"""The values of `Confirm(verb=)`. Their forms, by language, are in gateway/pending/words."""
NO_VERBS = frozenset({"cancel", "drop", "keep", "leave", "reject", "skip", "stop"})
"""Verbs that are also a way to say no.

They do not refuse a question of their own verb, and the buttons of that question name its effect.
"""
