"""Models for tests: ScriptedProvider follows the script of a test, and LocalProvider repeats what was said."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from channels import Json
from gateway import providers
from gateway.providers import Request, Response


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that the model asks for."""

    name: str
    args: Mapping[str, Json]


Step: TypeAlias = str | ToolCall | Sequence[ToolCall] | Exception | asyncio.Event


class ScriptedProvider:
    """A provider that takes one step of its script for each request, and fails past the end of the script.

    A step is the text of an answer, one or several ToolCalls, an exception to raise, or an asyncio.Event that holds the
    next step back until the test sets it. `requests` holds the requests to the model, in order.
    """

    name = "scripted"

    def __init__(self, script: Sequence[Step]) -> None:
        self.requests: list[Request] = []
        self._script = tuple(script)
        self._next = 0
        self._left: str | None = None
        self._calls = 0

    async def complete(self, request: Request) -> Response:
        """Return the next step. Raises AssertionError past the end of the script, or the exception of the step."""
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
        """Yield the text of the next step word by word, then the response. Raises as `complete`."""
        response = await self.complete(request)
        for piece in _words(response):
            yield piece
        yield response

    async def close(self) -> None:
        """Close no resource: there is none."""

    def assert_followed(self) -> None:
        """Raise AssertionError if the model was asked past the end of the script. ChatDriver calls this."""
        if self._left:
            raise AssertionError(self._left)

    def assert_used_up(self) -> None:
        """Raise AssertionError if steps are left over, or if the model was asked past the end of the script."""
        self.assert_followed()
        if rest := self._script[self._next :]:
            raise AssertionError(f"the model was asked {len(self.requests)} times; never reached: {list(rest)!r}")

    def _take(self, request: Request) -> Step:
        if self._next == len(self._script):
            last = request.messages[-1] if request.messages else None
            asked = f"{last.role}: {last.content!r}" if last else "nothing"
            # Kept as well: the runner of the agent may turn an exception into an apology.
            self._left = (
                f"the script of {len(self._script)} steps is used up, and the model was asked again, last {asked}"
            )
            raise AssertionError(self._left)
        self._next += 1
        return self._script[self._next - 1]

    def _called(self, call: ToolCall) -> providers.ToolCall:
        self._calls += 1
        return providers.ToolCall(call_id=f"call_{self._calls}", name=call.name, args=dict(call.args))


class LocalProvider:
    """A provider that repeats the last message of the person, without a network, a key or usage.

    Its answer is ``[local provider: MODEL] TEXT``.
    """

    name = "local"

    async def complete(self, request: Request) -> Response:
        """Return the last message of the person."""
        said = next((each.content for each in reversed(request.messages) if each.role == "user"), "")
        model = request.model or self.name
        return Response(content=f"[local provider: {model}] {said}", model=model)

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        """Yield the answer word by word, then the response."""
        response = await self.complete(request)
        for piece in _words(response):
            yield piece
        yield response

    async def close(self) -> None:
        """Close no resource: there is none."""


def _words(response: Response) -> list[str]:
    return re.findall(r"\s*\S+\s*|\s+", response.content)
