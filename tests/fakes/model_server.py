"""What the stand-ins for the vendors' servers have in common: a script of answers, and what was asked."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from aiohttp import web

__all__ = ["Call", "ModelServer", "Raw", "reset"]

Answer = TypeVar("Answer")
Fail = TypeVar("Fail")


@dataclass(frozen=True)
class Call:
    """A tool call of an answer. Arguments given as text are sent as they are: so a test sends malformed ones."""

    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True)
class Raw:
    """What a proxy or another server answers in its own shape."""

    body: str
    content_type: str = "application/json"
    status: int = 200

    def response(self) -> web.Response:
        return web.Response(text=self.body, content_type=self.content_type, status=self.status)


class ModelServer(Generic[Answer, Fail]):
    """``async with`` it: then `url` and `key` are what the vendor's settings take.

    Requests that it refuses as the real one would take nothing of the script and are kept in `refused`. An accepted one
    is kept in `requests` and takes the script's next answer; when there is none left, leaving the block raises
    AssertionError.
    """

    def __init__(
        self, path: str, handler: Callable[[web.Request], Awaitable[web.StreamResponse]], *, key: str, port: int
    ) -> None:
        self.key = key
        self._port = port
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.refused: list[Fail] = []
        self._script: deque[Answer] = deque()
        self._unscripted = 0
        self._changed = asyncio.Condition()
        app = web.Application()
        app.router.add_post(path, handler)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        await self._runner.cleanup()
        if self._unscripted and kind is None:
            raise AssertionError(f"the model was asked {self._unscripted} times more than the script has answers")

    def script(self, answers: Iterable[Answer]) -> None:
        """Append answers; each accepted request takes the next one."""
        self._script.extend(answers)

    async def wait_for(self, requests: int | Callable[[list[dict[str, Any]]], bool]) -> None:
        """Return once so many requests were accepted, or once `requests` says so of them; see pytest's timeout."""
        reached = requests if callable(requests) else lambda seen: len(seen) >= requests
        async with self._changed:
            await self._changed.wait_for(lambda: reached(self.requests))

    async def accepted(self, body: dict[str, Any]) -> Answer | None:
        """Keep an accepted request; gives the script's next answer, None when there is none left."""
        async with self._changed:
            self.requests.append(body)
            self._changed.notify_all()
        if self._script:
            return self._script.popleft()
        self._unscripted += 1
        return None


def reset(request: web.Request) -> None:
    """Cut the connection."""
    assert request.transport
    request.transport.abort()
