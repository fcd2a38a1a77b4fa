"""The small calls of an agent beside the conversation: providers, and the book of the costs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from gateway.agent.config import AgentConfig
from gateway.observe.usage import UsageMeter
from gateway.providers import Completes, FallbackProvider, Provider, as_provider, make_provider
from gateway.providers.aside import Aside, Reserve
from gateway.providers.base import NO_USAGE, Usage


class Expenses(Protocol):
    """The budgets shared by a run with other runs, and the book of the usage."""

    @property
    def limited(self) -> bool:
        """True if there is a budget."""
        ...

    async def used_up(self) -> str | None:
        """Return the name of an exhausted budget, or None."""
        ...

    def reserved(self, estimate: Usage, seconds: float) -> AbstractAsyncContextManager[str | None]:
        """Return the block of one call to the model. Inside the block the budgets hold the estimated usage of the call.

        The block begins when earlier calls leave room in the budgets. The block's value is the name of an exhausted
        budget, or None if the call may be made. The reservation lapses after some seconds.
        """
        ...

    def add(self, usage: Usage) -> None:
        """Add the usage of a call to the model, to book with the next step or with the end of the turn."""
        ...


class SideProviders:
    """The providers of an agent's small calls. Each is made once."""

    def __init__(self, own: Callable[[], Awaitable[Provider]], meter: UsageMeter) -> None:
        self._own, self._meter = own, meter
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

    async def calls(
        self,
        provider: str | Completes | None,
        model: str | None,
        config: AgentConfig,
        book: Callable[[Usage], None],
        reserve: Reserve | None = None,
    ) -> Aside:
        """Return the small calls to a model. None: the agent's own provider, with the model of `config`.

        `book` is called with the usage of each call. The usage also counts in the sums of the agent. `reserve` holds
        the usage of a call in the budgets. Raises ProviderConfigurationError.
        """

        def add(usage: Usage) -> None:
            self._meter.add(usage)
            book(usage)

        return Aside(
            provider=await self.get(provider),
            model=model or (config.model if provider is None else None),
            timeout_seconds=config.request_timeout_seconds,
            book=add,
            reserve=reserve,
        )

    def made(self) -> list[Provider]:
        """Return the providers made so far, without the agent's own."""
        return list(self._made.values())


@dataclass(slots=True, kw_only=True)
class Book:
    """The book of the small calls of one run."""

    meter: UsageMeter
    expenses: Expenses | None
    _kept: Usage = NO_USAGE

    @property
    def reserve(self) -> Reserve | None:
        """Reserves the usage of a small call in the budgets; None: no budgets."""
        return None if self.expenses is None else self.expenses.reserved

    def add(self, usage: Usage) -> None:
        """Count a usage in the agent's sums and in the budgets."""
        self.meter.add(usage)
        if self.expenses is not None:
            self.expenses.add(usage)

    def keep(self, usage: Usage) -> None:
        """Count a usage, and keep the usage for the run's own sum."""
        self.add(usage)
        self._kept += usage

    def take(self) -> Usage:
        """Return the kept usage, once."""
        kept, self._kept = self._kept, NO_USAGE
        return kept


def _made(provider: str | Completes) -> Provider:
    if isinstance(provider, str):
        return make_provider(provider)
    if isinstance(provider, FallbackProvider):
        provider.make()
    return as_provider(provider)
