"""Small calls to a model beside the conversation: summaries and checks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.agent.expenses import Expenses
from gateway.observe.usage import UsageMeter
from gateway.providers import Completes, FallbackProvider, Provider, as_provider, make_provider
from gateway.providers.base import NO_USAGE, ModelMessage, Request, Response, Usage
from gateway.providers.completing import reply_of
from gateway.providers.fallback import limited

__all__ = ["Aside", "Book", "SideProviders"]


class SideProviders:
    """The providers of an agent's small calls. Each is made once."""

    def __init__(self, own: Callable[[], Awaitable[Provider]]) -> None:
        self._own = own
        self._made: dict[str | int, Provider] = {}

    async def get(self, provider: str | Completes | None) -> Provider:
        """Return the provider of a spec, or the given provider. None: the agent's own.

        Raises ProviderConfigurationError.
        """
        if provider is None:
            return await self._own()
        key = provider if isinstance(provider, str) else id(provider)
        if key not in self._made:
            # It is made in a thread, because that reads the installed packages.
            self._made.setdefault(key, await asyncio.to_thread(_made, provider))
        return self._made[key]

    def made(self) -> list[Provider]:
        """Return the providers that were made, without the agent's own."""
        return list(self._made.values())


@dataclass(slots=True, kw_only=True)
class Book:
    """The book of the small calls of one run."""

    meter: UsageMeter
    expenses: Expenses | None
    _kept: Usage = NO_USAGE

    def add(self, usage: Usage) -> None:
        """Count a usage in the agent's sums and in the budgets."""
        self.meter.add(usage)
        if self.expenses is not None:
            self.expenses.add(usage)

    def keep(self, usage: Usage) -> None:
        """Count a usage, and keep it for the run's own sum."""
        self.add(usage)
        self._kept += usage

    def take(self) -> Usage:
        """Return the kept usage, once."""
        kept, self._kept = self._kept, NO_USAGE
        return kept


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
        response = await reply_of(provider, request, limit_seconds)
        self.book(response.usage)
        return response


def _made(provider: str | Completes) -> Provider:
    if isinstance(provider, str):
        return make_provider(provider)
    if isinstance(provider, FallbackProvider):
        provider.make()
    return as_provider(provider)
