"""The bot of the runs. The record gets the bot's effects and the signals to the bot's own process."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway import Agent, Approvers, ChannelAgent, Confirm, tool
from gateway.providers import ModelMessage, Request, Response, ToolCall
from tests.chaos.record import Record

__all__ = ["make_bot"]

_THINKS_SECONDS = (0.02, 0.15)
_ACTS_SECONDS = (0.0, 0.03)
_LOOKS_SECONDS = 0.02


@dataclass
class Model:
    """Calls the tools named by the messages, then repeats the messages. `gate`: no answer before this file exists."""

    record: Record
    gate: Path | None
    name: str = "chaos"

    async def complete(self, request: Request) -> Response:
        heard = [message.content for message in _of_this_turn(request.messages)]
        self.record.write("asked", texts=heard)
        await asyncio.sleep(random.uniform(*_THINKS_SECONDS))
        while self.gate is not None and not self.gate.exists():
            await asyncio.sleep(_LOOKS_SECONDS)
        if request.messages[-1].role == "tool":
            return Response(content=f"heard {', '.join(heard)}")
        for text in heard:
            self._trouble(text)
        calls = [text.split() for text in heard if text.startswith(("note ", "pay ", "wire "))]
        if not calls:
            return Response(content=f"heard {', '.join(heard)}")
        return Response(
            tool_calls=tuple(ToolCall(call_id=name, name=kind, args={"name": name}) for kind, name in calls),
            finish="tools",
        )

    def stream(self, request: Request) -> AsyncIterator[str | Response]:
        raise NotImplementedError

    async def close(self) -> None:
        """Do no work: no resource is open."""

    def _trouble(self, text: str) -> None:
        kind = text.partition(" ")[0]
        if kind == "killer":
            self.record.write("signal", how="SIGKILL", to=os.getpid(), why=text)
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "poison" or (kind == "flaky" and not self.record.has("trouble", text=text)):
            self.record.write("trouble", text=text)
            raise RuntimeError("a trouble")


def make_bot(record: Record, managers: Sequence[str] = (), gate: Path | None = None) -> ChannelAgent:
    """Return the bot. All `managers` must approve each wire, in their own chats."""

    async def act(what: str) -> str:
        record.write("before", effect=what)
        await asyncio.sleep(random.uniform(*_ACTS_SECONDS))
        record.write("after", effect=what)
        return f"{what} is done"

    @tool
    async def note(name: str) -> str:
        """Write a note."""
        return await act(f"note {name}")

    @tool(confirm="Pay {name}?")
    async def pay(name: str) -> str:
        """Pay something."""
        return await act(f"pay {name}")

    tools = [note, pay]
    if managers:

        @tool(confirm=Confirm("Wire {name}?", approvers=Approvers(people=managers, need=len(managers))))
        async def wire(name: str) -> str:
            """Wire money."""
            return await act(f"wire {name}")

        tools.append(wire)
    return ChannelAgent(Agent(tools, provider=Model(record, gate)))


def _of_this_turn(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the person's messages of this turn: after the last answer without a tool call."""
    number = len(messages)
    while number and messages[number - 1].role in ("tool", "assistant"):
        number -= 1
    end = number
    while number and messages[number - 1].role in ("user", "event"):
        number -= 1
    return [message for message in messages[number:end] if message.role == "user"]
