"""A call to a model by Chat Completions: an answer of 100 pieces and a call of a tool, from another process.

    python -m bench.contenders.model library|ours URL CALLS

Prints the CPU microseconds of a call. `library` only reads the chunks with the vendor's library. With `serve` in place
of these arguments, runs the server and prints the server's URL.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

import openai
from aiohttp import web
from openai.types.chat import ChatCompletionMessageParam

from gateway.providers import ModelMessage, Request, ToolSpec
from gateway.providers.openai import OpenAIProvider

_TOOL = ToolSpec(name="look_up", description="Look up.", parameters={"type": "object", "properties": {}})


def answer() -> bytes:
    """Return the body of the answer."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas: list[dict[str, object]] = [{"content": f" word {number}"} for number in range(100)]
    first = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": ""}}
    deltas.append({"tool_calls": [{"index": 0, **first}]})
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in ('{"inv', 'oice": ', "7}")]
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n"


async def serve() -> None:
    """Serve the answer until the input ends."""
    body = answer()

    async def complete(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=body, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


async def library(url: str, calls: int) -> float:
    client = openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0)

    async def call() -> None:
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]
        async with await client.chat.completions.create(model="m", messages=messages, stream=True) as chunks:
            async for _ in chunks:
                pass

    return await microseconds(call, calls)


async def ours(url: str, calls: int) -> float:
    provider = OpenAIProvider("m", api_key="k", base_url=url)
    request = Request(messages=[ModelMessage(role="user", content="hello")], tools=[_TOOL])

    async def call() -> None:
        async for _ in provider.stream(request):
            pass

    return await microseconds(call, calls)


async def microseconds(call: Callable[[], Awaitable[None]], calls: int) -> float:
    for _ in range(10):
        await call()
    began = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - began) / calls * 1e6


def main() -> None:
    if sys.argv[1] == "serve":
        asyncio.run(serve())
        return
    contender = {"library": library, "ours": ours}[sys.argv[1]]
    print(asyncio.run(contender(sys.argv[2], int(sys.argv[3]))))


if __name__ == "__main__":
    main()
