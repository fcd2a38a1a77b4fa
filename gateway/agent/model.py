"""Calls to the model: streamed or whole, with a timeout, and with retries of retryable errors."""

from __future__ import annotations

import asyncio
import inspect
import json
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Final, TypeAlias

from channels import Json
from gateway.agent.config import AgentConfig
from gateway.observe.events import (
    CacheHit,
    LlmEnd,
    LlmError,
    LlmRetry,
    LlmStart,
    ProviderFallback,
    RunUsage,
)
from gateway.observe.teller import RunTeller
from gateway.providers.base import NO_USAGE, Provider, ProviderError, Request, Response
from gateway.providers.calls import DEEPEST, MOST_CHARACTERS, MOST_VALUES, TOO_DEEP, TOO_LONG, TOO_MANY
from gateway.providers.completing import complete_within, pieces_of
from gateway.providers.fallback import FallbackProvider, limited
from gateway.timing.deadlines import milliseconds_since
from gateway.tools.stopping import Stopping

OnText: TypeAlias = Callable[[str], Awaitable[None] | None]
"""A callback for the arriving pieces of the model's text."""
_LONGEST_RETRY_AFTER_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCaller:
    """A caller of one provider for one turn."""

    provider: Provider
    config: AgentConfig
    stopping: Stopping
    on_text: OnText | None
    on_restart: Callable[[], None] | None
    events: RunTeller
    sleep: Callable[[float], Awaitable[None]]
    jitter: Callable[[], float]
    """A function returning a number from 0 to 1: the share of a tenth added to a wait."""

    async def call(self, request: Request, number: int, record: Callable[[Response], Awaitable[None]]) -> Response:
        """Return the model's whole reply, the `number`-th of the turn, with unique call ids and plain JSON.

        `record` makes the reply durable before the event is emitted. After a part of the text was passed on, a retry
        needs `on_restart`, because the person would read the part twice. A blank reply is requested once more. The same
        fault of two answers in a row is final. Raises ProviderError, Stopped.
        """
        tell, provider = self.events.tell, self.provider.name
        model = request.model or str(getattr(self.provider, "model", ""))
        if isinstance(self.provider, FallbackProvider):
            model = ""  # each of its providers has its own
        attempt, fault, spent = 0, None, NO_USAGE
        while True:
            attempt += 1
            pieces: list[str] = []
            if self.on_restart is not None:
                self.on_restart()
            await tell(
                LlmStart,
                messages=request.messages,
                model=model,
                system_prompt=request.system,
                provider=provider,
                attempt=attempt,
            )
            began = asyncio.get_running_loop().time()
            try:
                response = _plain(_with_ids(await self.stopping.unless_set(self._once(request, pieces)), number))
                if (
                    is_blank(response)
                    and response.finish == "stop"
                    and fault != _BLANK
                    and self._may_retry(attempt, pieces)
                ):
                    await record(response)
                    await tell(RunUsage, usage=response.usage)
                    spent += response.usage
                    raise ProviderError(provider, "the answer is blank", retryable=True, fault=_BLANK)
            except ProviderError as error:
                is_again, fault = error.fault is not None and error.fault == fault, error.fault
                final = is_again or not self._may_retry(attempt, pieces)
                wait = None if final else self._wait(error, attempt)
                await self._tell_failure(error, attempt, model, milliseconds_since(began), wait)
                if final and error.fault is not None and attempt > 1:
                    raise _unusable(error) from None
                if wait is None:
                    raise
                await self.stopping.unless_set(self._sleep(wait))
            else:
                took, usage = milliseconds_since(began), response.usage
                await record(response)  # first: a turn that is cancelled while an observer holds it does not ask again
                who = usage.provider or provider
                await tell(
                    LlmEnd, response=response, usage=usage, provider=who, duration_ms=took, requested_model=model
                )
                await tell(RunUsage, usage=usage)
                return response if spent is NO_USAGE else replace(response, usage=spent + usage)

    async def _tell_failure(
        self, error: ProviderError, attempt: int, model: str, took_ms: float, wait_seconds: float | None
    ) -> None:
        tell, retries = self.events.tell, self._most_retries
        await tell(
            LlmError,
            attempt=attempt,
            error=error,
            model=model,
            provider=self.provider.name,
            duration_ms=took_ms,
            retry_in_seconds=wait_seconds,
        )
        if wait_seconds is not None:
            await tell(LlmRetry, attempt=attempt, max_retries=retries, error=error, backoff_seconds=wait_seconds)

    async def tell_hit(self, request: Request, response: Response) -> None:
        """Emit the events of a reply from the cache."""
        tell, provider = self.events.tell, response.usage.provider or self.provider.name
        model, system = response.model, request.system
        messages = request.messages
        await tell(LlmStart, messages=messages, model=model, system_prompt=system, provider=provider, attempt=1)
        await tell(CacheHit, model=model, response=response)
        await tell(LlmEnd, response=response, usage=response.usage, provider=provider, duration_ms=0.0, from_cache=True)
        await tell(RunUsage, usage=response.usage)

    async def _once(self, request: Request, pieces: list[str]) -> Response:
        provider, limit_seconds = limited(self.provider, request, self._tell_switch)
        if self.on_text is None:
            return await complete_within(limit_seconds, provider, request)
        async with aclosing(pieces_of(provider, request, limit_seconds)) as stream:
            async for piece in stream:
                if isinstance(piece, Response):
                    return piece
                pieces.append(piece)
                if inspect.isawaitable(shown := self.on_text(piece)):
                    await shown
        raise AssertionError("a stream ends with its Response, or by an error")

    async def _tell_switch(self, failed: str, following: str, error: ProviderError) -> None:
        await self.events.tell(ProviderFallback, failed_provider=failed, next_provider=following, error=error)

    def _may_retry(self, attempt: int, pieces: Sequence[str]) -> bool:
        return attempt <= self._most_retries and (not pieces or self.on_restart is not None)

    @property
    def _most_retries(self) -> int:
        """The retries of one call. A fallback chain is retried at most once, since all its providers have failed."""
        most = self.config.max_retries
        return min(most, 1) if isinstance(self.provider, FallbackProvider) else most

    def _wait(self, error: ProviderError, attempt: int) -> float | None:
        """Return the seconds until the next attempt; None if a retry cannot help."""
        if not error.retryable:
            return None
        if error.retry_after_seconds is not None:
            return error.retry_after_seconds if error.retry_after_seconds <= _LONGEST_RETRY_AFTER_SECONDS else None
        cooldown = self.config.rate_limit_cooldown_seconds if error.rate_limited else 0.0
        step = self.config.retry_backoff_seconds + cooldown
        return step * attempt * (1 + self.jitter() / 10)

    async def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            await self.sleep(seconds)


