"""The common part of the fake vendors' servers: a script of answers, the requests, and ways to fail."""

from __future__ import annotations

import abc
import asyncio
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

from aiohttp import web


@dataclass(frozen=True)
class Call:
    """A tool call of an answer. Text arguments are sent unchanged, also malformed ones."""

    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True)
class Break:
    """An early end of a stream, after this many events.

    reset: the connection is cut. end: the body ends properly, without the last event. error: an error in place of an
    event. garbage: half an event. silence: no more events, no end.
    """

    after: int
    how: Literal["reset", "end", "error", "garbage", "silence"] = "reset"


@dataclass(frozen=True)
class Say:
    """An answer: text, tool calls, or both, after the thoughts `thinks`. `ends`: the reason, in the vendor's word.

    With `hold` no byte is sent before the event is set; with `holds_after` the stream waits after so many events.
    OpenAI has a `refusal` in place of the text.
    """

    text: str = ""
    calls: Sequence[Call] = ()
    ends: str | None = None
    thinks: str | None = None
    refusal: str | None = None
    hold: asyncio.Event | None = None
    holds_after: int = 0
    breaks: Break | None = None


@dataclass(frozen=True)
class Fail:
    """An error answer in the vendor's shape. `headers` as Retry-After."""

    status: int
    code: str | None = None
    message: str = "The server had an error while processing your request. Sorry about that!"
    type: str | None = None
    param: str | None = None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Raw:
    """An answer of a proxy or another server, in another shape, compressed for a client that takes this."""

    body: str
    content_type: str = "application/json"
    status: int = 200


Answer: TypeAlias = str | Call | Say | Fail | Raw


