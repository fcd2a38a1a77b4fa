"""Simulated people writing to a bot, on a simulated platform accepting every call at once."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from bench.messages import CHATS, messages

__all__ = ["Chats", "platform_of"]

_CHAT = {
    # These characters are the same in JSON, in a form and in multipart.
    "telegram": re.compile(rb"chat_id.{1,200}?\b(10\d{4})\b", re.DOTALL),
    "slack": re.compile(rb"channel.{1,20}?(D\d{8})", re.DOTALL),
}
_SENDS = (b"/sendMessage", b"/chat.postMessage")
_BOT = {"id": 123456, "is_bot": True, "first_name": "Bench", "username": "bench_bot"}
_WITHIN_SECONDS = 60.0
_AGAIN_SECONDS = 0.1


class Chats:
    """The people of a platform."""

    def __init__(self, platform: str, port: int) -> None:
        self.url = ""
        """URL of the platform's API."""
        self.acknowledged: list[float] = []
        """Seconds from each message to the answer of the bot's webhook."""
        self.refused = 0
        """Messages refused by the webhook, counted once per delivery."""
        self._platform, self._port = platform, port
        self._waiting: dict[bytes, asyncio.Future[float]] = {}
        self._sent = itertools.count(1)
        self._messages: dict[int, Iterator[bytes]] = {}
        self._open: list[_Line] = []

    async def talk(
        self, chats: int, turns: int, *, first: int = 0, after_each: Callable[[], object] | None = None
    ) -> list[float]:
        """Have people in `chats` concurrent chats send `turns` messages each, each after the reply to the previous
        message.

        Returns the seconds from each message to the reply. With `after_each`, people wait for each other, and
        `after_each` is called each time all people have another reply.
        """
        lines = [await self._line(first + number) for number in range(chats)]
        try:
            async with asyncio.timeout(_WITHIN_SECONDS + turns * chats * 0.1):
                if after_each is None:
                    return list(itertools.chain(*await asyncio.gather(*(line.talk(turns) for line in lines))))
                seconds: list[float] = []
                for _ in range(turns):
                    seconds += itertools.chain(*await asyncio.gather(*(line.talk(1) for line in lines)))
                    after_each()
                return seconds
        finally:
            for line in lines:
                line.close()

    async def _line(self, chat: int) -> _Line:
        written = self._messages.setdefault(chat, messages(self._platform, self._port, first=chat, step=CHATS))
        name = str(100_000 + chat) if self._platform == "telegram" else f"D{chat:08d}"
        line = _Line(written, name.encode(), self)
        await asyncio.get_running_loop().create_connection(lambda: line, "127.0.0.1", self._port)
        return line

    def called(self, path: bytes, body: bytes) -> object:
        """Return the platform's answer to a call of the bot."""
        if path.endswith(_SENDS):
            found = _CHAT[self._platform].search(body)
            if found is None:
                raise ValueError(f"a message for nobody: {body[:500]!r}")
            waiting = self._waiting.get(found[1])
            if waiting is not None and not waiting.done():
                waiting.set_result(time.perf_counter())
            number = next(self._sent)
            if self._platform == "slack":
                return {"ok": True, "channel": found[1].decode(), "ts": f"1700000000.{number:06d}", "message": {}}
            chat = {"id": int(found[1]), "type": "private", "first_name": "Ana"}
            return _ok({"message_id": number, "date": 1_700_000_000, "chat": chat, "text": "."})
        if self._platform == "slack":
            return {"ok": True, "team_id": "T0TEAM", "user_id": "U0BOT", "bot_id": "B0BOT", "user": "bench"}
        return _ok(_BOT if path.lower().endswith(b"/getme") else True)


@asynccontextmanager
async def platform_of(name: str, bots_port: int) -> AsyncIterator[Chats]:
    """Run a platform for the bot with webhooks on this port."""
    loop = asyncio.get_running_loop()
    chats = Chats(name, bots_port)
    server = await loop.create_server(lambda: _Api(chats.called), "127.0.0.1", 0)
    chats.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield chats
    finally:
        server.close()


def _ok(result: Any) -> dict[str, Any]:
    return {"ok": True, "result": result}


class _Wire(asyncio.Protocol):
    """Connection for reading whole messages with a Content-Length."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:
            head, found, body = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            length = re.search(rb"content-length:\s*(\d+)", head, re.IGNORECASE)
            needed = int(length[1]) if length else 0
            if len(body) < needed:
                return
            self._buffer = body[needed:]
            self.take(head, body[:needed])

    def take(self, head: bytes, body: bytes) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._transport.close()


class _Api(_Wire):
    """The bot's connection to the platform."""

    def __init__(self, called: Callable[[bytes, bytes], object]) -> None:
        super().__init__()
        self._called = called

    def take(self, head: bytes, body: bytes) -> None:
        answer = json.dumps(self._called(head.split(b" ", 2)[1], body)).encode()
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer)
        )


class _Line(_Wire):
    """The platform's connection to the bot's webhook, for a single chat."""

    def __init__(
        self,
        written: Iterator[bytes],
        chat: bytes,
        chats: Chats,
    ) -> None:
        super().__init__()
        self._written, self._chat, self._chats = written, chat, chats
        self._answered: asyncio.Future[bytes]

    async def talk(self, turns: int) -> list[float]:
        loop, seconds = asyncio.get_running_loop(), []
        for _ in range(turns):
            self._answered, reply = loop.create_future(), loop.create_future()
            self._chats._waiting[self._chat] = reply
            began = time.perf_counter()
            message = next(self._written)
            self._transport.write(message)
            while (status := await self._answered) == b"503":  # deliver once more, as every platform does
                self._chats.refused += 1
                await asyncio.sleep(_AGAIN_SECONDS)
                self._answered = loop.create_future()
                self._transport.write(message)
            self._chats.acknowledged.append(time.perf_counter() - began)
            if status != b"200":
                raise ConnectionError(f"the webhook answered {status!r}")
            seconds.append(await reply - began)
        return seconds

    def take(self, head: bytes, body: bytes) -> None:
        if not self._answered.done():
            self._answered.set_result(head[9:12])

    def connection_lost(self, error: Exception | None) -> None:
        waiting = self._chats._waiting.get(self._chat)
        if waiting is not None and not waiting.done():
            waiting.set_exception(ConnectionError(f"the server hung up: {error!r}"))