def is_blank(response: Response) -> bool:
    """Return True for a reply with neither a call nor visible text."""
    return response.finish != "refused" and not response.tool_calls and all(map(_is_unseen, response.content))


@lru_cache(256)
def _is_unseen(char: str) -> bool:
    """Return True for blanks, controls, format characters, fillers and marks without a letter."""
    return unicodedata.category(char) in ("Cc", "Cf", "Zs", "Zl", "Zp", "Mn") or char in _FILLERS


def _unusable(error: ProviderError) -> ProviderError:
    """Return the error of a model after a repeated fault in the answers: another call does not help."""
    return ProviderError(error.provider, error.code, retryable=False, refusal="unusable", fault=error.fault)


_FILLERS: Final = "\N{HANGUL FILLER}\N{HALFWIDTH HANGUL FILLER}\N{BRAILLE PATTERN BLANK}"
_BLANK: Final = "blank"
_NO_JSON: Final = "a value that JSON cannot hold, such as NaN"


def _with_ids(response: Response, reply: int) -> Response:
    """Return the reply with unique call ids.

    Some compatible servers leave call ids empty or repeat an id, so results would be ambiguous.
    """
    ids = [call.call_id for call in response.tool_calls]
    if len(set(ids)) == len(ids) and all(ids):
        return response
    calls = [replace(call, call_id=f"call_{reply}_{n}") for n, call in enumerate(response.tool_calls, start=1)]
    return replace(response, tool_calls=tuple(calls))


def _plain(response: Response) -> Response:
    """Return the reply with plain arguments: JSON, of bounded size. A call with other arguments is not made.

    A vendor's parser may accept NaN and infinities, but JSON cannot hold either.
    """
    calls = tuple(
        call if (fault := _fault_of(call.args)) is None else replace(call, args={}, parse_error=fault)
        for call in response.tool_calls
    )
    return response if calls == response.tool_calls else replace(response, tool_calls=calls)


_PLAIN: Final = frozenset({str, int, bool, type(None)})


def _fault_of(args: Mapping[str, Json]) -> str | None:
    """Return the reason to refuse a call with these arguments, or None."""
    if len(args) <= MOST_VALUES and all(type(value) in _PLAIN for value in args.values()):  # most calls, and faster
        size = sum(len(value) for value in args.values() if isinstance(value, str))
        return None if size <= MOST_CHARACTERS else TOO_LONG
    if fault := _shape_fault(args):
        return fault
    try:
        size = len(json.dumps(dict(args), allow_nan=False, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return _NO_JSON
    return None if size <= MOST_CHARACTERS else TOO_LONG


def _shape_fault(args: Mapping[str, Json]) -> str | None:
    """Return the reason to refuse arguments with too many values, or nested too deep."""
    level: list[Any] = [args]
    count = 0
    for _ in range(DEEPEST):
        count += sum(map(len, level))
        if count > MOST_VALUES:
            return TOO_MANY
        values = chain.from_iterable(each.values() if isinstance(each, Mapping) else each for each in level)
        level = [value for value in values if isinstance(value, (Mapping, list, tuple))]
        if not level:
            return None
    return TOO_DEEP
