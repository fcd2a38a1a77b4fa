"""One call to a provider: within its time limit, with errors of one type, and whole where it cannot stream."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, Protocol, TypeVar, runtime_checkable

from gateway.providers.base import Completes, Provider, ProviderError, ProviderFault, Request, Response

__all__ = ["as_provider", "pieces_of", "reply_of"]

T = TypeVar("T")


def as_provider(provider: Completes) -> Provider:
    """Return a provider with all methods of the protocol, itself if it has them.

    A missing `stream` yields the whole reply as one piece, a sync `complete` runs in a thread, and a missing `close`
    does nothing.
    """
    if isinstance(provider, Provider) and inspect.iscoroutinefunction(provider.complete):
        return provider
    return _Completed(provider)


class _Completed:
    """A Provider made of one without `stream`, without `close`, or with a sync `complete`."""

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


async def reply_of(provider: Provider, request: Request, limit_seconds: float | None) -> Response:
    """Return the whole reply. Raises ProviderError, also when it takes longer than the limit."""
    return _checked(provider.name, await _within(limit_seconds, provider.name, lambda: provider.complete(request)))


async def pieces_of(
    provider: _Streams, request: Request, limit_seconds: float | None
) -> AsyncGenerator[str | Response, None]:
    """Yield the pieces of a stream that are not empty, and last, always, the whole reply.

    The limit is for each piece. The time that the caller takes between two pieces does not count. Raises ProviderError.
    """

    async def begin() -> AsyncIterator[object]:
        return aiter(provider.stream(request))

    stream, response = await _within(limit_seconds, provider.name, begin), None
    try:
        while (piece := await _within(limit_seconds, provider.name, lambda: anext(stream, _END))) is not _END:
            if not isinstance(piece, str):
                response = piece
            elif piece:
                yield piece
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()
    if response is None:
        raise ProviderError(provider.name, "the stream ended before the answer did", retryable=True)
    yield _checked(provider.name, response)


_END: Final = object()


def _checked(name: str, response: object) -> Response:
    if isinstance(response, Response):
        return response
    raise ProviderFault(name, f"gave a value of type {type(response).__name__} in place of a Response")


async def _within(limit_seconds: float | None, name: str, call: Callable[[], Awaitable[T]]) -> T:
    """Await a call of this provider for at most the limit, and map its errors to ProviderError."""
    scope = asyncio.timeout(limit_seconds)
    try:
        async with scope:
            return await call()
    except (ProviderError, AssertionError):  # a test's provider fails its test by an AssertionError
        raise
    except (ConnectionError, TimeoutError) as error:
        if scope.expired():
            raise ProviderError(name, f"no answer within {limit_seconds:g} s", retryable=True) from None
        raise ProviderError(name, f"not reached: {type(error).__name__}", retryable=True) from error
    except Exception as error:
        raise ProviderFault(name, f"raised {type(error).__name__}, which is no ProviderError") from error
