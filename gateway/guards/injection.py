"""A guard for texts that read like instructions to the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gateway.guards.base import GuardrailContext, GuardrailVerdict, checked_stages
from gateway.guards.screening import screen_aside


class InjectionGuardrail:
    """A Guardrail for lines that read like instructions to the model (`screen`). A rewrite takes them out."""

    name = "injection"

    def __init__(
        self,
        *,
        stages: Sequence[str] = ("tool_results",),
        action: Literal["warn", "rewrite", "block"] = "rewrite",
    ) -> None:
        """Raises ValueError for a wrong value."""
        self.stages = checked_stages("InjectionGuardrail", stages, action)
        self.action = action

    async def check(self, text: str, context: GuardrailContext) -> GuardrailVerdict:
        screened = await screen_aside(text)
        if not screened.kinds:
            return GuardrailVerdict()
        rewritten = screened.text if self.action == "rewrite" else None
        return GuardrailVerdict(self.action, text=rewritten, detail=", ".join(screened.kinds))
