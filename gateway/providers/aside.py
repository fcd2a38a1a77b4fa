"""Small calls to a model beside the conversation: summaries and checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.providers.base import ModelMessage, Provider, Request, Response, Usage
from gateway.providers.completing import complete_within
from gateway.providers.fallback import limited


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """The small calls to one model in one turn."""

    provider: Provider
    model: str | None
    timeout_seconds: float
    book: Callable[[Usage], None]
    """Counts the usage of each call in the budgets and the agent's sums; the run's own sum is the caller's."""

    async def ask(self, prompt: str, *, system: str = "", max_tokens: int) -> Response:
        """Return the model's reply to one message, whole and without tools. It is not retried.

        Raises ProviderError, also after the timeout.
        """
        request = Request(
            system=system,
            messages=(ModelMessage(role="user", content=prompt),),
            model=self.model,
            temperature=0.0,
            max_tokens=max_tokens,
            timeout_seconds=self.timeout_seconds,
        )
        provider, limit_seconds = limited(self.provider, request, None)
        response = await complete_within(limit_seconds, provider, request)
        self.book(response.usage)
        return response
