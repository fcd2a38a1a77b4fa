"""FallbackProvider: several providers in order, each with a breaker."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self, TypeAlias

from pydantic import Field

from channels import Json
from gateway.config.environment import environment
from gateway.config.options import checked
from gateway.providers.answer_schema import asking_for
from gateway.providers.base import Completes, KnowsModels, Provider, ProviderError, Request, Response
from gateway.providers.completing import as_provider, complete_within, pieces_of
from gateway.providers.specs import provider_of

log = logging.getLogger("askfirst.providers")

OnSwitch: TypeAlias = Callable[[str, str, ProviderError], Awaitable[None]]
"""A callback for a switch: the failed provider, the next provider, the error."""
_Ask: TypeAlias = Callable[[Provider, Request, float | None], AsyncGenerator[str | Response, None]]


class FallbackProvider:
    """A provider over several others, asked in order until the first answer.

    A retryable error (`ProviderError.retryable`) leads to the next provider, and any other error is raised at once. All
    agents and threads with the object share the breakers.
    """

    name = "fallback"

    @checked
    def __init__(
        self,
        providers: Annotated[Sequence[Annotated[str, Field(min_length=1)] | Completes], Field(min_length=1)],
        *,
        max_failures: Annotated[int, Field(ge=1)] = 3,
        cooldown_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 60.0,
        on_fallback: Callable[[str, str, BaseException], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a chain of providers, or of specs like ``openai:gpt-5-mini``, made at the first call.

        After `max_failures` failures in a row a provider is skipped for `cooldown_seconds`. Then one call probes the
        provider, and a failed probe begins a new cooldown. `on_fallback`, sync or async, gets the name of the failed
        provider, the name of the next provider, and the error. Errors of `on_fallback` are logged. `clock` returns
        seconds. Raises WrongOption, a ValueError, for an empty list or a wrong value.
        """
        self._links = tuple(
            _Link(
                spec=given if isinstance(given, str) else "",
                made=None if isinstance(given, str) else as_provider(given),
                max_failures=max_failures,
                cooldown_seconds=cooldown_seconds,
                clock=clock,
            )
            for given in providers
        )
        self._on_fallback = on_fallback
        self._on_switch: OnSwitch | None = None

    def make(self) -> None:
        """Make the providers of the specs. Blocks: imports packages. Raises ProviderConfigurationError."""
        for link in self._links:
            link.make()

    def telling(self, on_switch: OnSwitch) -> Self:
        """Return this chain, with the same breakers, for one run: it awaits `on_switch` before the next provider."""
        other = copy.copy(self)
        other._on_switch = on_switch
        return other

    async def complete(self, request: Request) -> Response:
        """Return the first whole reply, with the name of the provider in the usage.

        Each provider uses the provider's own model, within the request's `timeout_seconds`. Raises ProviderError: the
        permanent error of a provider, or an error for all providers, with the last error as the cause.
        """
        async with aclosing(self._asked(request, _whole)) as replies:
            return [reply async for reply in replies if isinstance(reply, Response)][-1]

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        """Yield a reply as Provider.stream does. After the first piece an error is raised, without a fallback to
        another provider."""
        async with aclosing(self._asked(request, pieces_of)) as replies:
            async for reply in replies:
                yield reply

    @property
    def identity(self) -> str:
        """The providers of the chain, for the keys of a cache."""
        names = [link.spec or str(getattr(link.made, "identity", link.provider.name)) for link in self._links]
        return f"{self.name} {' '.join(names)}"

    def takes_schema(self, schema: Mapping[str, Json], model: str | None) -> bool:
        """Return True: each provider gets the schema in a fitting form."""
        return True

    async def knows(self, model: str | None = None, *, timeout_seconds: float) -> bool:
        """Look up each provider's own model, as KnowsModels.knows does. True: all servers have the models."""
        await asyncio.to_thread(self.make)
        known: list[bool] = []
        for link in self._links:
            provider = link.provider
            known.append(isinstance(provider, KnowsModels) and await provider.knows(timeout_seconds=timeout_seconds))
        return all(known)

    async def close(self) -> None:
        """Close all providers. An error is raised only after all other providers are closed."""
        closing = [link.made.close() for link in self._links if link.made is not None]
        ended = await asyncio.gather(*closing, return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    async def _asked(self, request: Request, ask: _Ask) -> AsyncGenerator[str | Response, None]:
        """Yield the pieces of the first answering provider."""
        if any(link.made is None for link in self._links):
            await asyncio.to_thread(self.make)
        request = replace(request, model=None)
        errors: list[ProviderError] = []
        failed = ""
        for link in self._links:
            if (is_probe := link.admit()) is None:
                continue
            shown = False
            try:
                if errors:
                    await self._tell(failed, link.provider.name, errors[-1])
                own = request if request.schema is None else asking_for(link.provider, request, request.schema)
                provider, limit_seconds = limited(link.provider, own, self._on_switch)
                async with aclosing(ask(provider, own, limit_seconds)) as replies:
                    async for reply in replies:
                        if isinstance(reply, Response):
                            link.succeeded()
                            yield _served_by(provider, reply)
                            return
                        shown = True
                        yield reply
            except ProviderError as error:
                if error.retryable:
                    link.failed(error, is_probe=is_probe)
                if shown or not error.retryable:
                    raise
                errors.append(error)
                failed = link.provider.name
            finally:
                link.left(is_probe=is_probe)
        raise self._none_answered(errors)

    async def _tell(self, failed: str, following: str, error: ProviderError) -> None:
        if self._on_switch is not None:
            await self._on_switch(failed, following, error)
        if self._on_fallback is not None:
            try:
                if inspect.isawaitable(told := self._on_fallback(failed, following, error)):
                    await told
            except Exception as raised:  # noqa: BLE001 - it must not change the reply
                log.warning("on_fallback of a FallbackProvider raised %s", type(raised).__name__)

    def _none_answered(self, errors: Sequence[ProviderError]) -> ProviderError:
        """Return the error of a call without any answer. `errors`: the errors of the asked providers."""
        if errors:
            text = f"every provider failed or is skipped: {'; '.join(map(str, errors))}"
            cause: ProviderError | None = errors[-1]
            waits = [error.retry_after_seconds for error in errors]
        else:
            names = ", ".join(link.provider.name for link in self._links)
            text = f"every provider is skipped after failures in a row: {names}"
            cause = max(reversed(self._links), key=lambda link: link.failed_at).last
            waits = [link.wait_seconds() for link in self._links]
        known = [wait for wait in waits if wait is not None]
        faults = [error.fault for error in errors if error.fault is not None]
        whole = ProviderError(
            self.name,
            text,
            retryable=True,
            rate_limited=bool(errors) and all(error.rate_limited for error in errors),
            retry_after_seconds=min(known) if len(known) == len(waits) else None,
            fault="; ".join(faults) if faults and len(faults) == len(errors) else None,
        )
        whole.__cause__ = cause
        return whole


def limited(provider: Provider, request: Request, on_switch: OnSwitch | None) -> tuple[Provider, float | None]:
    """Return the provider to ask and the time limit in seconds. A chain has none: it limits each provider."""
    if isinstance(provider, FallbackProvider):
        return (provider if on_switch is None else provider.telling(on_switch)), None
    return provider, request.timeout_seconds


async def _whole(
    provider: Provider, request: Request, limit_seconds: float | None
) -> AsyncGenerator[str | Response, None]:
    yield await complete_within(limit_seconds, provider, request)


def _served_by(provider: Provider, response: Response) -> Response:
    if response.usage.provider:
        return response
    return replace(response, usage=replace(response.usage, provider=provider.name))


@dataclass(slots=True, kw_only=True)
class _Link:
    """One provider of a chain, and the provider's breaker.

    The breaker is closed at first, opens after `max_failures` failures in a row, and is half-open after the cooldown:
    then the breaker admits one call, the probe. A refused request or a cancelled call counts neither as a failure nor
    as a success.
    """

    spec: str
    made: Provider | None
    """The provider; None: not yet made from the spec."""
    max_failures: int
    cooldown_seconds: float
    clock: Callable[[], float]
    failures: int = 0
    failed_at: float = float("-inf")
    last: ProviderError | None = None
    """The last failure."""
    opened_at: float | None = None
    """The time when the breaker opened; None: closed."""
    is_probed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held for no longer than a few assignments, except by `make`."""

    @property
    def provider(self) -> Provider:
        """The provider. Raises RuntimeError before `make`."""
        if self.made is None:
            raise RuntimeError("the provider is not made")
        return self.made

    def make(self) -> None:
        """Make the provider of the spec, unless made already. Raises ProviderConfigurationError."""
        with self.lock:
            if self.made is None:
                self.made = provider_of(self.spec, environment())

    def admit(self) -> bool | None:
        """Return True for a probe, False for a plain call; None: not admitted. `left` follows each admitted call."""
        with self.lock:
            if self.opened_at is None:
                return False
            if self.is_probed or self.clock() < self.opened_at + self.cooldown_seconds:
                return None
            self.is_probed = True
            return True

    def left(self, *, is_probe: bool) -> None:
        if is_probe:
            with self.lock:
                self.is_probed = False

    def succeeded(self) -> None:
        with self.lock:
            self.failures, self.opened_at = 0, None

    def failed(self, error: ProviderError, *, is_probe: bool) -> None:
        with self.lock:
            self.failures += 1
            self.failed_at, self.last = self.clock(), _bare(error)
            if self.failures >= self.max_failures and (is_probe or self.opened_at is None):
                self.opened_at = self.failed_at

    def wait_seconds(self) -> float | None:
        """Return the seconds until a probe is admitted; None during a probe."""
        with self.lock:
            if self.is_probed or self.opened_at is None:
                return None
            return max(0.0, self.opened_at + self.cooldown_seconds - self.clock())


def _bare(error: ProviderError) -> ProviderError:
    """Return a new error with the text and the retry flags. A traceback would hold the conversation."""
    return ProviderError(error.provider, error.code, retryable=error.retryable, rate_limited=error.rate_limited)
