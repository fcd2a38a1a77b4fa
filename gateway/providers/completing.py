"""One call to a provider: within the time limit, with errors of one type, and whole for a provider without streams."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Final, Protocol, runtime_checkable

from gateway.providers.base import Completes, Provider, ProviderError, ProviderFault, Request, Response, Usage
from gateway.timing.deadlines import Deadline

log = logging.getLogger(__name__)

_MOST_TOKENS: Final = 10**9
_MOST_USD: Final = 10_000.0
"""The highest countable cost of one call: far above the cost of any model, with sums within the store's integers."""
_TOKENS: Final = ("prompt_tokens", "completion_tokens", "cached_prompt_tokens", "cache_write_tokens")


def as_provider(provider: Completes) -> Provider:
    """Return a provider with all methods of the protocol, unchanged if already complete.

    A missing `stream` yields the whole reply as one piece, a sync `complete` runs in a thread, and a missing `close`
    does nothing.
    """
    if isinstance(provider, Provider) and inspect.iscoroutinefunction(provider.complete):
        return provider
    return _Completed(provider)


class _Completed:
    """A Provider made of a provider without `stream`, without `close`, or with a sync `complete`."""

    def __init__(self, provider: Completes) -> None:
        self.name = provider.name
        self._provider = provider

    async def complete(self, request: Request) -> Response:
        complete = self._provider.complete
        is_async = inspect.iscoroutinefunction(complete)
        reply = complete(request) if is_async else await asyncio.to_thread(complete, request)
        return await reply if isinstance(reply, Awaitable) else reply

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        if isinstance(self._provider, _Streams):
            async with aclosing(pieces_of(self._provider, request, None)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        response = await self.complete(request)
        if response.content:
            yield response.content
        yield response

    async def close(self) -> None:
        close = getattr(self._provider, "close", None)
        if close is not None and inspect.isawaitable(closed := close()):
            await closed


@runtime_checkable
class _Streams(Protocol):
    name: str

    def stream(self, request: Request) -> AsyncIterator[str | Response]: ...


async def complete_within(limit_seconds: float | None, provider: Provider, request: Request) -> Response:
    """Return the whole reply. Raises ProviderError, also after the limit."""
    with _bounded(limit_seconds, provider.name):
        response = await provider.complete(request)
    return _checked(provider.name, response)


async def pieces_of(
    provider: _Streams, request: Request, limit_seconds: float | None
) -> AsyncGenerator[str | Response, None]:
    """Yield the non-empty pieces of a stream, and last, always, the whole reply.

    If `stream` raises NotImplementedError at the beginning, the whole reply is yielded as one piece. The limit is for
    each piece. The caller's time between two pieces does not count. Raises ProviderError.
    """

    stream, response = None, None
    begun = False
    try:
        with _bounded(limit_seconds, provider.name):
            stream = aiter(provider.stream(request))
        while True:
            with _bounded(limit_seconds, provider.name):
                piece: object = await anext(stream, _END)
            if piece is _END:
                break
            begun = True
            if not isinstance(piece, str):
                response = piece
            elif piece:
                yield piece
    except ProviderFault as fault:
        if begun or not (isinstance(fault.__cause__, NotImplementedError) and isinstance(provider, Provider)):
            raise
        response = await complete_within(limit_seconds, provider, request)
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
    if response is None:
        raise ProviderError(provider.name, "the stream ended before the answer did", retryable=True)
    response = _checked(provider.name, response)
    if not begun and response.content:
        yield response.content
    yield response


_END: Final = object()


def _checked(name: str, response: object) -> Response:
    if not isinstance(response, Response):
        raise ProviderFault(name, f"gave a value of type {type(response).__name__} in place of a Response")
    if _is_possible(response.usage):
        return response
    log.warning("provider %s gave a usage that cannot be: wrong tokens count 0, and a wrong cost is unknown", name)
    return replace(response, usage=_possible(response.usage))


def _is_possible(usage: object) -> bool:
    """Return False for a usage with negative, endless or otherwise wrong numbers, unfit for sums in a store."""
    if not isinstance(usage, Usage):
        return False
    tokens = (usage.prompt_tokens, usage.completion_tokens, usage.cached_prompt_tokens, usage.cache_write_tokens)
    prices = (usage.cost_usd, usage.known_usd, usage.saved_usd)
    return (
        all(map(_is_count, (*tokens, usage.unpriced_calls, usage.unpriced_tokens)))
        and usage.known_usd is not None
        and all(price is None or _is_price(price) for price in prices)
    )


def _possible(usage: object) -> Usage:
    """Return only the valid counts of this usage. A server's wrong counts must not cost the answer."""
    if not isinstance(usage, Usage):
        return Usage()
    tokens = {name: count for name in _TOKENS if _is_count(count := getattr(usage, name))}
    cost, saved = (each if _is_price(each) else None for each in (usage.cost_usd, usage.saved_usd))
    return Usage(**tokens, cost_usd=cost, saved_usd=saved, model=usage.model, provider=usage.provider)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= _MOST_TOKENS


def _is_price(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= _MOST_USD  # no NaN is


@contextmanager
def _bounded(limit_seconds: float | None, name: str) -> Iterator[None]:
    """Bound a call of this provider by the limit, and map all errors to ProviderError."""
    limit = Deadline(limit_seconds)
    try:
        with limit:
            yield
    except (ProviderError, AssertionError):  # a test's provider fails its test by an AssertionError
        raise
    except (ConnectionError, TimeoutError) as error:
        if limit.expired:
            raise ProviderError(name, f"no answer within {limit_seconds:g} s", retryable=True) from None
        raise ProviderError(name, f"not reached: {type(error).__name__}", retryable=True) from error
    except Exception as error:
        raise ProviderFault(name, f"raised {type(error).__name__}, which is no ProviderError") from error
