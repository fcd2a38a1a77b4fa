"""A platform showing a growing text, and a model writing step by step for a test."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from channels import Address, Part, Receipt, Undeliverable
from channels.message_stream import MessageStream
from gateway.providers import ProviderError, Request, Response, ToolCall
from tests.engine.rig import Platform

__all__ = ["Board", "Typist"]


class Board(Platform):
    """A platform with messages that can be changed and removed. `shown`: the visible texts by message id, in order.

    `fails`: the errors raised by the next calls for a growing text; None: the call is made.
    """

    def __init__(self, **capabilities: Any) -> None:
        super().__init__(stream=True, **capabilities)
        self.shown: dict[str, str] = {}
        self.fails: list[Exception | None] = []
        self.changed = asyncio.Event()
        self.hangs: asyncio.Event | None = None
        """The event awaited by each edit."""
        self.hanging = asyncio.Event()
        self.interval_seconds = 0.0

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        if not key:
            self._may_fail()
        receipt = await super().send(address, part, key=key)
        assert receipt.message_id is not None
        self.shown[receipt.message_id] = str(part.arguments["text"])
        self.changed.set()
        return receipt

    async def edit(self, address: Address, message_id: str, part: Part) -> None:
        if self.hangs is not None:
            self.hanging.set()
            await self.hangs.wait()
        self._may_fail()
        if message_id not in self.shown:
            raise Undeliverable("message_not_found")
        self.shown[message_id] = str(part.arguments["text"])
        self.changed.set()

    async def delete(self, address: Address, message_id: str) -> None:
        if self.shown.pop(message_id, None) is None:
            raise Undeliverable("message_not_found")
        self.changed.set()

    async def stream(self, address: Address, *, message_ids: Sequence[str] = ()) -> MessageStream:
        return MessageStream(self, address, interval_seconds=self.interval_seconds, message_ids=message_ids)

    async def until(self, texts: list[str]) -> None:
        """Wait until a person sees exactly these texts."""
        async with asyncio.timeout(60):
            while list(self.shown.values()) != texts:
                self.changed.clear()
                await self.changed.wait()

    def _may_fail(self) -> None:
        if self.fails and (error := self.fails.pop(0)) is not None:
            raise error


Step: TypeAlias = str | Sequence[ToolCall] | ProviderError


class Typist:
    """A model writing the steps given by the test: a piece of text, or the end of the reply.

    A reply ends with ToolCalls, possibly none, or with a ProviderError.
    """

    name = "typist"

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.apart = False
        """True when `to` names the request of a step, by the number from 0."""
        self._steps: defaultdict[int, asyncio.Queue[Step]] = defaultdict(asyncio.Queue)

    def writes(self, *steps: Step, to: int = 0) -> None:
        for step in steps:
            self._steps[to].put_nowait(step)

    async def complete(self, request: Request) -> Response:
        raise AssertionError("an answer that can be shown while it is written is streamed")

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        self.requests.append(request)
        steps = self._steps[len(self.requests) - 1 if self.apart else 0]
        said = Response(model=self.name)
        while isinstance(step := await steps.get(), str):
            said = replace(said, content=said.content + step)
            yield step
        if isinstance(step, ProviderError):
            raise step
        yield replace(said, tool_calls=tuple(step), finish="tools" if step else "stop")

    async def close(self) -> None:
        """Close no resource."""
