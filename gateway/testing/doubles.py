"""Doubles for the tests of a bot: a clock, an observer, models and a failing store."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, TypeAlias

from channels import Json
from gateway import providers
from gateway.observe.callbacks import event_names
from gateway.observe.events import ObservedEvent
from gateway.observe.observer import AgentObserver, arguments
from gateway.providers import Request, Response
from gateway.store.base import Store
from gateway.store.errors import StoreUnavailable
from gateway.store.types import Key, LogEntry


class FakeClock:
    """The offset of the store's clock, for stamps, deadlines and timers. Leases run on real time."""

    def __init__(self) -> None:
        self.offset_seconds = 0.0
        self._moved: Callable[[float], Awaitable[None]] | None = None

    def attach(self, moved: Callable[[float], Awaitable[None]]) -> None:
        """Call `moved` with the new offset in seconds whenever the clock is moved."""
        self._moved = moved

    async def advance(self, seconds: float) -> None:
        """Move the clock forward; returns when all due timers are worked. Raises ValueError for a negative number."""
        if seconds < 0:
            raise ValueError("time does not go backwards")
        self.offset_seconds += seconds
        if self._moved is not None:
            await self._moved(self.offset_seconds)


class RecordingObserver(AgentObserver):
    """An observer recording every event with a method of AgentObserver.

    ::

        seen = RecordingObserver()
        agent = Agent([delete_invoice], config=AgentConfig(observers=[seen]))
        await agent.run("delete invoice 42")
        assert [said["tool_name"] for name, said in seen.events if name == "tool_start"] == ["delete_invoice"]
    """

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        """The name of each event, without ``on_``, and the arguments of the event's method by name, in order."""

    def wants(self, name: str) -> bool:
        """Return True if the event of this name has a method."""
        return name in event_names()

    def on_event(self, event: ObservedEvent) -> None:
        """Keep an event."""
        self.events.append((event.name, {each: getattr(event, each) for each in arguments(event.name)}))


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool requested by the model."""

    name: str
    args: Mapping[str, Json]


Step: TypeAlias = str | ToolCall | Sequence[ToolCall] | Exception | asyncio.Event


class _AnswersWhole:
    """A provider with whole answers and without resources to close."""

    async def complete(self, request: Request) -> Response:
        """Return the answer."""
        raise NotImplementedError

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        """Yield the answer word by word, then the response. Raises as `complete`."""
        response = await self.complete(request)
        for piece in re.findall(r"\s*\S+\s*|\s+", response.content):
            yield piece
        yield response

    async def close(self) -> None:
        """Close no resource: there is none."""


class ScriptedProvider(_AnswersWhole):
    """A provider with a script: each request takes one step. A request past the end of the script fails.

    A step is the text of an answer, one or several ToolCalls, an exception to raise, or an asyncio.Event. An event
    holds the next step back until the test sets the event. `requests` holds the requests to the model, in order.
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


class LocalProvider(_AnswersWhole):
    """A provider repeating the last message of the person, without a network, a key or usage.

    The answer is ``[local provider: MODEL] TEXT``.
    """

    name = "local"

    async def complete(self, request: Request) -> Response:
        """Return the last message of the person."""
        said = next((each.content for each in reversed(request.messages) if each.role == "user"), "")
        model = request.model or self.name
        return Response(content=f"[local provider: {model}] {said}", model=model)


class LostCall(StoreUnavailable):
    """The call did not reach the store, or the answer did not come back."""


class FaultyStore:
    """Fault proxy of a store: forwards and counts calls, and fails, delays or stops the calls named by a test.

    Pass the proxy to the code under test as the store (``cast("Store", FaultyStore(store))``), and read the real store
    to see the state. Each process of a test gets a separate proxy to the same store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        """Name of a call -> number of uses."""
        self.errors: dict[str, list[BaseException]] = {}
        """Name of a call -> the errors raised by the next uses. These calls do not reach the store."""
        self.hooks: dict[str, Callable[[], object]] = {}
        """Name of a call -> a function to run before the call is forwarded. The name with " answered" appended
        (``"commit answered"``) -> a function to run after the answer; if the function returns an awaitable, the caller
        waits."""
        self.lost_answers: Counter[str] = Counter()
        """Name of a call -> number of next uses that take effect and raise StoreUnavailable."""
        self.calls_left: int | None = None
        """The process "dies" in the last of this many calls. The last and all later calls raise `LostCall`. None:
        never."""
        self.last_answer_lost = False
        """The last of `calls_left` takes effect, and the answer is lost. Otherwise the last call does not reach the
        store."""
        self.recovers = False
        """Only the last of `calls_left` raises `LostCall`. Later calls work."""
        self.pause_after: int | None = None
        """The process stops in the call after this many, until `resume` is set. None: never."""
        self.paused = asyncio.Event()
        """Set when the process has stopped."""
        self.resume = asyncio.Event()
        """Set by the test to let the stopped process continue."""

    @property
    def is_cut(self) -> bool:
        """True once the process has died of `calls_left`."""
        return self.calls_left == 0

    @property
    def offset_seconds(self) -> float:
        return self._store.offset_seconds

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        self._store.offset_seconds = seconds

    @property
    def shared(self) -> bool:
        return self._store.shared

    @property
    def clock_ahead_seconds(self) -> float:
        return self._store.clock_ahead_seconds

    def trust_clock(self) -> None:
        self._store.trust_clock()

    def partition(self, conversation: str) -> str:
        return self._store.partition(conversation)

    @property
    def partitions(self) -> Sequence[str]:
        return self._store.partitions

    def watch(self, log: Key, *, after: int = 0) -> AsyncGenerator[LogEntry, None]:
        self.calls["watch"] += 1
        return self._store.watch(log, after=after)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        call = getattr(self._store, name)

        async def forward(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if name in self.hooks:
                self.hooks[name]()
            await self._pause()
            if self.errors.get(name):
                raise self.errors[name].pop(0)
            if self.calls_left == 0:
                raise LostCall
            last = self.calls_left == 1
            if self.calls_left is not None:
                self.calls_left = None if last and self.recovers else self.calls_left - 1
            if last and not self.last_answer_lost:
                raise LostCall
            answer = await call(*args, **kwargs)
            if (answered := f"{name} answered") in self.hooks and isawaitable(delay := self.hooks[answered]()):
                await delay
            if last:
                raise LostCall
            if self.lost_answers[name]:
                self.lost_answers[name] -= 1
                raise StoreUnavailable("no answer")
            return answer

        return forward

    async def _pause(self) -> None:
        if self.pause_after is None:
            return
        self.pause_after -= 1
        if self.pause_after < 0:
            self.pause_after = None
            self.paused.set()
            await self.resume.wait()
