"""A model playing the test's script, and the surroundings for driving an agent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from channels import Json
from gateway.agent import Ask, Asked, LoopOutcome, LoopPorts, Verdict
from gateway.agent.aside import SideProviders
from gateway.agent.caching import Caching
from gateway.agent.config import AgentConfig
from gateway.agent.loop import run_loop
from gateway.agent.spec import AgentSpec
from gateway.observe.teller import RunTeller, Teller, begin_run
from gateway.observe.usage import UsageMeter
from gateway.providers import ModelMessage, ProviderError, Request, Response, ToolCall, ToolSpec, Usage
from gateway.tools import PendingConfirmation, Tool, ToolContext, ToolPolicy
from gateway.tools.pending_action import PendingAction
from gateway.tools.stopping import Stopping
from tests.told import Told

ASKED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def call(name: str, call_id: str | None = None, /, **args: Json) -> ToolCall:
    return ToolCall(call_id=call_id or f"id-{name}", name=name, args=args)


def calls(*made: ToolCall, content: str = "") -> Response:
    numbered = [
        ToolCall(call_id=f"id-{n}", name=c.name, args=c.args, parse_error=c.parse_error) for n, c in enumerate(made)
    ]
    return Response(content=content, tool_calls=tuple(numbered), finish="tools", usage=Usage(prompt_tokens=10))


@dataclass
class Script:
    """A Provider with a step for each call: a text, a call, a Response, an error, or pieces of a stream."""

    steps: list[str | ToolCall | Response | ProviderError | list[str | ProviderError]]
    name: str = "script"
    requests: list[Request] = field(default_factory=list)

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        match self.steps.pop(0):
            case ProviderError() as error:
                raise error
            case str() as text:
                return Response(content=text, usage=Usage(prompt_tokens=10, completion_tokens=5))
            case ToolCall() as one:
                return calls(one)
            case Response() as response:
                return response
            case pieces:
                raise AssertionError(f"{pieces} can only be streamed")

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        if not isinstance(pieces := self.steps[0], list):
            yield await self.complete(request)
            return
        self.requests.append(request)
        self.steps.pop(0)
        for piece in pieces:
            if isinstance(piece, ProviderError):
                raise piece
            yield piece
        yield Response(content="".join(map(str, pieces)))

    async def close(self) -> None: ...


class Notebook:
    """A Journal in memory: the steps pass through JSON, as in a store."""

    def __init__(self, steps: Sequence[Json] = ()) -> None:
        self.lines = [json.dumps(step) for step in steps]

    @property
    def steps(self) -> Sequence[Json]:
        return [json.loads(line) for line in self.lines]

    async def record(self, step: Json) -> None:
        self.lines.append(json.dumps(step))

    def kinds(self) -> list[str]:
        return [next(iter(step)) for step in self.steps if isinstance(step, dict)]


@dataclass
class Person:
    verdict: Verdict | None = None
    asked: list[list[Ask]] = field(default_factory=list)

    async def __call__(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        self.asked.append(list(asks))
        return [self.verdict if self.verdict is not None else self._ask(ask) for ask in asks]

    def _ask(self, ask: Ask) -> Asked:
        told = PendingConfirmation(
            action=f"action-{ask.call.call_id}", preview=ask.preview.text, user_prompt=f"{ask.preview.text} OK or NO?"
        )
        action = PendingAction(
            pending_action_id=told.action,
            kind=ask.tool.name,
            args=dict(ask.args),
            preview=told.preview,
            requester="app:-:-",
            conversation="test",
            requested_at=ASKED_AT,
        )
        return Asked(confirmation=told, action=action)


@dataclass
class Turn:
    provider: Script
    tools: Sequence[Tool]
    config: AgentConfig = field(default_factory=AgentConfig)
    policy: ToolPolicy | None = None
    person: Person = field(default_factory=Person)
    journal: Notebook = field(default_factory=Notebook)
    stopping: Stopping = field(default_factory=Stopping)
    told: Told = field(default_factory=Told)
    """The events of the turn."""
    waits: list[float] = field(default_factory=list)

    async def run(self, text: str = "hello", *, system: str = "", **ports: Any) -> LoopOutcome:
        return await run_loop(
            AgentSpec(
                tools={tool.name: tool for tool in self.tools},
                specs=[ToolSpec(**tool.schema()) for tool in self.tools],
                config=self.config,
                policy=self.policy,
                sides=SideProviders(self._own_provider, UsageMeter()),
                caching=None if self.config.cache is None else Caching(cache=self.config.cache, agent="agent"),
            ),
            [ModelMessage(role="user", content=text)],
            provider=self.provider,
            context=ToolContext(
                person="telegram:1:2", conversation="c", idempotency_key="turn", stopping=self.stopping
            ),
            on_confirm=self.person,
            system=system,
            ports=LoopPorts(
                **{
                    "journal": self.journal,
                    "events": self._events(),
                    "sleep": self._sleep,
                    "jitter": lambda: 0.0,
                    **ports,
                }
            ),
        )

    async def _own_provider(self) -> Script:
        return self.provider

    def _events(self) -> RunTeller:
        return begin_run(Teller(readers=[self.told]), clock=lambda: datetime.now(UTC))

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


def told(outcome: LoopOutcome) -> list[str]:
    return [message.content for message in outcome.messages if message.role == "tool"]
