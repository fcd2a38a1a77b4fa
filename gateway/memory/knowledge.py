"""Knowledge: a model's notes of facts about one person, for all later conversations of the person with the bot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from channels import Json
from gateway.config.options import checked
from gateway.memory.extraction import Positive, one_line

MOST_OF_A_FACT = 500
"""The most characters of one fact."""
_MOST_OF_A_CATEGORY = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedFact:
    """A fact noted by the model, not yet stored."""

    content: str
    category: str = "general"
    persistent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A fact about one person."""

    content: str
    category: str = "general"
    persistent: bool = False
    """True for a fact in every turn; False for a fact of the recent days only."""
    at: datetime


class KnowledgeMemory:
    """A memory of facts about each person, noted by the model with the tool ``remember``. No other person reads them.

    A turn in a person's private chat reads the persistent facts, and the facts of the last `recent_days` days: at most
    `max_context_chars` characters, the newest first. At most `max_entries` facts are kept of a person, the newest.
    Raises WrongOption for a number below 1.
    """

    @checked
    def __init__(
        self, *, recent_days: Positive = 2, max_context_chars: Positive = 5000, max_entries: Positive = 50
    ) -> None:
        self.recent_days, self.max_context_chars, self.max_entries = recent_days, max_context_chars, max_entries
        self.alone: dict[str, Json] = {}
        """Person -> the facts of `Agent.run`, which has no store."""

    def added(self, known: Json, facts: Sequence[NotedFact], at: datetime) -> Json:
        """Return the facts of a person with new facts. A repeated fact becomes the newest."""
        kept = {fact.content: fact for fact in _read(known)}
        for fact in facts:
            content = one_line(fact.content, MOST_OF_A_FACT)
            before = kept.pop(content, None)
            kept[content] = Fact(
                content=content,
                category=one_line(fact.category, _MOST_OF_A_CATEGORY) or "general",
                persistent=fact.persistent or (before is not None and before.persistent),
                at=at,
            )
        value: Json = _adapter().dump_python(list(kept.values())[-self.max_entries :], mode="json")
        return value

    def lines(self, known: Json, now: datetime) -> tuple[list[str], list[str]]:
        """Return the lines of the persistent facts and of the recent facts, the oldest first."""
        left, since = self.max_context_chars, now - timedelta(days=self.recent_days)
        lasting: list[str] = []
        recent: list[str] = []
        for fact in reversed(_read(known)):
            if not fact.persistent and fact.at <= since:
                continue
            line = f"{fact.content} ({fact.category})" if fact.category != "general" else fact.content
            left -= len(line)
            if left < 0:
                break
            (lasting if fact.persistent else recent).insert(0, line)
        return lasting, recent


def _read(known: Json) -> list[Fact]:
    facts: list[Fact] = _adapter().validate_python(known or [])
    return facts


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(list[Fact])
