"""One agent run without a chat: a model that answers at once, one tool call, then text.

    python -m bench.contenders.agent loop|run|long TURNS

Prints the CPU microseconds of a turn. `loop` is the least: a for-statement around the same model and function. `run` is
`Agent.run`. `long` is a conversation of the bot in memory: it prints the cost of turn 20 and of the last turn.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from channels import AskfirstError
from gateway import Agent, ChannelAgent
from gateway.providers import ModelMessage, Request, Response
from gateway.providers.base import ToolCall, Usage
from gateway.tools import tool

_AROUND = 50
"""Turns measured together, since a turn is as long as a timer interrupt."""
_CALL = Response(
    content="Let me look.",
    tool_calls=(ToolCall(call_id="call_1", name="look_up", args={"invoice": "INV-7"}),),
    usage=Usage(prompt_tokens=100, completion_tokens=20),
    model="instant",
    finish="tools",
)
_ANSWER = Response(content="It is paid.", usage=Usage(prompt_tokens=130, completion_tokens=10), model="instant")


class InstantProvider:
    """A provider: a person's message leads to a tool call, and the tool's result to an answer."""

    name = "instant"

    async def complete(self, request: Request) -> Response:
        return _ANSWER if request.messages[-1].role == "tool" else _CALL

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        yield await self.complete(request)

    async def close(self) -> None: ...


@tool(read_only=True)
async def look_up(invoice: str) -> str:
    """Look an invoice up."""
    return f"{invoice}: paid"


async def bare_loop(message: str) -> str:
    """Answer a message with the same model and tool: the least possible loop."""
    provider, messages = InstantProvider(), [ModelMessage(role="user", content=message)]
    for _ in range(6):
        response = await provider.complete(Request(messages=messages))
        messages.append(response.message)
        if not response.tool_calls:
            return response.content
        for call in response.tool_calls:
            text = await look_up(**call.args)
            messages.append(ModelMessage(role="tool", content=text, call_id=call.call_id, tool_name=call.name))
    raise AskfirstError("the model does not end")


async def microseconds(turn: Callable[[], Awaitable[object]], first: int, turns: int) -> float:
    """Return the mean CPU microseconds of `turns` turns, after `first` unmeasured turns."""
    for _ in range(first):
        await turn()
    began = time.process_time()
    for _ in range(turns):
        await turn()
    return (time.process_time() - began) * 1e6 / turns


async def long(turns: int) -> list[float]:
    """Return the CPU microseconds of a turn around the 20th and around the last of a conversation."""
    async with ChannelAgent(Agent([look_up], provider=InstantProvider())) as bot:

        async def turn() -> object:
            return await bot.ask_channel("ana", "Is INV-7 paid?")

        for _ in range(20):
            await turn()
        early = await microseconds(turn, 0, _AROUND)
        for _ in range(turns - 20 - 2 * _AROUND):
            await turn()
        return [early, await microseconds(turn, 0, _AROUND)]


async def main(contender: str, turns: int) -> None:
    agent = Agent([look_up], provider=InstantProvider())
    match contender:
        case "loop":
            print(await microseconds(lambda: bare_loop("Is INV-7 paid?"), _AROUND, turns))
        case "run":
            print(await microseconds(lambda: agent.run("Is INV-7 paid?"), _AROUND, turns))
        case "long":
            print(*await long(turns))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
