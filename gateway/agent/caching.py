"""The cache of an agent: replies of the model, and results of cacheable tools."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from channels import Json
from gateway.agent.journal import CallResult
from gateway.cache import Cache, CacheNotReady
from gateway.logs import describe_error
from gateway.providers.base import ModelMessage, Provider, Request, Response, Usage
from gateway.timing.deadlines import Deadline
from gateway.tools import Tool
from gateway.tools.stopping import Stopped, Stopping

log = logging.getLogger(__name__)

CACHE_SECONDS: Final = 2.0
"""The longest wait for a cache, to stay faster than a model."""
_PREFIX: Final = "askfirst:"
_WRONG_VALUE: Final = "it gave a value that it was not given"
_REPLIES: Final = TypeAdapter(Response)

Ask = Callable[[], Awaitable[Response]]


@dataclass(slots=True, kw_only=True)
class Caching:
    """The cache of one agent, with the running calls."""

    cache: Cache
    agent: str
    """The name of the agent: the first part of each key."""
    _under_way: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Future[Response | None]] = field(
        default_factory=dict
    )
    _has_warned: bool = False

    def reply_key(self, provider: Provider, request: Request, person: str) -> str | None:
        """Return the key of a reply: a hash of agent, provider, request and, unless the cache is shared, the person.

        None: not cached, because a value of the request is no JSON of UTF-8 and 64 bits.
        """
        return self._key(
            "reply",
            identity_of(provider),
            request.model,
            request.system,
            [_message(message) for message in request.messages],
            sorted(request.contents),
            [[spec.name, spec.description, spec.parameters] for spec in request.tools],
            request.schema,
            request.temperature,
            request.max_tokens,
            person,
        )

    def tool_key(self, tool: Tool, args: Mapping[str, Json], person: str) -> str | None:
        """Return the key of a tool's result; None as in `reply_key`."""
        return self._key("tool", tool.name, tool.version_hash, args, person)

    def _key(self, *parts: Any) -> str | None:
        *known, person = parts
        owner = None if getattr(self.cache, "shared", False) else person
        try:
            text = orjson.dumps([self.agent, *known, owner], option=orjson.OPT_SORT_KEYS)
        except TypeError:
            return None
        return _PREFIX + hashlib.sha256(text).hexdigest()

    async def reply(
        self, key: str, ask: Ask, stopping: Stopping, is_good: Callable[[Response], bool]
    ) -> tuple[Response, bool]:
        """Return the reply of a key. The flag is True for a reply from the cache or from an equal running call.

        Equal calls at one time ask once. When the asking call fails, each of the others asks for itself; when the
        asking call is cancelled, another call asks for all. `ask` makes the call. Only a whole reply that `is_good` is
        kept. Raises as `ask`, and Stopped.
        """
        if (known := await self._known_reply(key)) is not None:
            return known, True
        place = asyncio.get_running_loop(), key
        while (leader := self._under_way.get(place)) is not None:
            await stopping.unless_set(asyncio.wait([leader]))
            if not leader.cancelled():
                followed = leader.result()
                return (followed, True) if followed is not None else (await ask(), False)
        own: asyncio.Future[Response | None] = place[0].create_future()
        self._under_way[place] = own
        try:
            response = await ask()
            if _is_whole(response) and is_good(response):
                own.set_result(response)
                await self._set(key, asdict(response), None)
            return response, False
        except (asyncio.CancelledError, Stopped):
            own.cancel()
            raise
        finally:
            del self._under_way[place]
            if not own.done():
                own.set_result(None)

    async def result(self, key: str) -> CallResult | None:
        """Return the result of a tool; None if unknown."""
        match await self._get(key):
            case {"text": str(text), "told": str() | None as told}:
                return CallResult(text=text, told=told, cache_key=key)
            case None:
                return None
        self._warn(_WRONG_VALUE)
        return None

    async def keep_result(self, tool: Tool, result: CallResult) -> None:
        """Keep the result of a tool, including the shortened text for the model."""
        if result.cache_key is not None:
            body: dict[str, Json] = {"text": result.text, "told": result.told}
            await self._set(result.cache_key, body, tool.cache_ttl_seconds)

    async def _known_reply(self, key: str) -> Response | None:
        if (found := await self._get(key)) is None:
            return None
        try:
            response = _REPLIES.validate_python(found)
        except ValidationError:
            response = None
        if response is not None and _is_whole(response):
            return response
        self._warn(_WRONG_VALUE)
        return None

    async def _get(self, key: str) -> Json | None:
        try:
            with Deadline(CACHE_SECONDS):
                return await self.cache.get(key)
        except CacheNotReady as error:
            self._warn(str(error))
            return None
        except Exception as error:  # noqa: BLE001 - the model can still be asked
            self._warn(describe_error(error))
            return None

    async def _set(self, key: str, value: Json, ttl_seconds: float | None) -> None:
        try:
            with Deadline(CACHE_SECONDS):
                await self.cache.set(key, value, ttl_seconds)
        except Exception as error:  # noqa: BLE001 - the reply is there
            self._warn(describe_error(error))

    def _warn(self, said: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning("cache of agent %s failed, continuing without it: %s (logged once)", self.agent, said)


def identity_of(provider: Provider) -> str:
    """Return the provider's name with the server and the model, as far as known."""
    return str(getattr(provider, "identity", None) or f"{provider.name} {getattr(provider, 'model', '')}")


def hit(response: Response) -> Response:
    """Return a reply of the cache, with a usage of no tokens and the saved price."""
    paid = response.usage
    return replace(response, usage=Usage(saved_usd=paid.cost_usd, model=paid.model, provider=paid.provider))


def _is_whole(response: Response) -> bool:
    if response.finish not in ("stop", "tools") or any(call.parse_error for call in response.tool_calls):
        return False
    return bool(response.content or response.tool_calls)


def _message(message: ModelMessage) -> Sequence[Any]:
    calls = [[call.call_id, call.name, call.args, call.parse_error] for call in message.tool_calls]
    who = [message.role, message.call_id, message.tool_name, message.speaker]
    return [*who, message.content, [file.sha256 for file in message.files], calls, message.echo]
