"""A guard against long texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gateway.guards.base import GuardrailContext, GuardrailVerdict, checked_stages


class LengthGuardrail:
    """A Guardrail for texts of more than `max_chars` characters. A rewrite cuts them."""

    name = "length"

    def __init__(
        self,
        *,
        max_chars: int,
        stages: Sequence[str] = ("input",),
        action: Literal["warn", "rewrite", "block"] = "block",
    ) -> None:
        """Raises ValueError for a wrong value."""
        if isinstance(max_chars, bool) or not isinstance(max_chars, int) or max_chars < 1:
            raise ValueError(f"LengthGuardrail: max_chars is a positive number, not {max_chars!r}")
        self.stages = checked_stages("LengthGuardrail", stages, action)
        self.max_chars, self.action = max_chars, action

    async def check(self, text: str, context: GuardrailContext) -> GuardrailVerdict:
        if len(text) <= self.max_chars:
            return GuardrailVerdict()
        detail = f"{len(text)} characters, at most {self.max_chars}"
        cut = text[: self.max_chars] if self.action == "rewrite" else None
        return GuardrailVerdict(self.action, text=cut, detail=detail)
