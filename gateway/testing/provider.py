"""A model that says what the test wrote down."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from channels import Json
from gateway import providers
from gateway.providers import Request, Response

__all__ = ["ScriptedProvider", "ToolCall"]


@dataclass(frozen=True)
class ToolCall:
    """The model wants a tool run with these arguments."""

    name: str
    args: Mapping[str, Json]


Step: TypeAlias = str | ToolCall | Sequence[ToolCall] | Exception | asyncio.Event


class ScriptedProvider:
    """Takes one step of its script for each call to the model, and fails when the conversation leaves the script.

    A text is said; a ToolCall, or several, is called; an exception is raised; an asyncio.Event holds the next step back
    until the test sets it. `requests` has what the model was asked, in order.
    """

    name = "scripted"

    def __init__(self, script: Sequence[Step]) -> None:
        self.requests: list[Request] = []
        self._script = tuple(script)
        self._next = 0
        self._left: str | None = None
        self._calls = 0

    async def complete(self, request: Request) -> Response:
        """The next step. Raises AssertionError when there is none, or the exception that is the step."""
        self.requests.append(request)
        while True:
            step = self._take(request)
            if not isinstance(step, asyncio.Event):
                break
            await step.wait()
        if isinstance(step, Exception):
            raise step
        if isinstance(step, str):
            return Response(content=step, model=self.name)
        calls = [step] if isinstance(step, ToolCall) else step
        return Response(tool_calls=tuple(self._called(call) for call in calls), model=self.name, finish="tools")

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        """The next step, its text word by word. Raises as `complete`."""
        response = await self.complete(request)
        for piece in re.findall(r"\s*\S+\s*|\s+", response.content):
            yield piece
        yield response

    async def close(self) -> None:
        """There is nothing to close."""

    def assert_followed(self) -> None:
        """Raise AssertionError when the model was asked after the end of the script. ChatDriver calls it."""
        if self._left:
            raise AssertionError(self._left)

    def assert_used_up(self) -> None:
        """Raise AssertionError when steps are left over, or when the model was asked after the end of the script."""
        self.assert_followed()
        if rest := self._script[self._next :]:
            raise AssertionError(f"the model was asked {len(self.requests)} times; never reached: {list(rest)!r}")

    def _take(self, request: Request) -> Step:
        if self._next == len(self._script):
            last = request.messages[-1] if request.messages else None
            asked = f"{last.role}: {last.content!r}" if last else "nothing"
            # Kept as well: what runs the agent may turn an exception into an apology.
            self._left = (
                f"the script of {len(self._script)} steps is used up, and the model was asked again, last {asked}"
            )
            raise AssertionError(self._left)
        self._next += 1
        return self._script[self._next - 1]

    def _called(self, call: ToolCall) -> providers.ToolCall:
        self._calls += 1
        return providers.ToolCall(call_id=f"call_{self._calls}", name=call.name, args=dict(call.args))