class ModelServer(abc.ABC):
    """A fake server, used by ``async with``. `url` and `key` are for the vendor's settings.

    A request refused like by the real server goes to `refused` and takes no answer of the script. An accepted request
    goes to `requests` and takes the next answer; if the script had none left, leaving the block raises
    AssertionError. `models`: the known models; None: any. `most_characters`: the longest messages of a request, as
    JSON text; a longer request is refused as too long, and kept in `refused`.
    """

    path: str
    """The path of the calls to a model."""
    history: str = "messages"
    """The field of a request with the messages."""

    def __init__(self, *, key: str, port: int = 0) -> None:
        self.key = key
        self._port = port
        self.url = ""
        self.models: set[str] | None = None
        self.most_characters: int | None = None
        self.requests: list[dict[str, Any]] = []
        self.refused: list[Fail] = []
        self.hung_up = 0
        """The number of clients that left before the end of the answer."""
        self._script: deque[Answer] = deque()
        self._unscripted = 0
        self._changed = asyncio.Condition()
        app = web.Application()
        app.router.add_post(self.path, self._asked)
        app.router.add_get("/v1/models/{model}", self._looked_up)
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
        """Append answers. Each accepted request takes the next answer."""
        self._script.extend(answers)

    async def wait_for(self, requests: int | Callable[[list[dict[str, Any]]], bool]) -> None:
        """Wait for so many accepted requests, or until `requests` returns True for them; see pytest's timeout."""
        reached = requests if callable(requests) else lambda seen: len(seen) >= requests
        async with self._changed:
            await self._changed.wait_for(lambda: reached(self.requests))

    async def wait_for_hang_up(self) -> None:
        """Wait until a client has left before the end of the answer."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.hung_up)

    # ── the differences of the vendors ──

    @abc.abstractmethod
    def refused_headers(self, headers: Mapping[str, str]) -> Fail | None:
        """Return the error of the real server for a request with these headers; None if accepted."""

    @abc.abstractmethod
    def refused_body(self, body: Any) -> Fail | None:
        """Return the error for a body; None if accepted. The body is None if the request is no JSON."""

    @abc.abstractmethod
    def too_long(self, sent: int, taken: int) -> Fail:
        """Return the error for a request of `sent` tokens to a model that takes `taken`."""

    @abc.abstractmethod
    def error(self, fail: Fail) -> dict[str, Any]:
        """The body of an error answer."""

    def stream_error(self, fail: Fail) -> dict[str, Any]:
        """The data of an error in the middle of a stream."""
        return self.error(fail)

    @abc.abstractmethod
    def whole(self, body: Mapping[str, Any], answer: Say, number: int) -> dict[str, Any]:
        """Return the body of an unstreamed answer."""

    @abc.abstractmethod
    def events(self, body: Mapping[str, Any], answer: Say, number: int) -> Iterator[tuple[str | None, str]]:
        """Yield the events of a streamed answer: name and data."""

    # ── the server ──

    def _failed(self, fail: Fail) -> web.Response:
        return web.json_response(self.error(fail), status=fail.status, headers=fail.headers)

    async def _looked_up(self, request: web.Request) -> web.Response:
        if refusal := self.refused_headers(request.headers):
            return self._failed(refusal)
        model = request.match_info["model"]
        if self.models is not None and model not in self.models:
            return self._failed(Fail(404, "model_not_found", message=f"model: {model}"))
        return web.json_response({"id": model, "object": "model", "created": 0, "owned_by": "us"})

    async def _asked(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answered(request)
        except (asyncio.CancelledError, ConnectionResetError):
            async with self._changed:
                self.hung_up += 1
                self._changed.notify_all()
            raise

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
        except ValueError:
            body = None
        if refusal := self.refused_headers(request.headers) or self.refused_body(body):
            self.refused.append(refusal)
            return self._failed(refusal)
        if self.models is not None and body["model"] not in self.models:
            return self._failed(Fail(404, "model_not_found", message=f"model: {body['model']}"))
        length = len(json.dumps(body[self.history]))
        if self.most_characters is not None and length > self.most_characters:
            refusal = self.too_long(length // 4, self.most_characters // 4)
            self.refused.append(refusal)
            return self._failed(refusal)
        answer, number = await self._next(body)
        match answer:
            case None:
                return self._failed(Fail(500, message="The script of this fake is used up."))
            case Fail() as fail:
                return self._failed(fail)
            case Raw() as raw:
                raw_answer = web.Response(text=raw.body, content_type=raw.content_type, status=raw.status)
                raw_answer.enable_compression()
                return raw_answer
            case str() as text:
                answer = Say(text)
            case Call() as call:
                answer = Say(calls=[call])
        if answer.hold and not answer.holds_after:
            await answer.hold.wait()
        if body.get("stream"):
            return await self._streamed(request, answer, list(self.events(body, answer, number)))
        return web.json_response(self.whole(body, answer, number))

    async def _next(self, body: dict[str, Any]) -> tuple[Answer | None, int]:
        """Keep an accepted request. Returns the script's next answer, None at the end, and the request's number."""
        async with self._changed:
            self.requests.append(body)
            number = len(self.requests)
            self._changed.notify_all()
        if self._script:
            return self._script.popleft(), number
        self._unscripted += 1
        return None, number

    async def _streamed(
        self, request: web.Request, answer: Say, events: Sequence[tuple[str | None, str]]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)

        async def send(name: str | None, data: str) -> None:
            begin = f"event: {name}\n" if name else ""
            await response.write(f"{begin}data: {data}\n\n".encode())

        for sent, (name, data) in enumerate(events):
            if answer.hold is not None and sent == answer.holds_after > 0:
                await answer.hold.wait()
            if answer.breaks and sent == answer.breaks.after:
                match answer.breaks.how:
                    case "reset":
                        assert request.transport
                        request.transport.abort()
                        return response
                    case "silence":
                        await asyncio.Event().wait()
                    case "error":
                        overloaded = Fail(529, message="Overloaded", type="overloaded_error")
                        error = json.dumps(self.stream_error(overloaded))
                        await send("error" if name else None, error)
                    case "garbage":
                        await send(name, data[: len(data) // 2])
                break
            await send(name, data)
        await response.write_eof()
        return response


def tokens(text: str) -> int:
    """Count tokens: words, of at most four characters each."""
    return max(len(text.split()), len(text) // 4)


def cut(arguments: str) -> list[str]:
    """Cut arguments into the pieces of a stream: a few characters each, and at most about 200 pieces."""
    each = max(5, len(arguments) // 200)
    return [arguments[at : at + each] for at in range(0, len(arguments), each)]


def pieces(text: str) -> list[str]:
    """Cut a text into the pieces of a stream: words with the blanks around them."""
    return re.findall(r"\s*\S+\s*", text)
