"""Small calls to a model beside the conversation: summaries and checks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.providers.base import ModelMessage, Provider, ProviderError, Request, Response, Usage
from gateway.providers.completing import complete_within
from gateway.providers.fallback import limited

_CHARACTERS_A_TOKEN: Final = 4


class Reserve(Protocol):
    """Reserves the estimated usage of one call to a model, while the block runs."""

    def __call__(self, estimate: Usage, seconds: float) -> AbstractAsyncContextManager[str | None]:
        """Return the block. The block's value is the name of an exhausted budget, or None if the call may be made.

        The reservation lapses after some seconds.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """The small calls to one model in one turn."""

    provider: Provider
    model: str | None
    timeout_seconds: float
    book: Callable[[Usage], None]
    """Counts the usage of each call in the budgets and the agent's sums; the caller keeps the run's own sum."""
    reserve: Reserve | None = None
    """Reserves the usage of each call in the budgets; None: no budgets."""

    async def ask(self, prompt: str, *, system: str = "", max_tokens: int) -> Response:
        """Return the model's reply to one message, whole, without tools and without retries.

        Raises ProviderError, also after the timeout, and when a budget is exhausted.
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
        estimate = Usage(prompt_tokens=(len(system) + len(prompt)) // _CHARACTERS_A_TOKEN, completion_tokens=max_tokens)
        reserve = nullcontext() if self.reserve is None else self.reserve(estimate, self.timeout_seconds)
        async with reserve as used_up:
            if used_up is not None:
                raise ProviderError(provider.name, f"it is not called: {used_up}", retryable=False)
            response = await complete_within(limit_seconds, provider, request)
            self.book(response.usage)
        return response
