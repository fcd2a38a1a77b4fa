"""The scripted provider of the test kit."""

from __future__ import annotations

import asyncio

import pytest

from gateway import Agent, AgentConfig, StreamChunk
from gateway.providers import ModelMessage, ProviderError, Request, Response
from gateway.testing.provider import LocalProvider, ScriptedProvider, ToolCall


def asks(text: str) -> Request:
    return Request(messages=[ModelMessage(role="user", content=text)])


async def test_it_says_calls_and_raises_what_was_written() -> None:
    script = ScriptedProvider(
        [
            "Hello, Ana.",
            ToolCall("find", {"name": "x"}),
            [ToolCall("find", {}), ToolCall("find", {})],
            ProviderError("scripted", "down", retryable=True),
        ]
    )
    assert await script.complete(asks("hi")) == Response(content="Hello, Ana.", model="scripted")
    found = await script.complete(asks("find x"))
    assert found.finish == "tools"
    assert [(call.name, call.args) for call in found.tool_calls] == [("find", {"name": "x"})]
    both = await script.complete(asks("twice"))
    assert len({call.call_id for call in (*found.tool_calls, *both.tool_calls)}) == 3
    with pytest.raises(ProviderError):
        await script.complete(asks("again"))
    script.assert_used_up()
    assert [request.messages[0].content for request in script.requests] == ["hi", "find x", "twice", "again"]


async def test_a_stream_has_the_text_in_pieces_and_the_response_last() -> None:
    *pieces, last = [item async for item in ScriptedProvider(["One\n two three."]).stream(asks("hi"))]
    assert pieces == ["One\n ", "two ", "three."]
    assert isinstance(last, Response)


async def test_leaving_the_script_is_loud_and_kept() -> None:
    script = ScriptedProvider(["only this"])
    await script.complete(asks("one"))
    with pytest.raises(AssertionError, match=r"script of 1 steps is used up.*user: 'two'"):
        await script.complete(asks("two"))
    with pytest.raises(AssertionError, match="user: 'two'"):
        script.assert_used_up()


async def test_what_was_never_reached_is_named() -> None:
    with pytest.raises(AssertionError, match=r"never reached: .*only this"):
        ScriptedProvider(["only this"]).assert_used_up()


async def test_an_event_holds_the_next_step_back() -> None:
    gate = asyncio.Event()
    script = ScriptedProvider([gate, "late"])
    answer = asyncio.ensure_future(script.complete(asks("hi")))
    while not script.requests:
        await asyncio.sleep(0)
    assert not answer.done()
    gate.set()
    assert (await answer).content == "late"


@pytest.mark.ledger("TEST-01", "TEST-02")
async def test_local_provider_repeats_the_last_message_without_usage() -> None:
    agent = Agent(provider=LocalProvider(), config=AgentConfig(max_iterations=2, model="local"))
    result = await agent.run("Hello")
    assert (result.content, result.usage.total_tokens) == ("[local provider: local] Hello", 0)
    chunks = [each async for each in agent.stream("Hello, Ana")]
    assert (
        "".join(each.text for each in chunks if isinstance(each, StreamChunk)) == "[local provider: local] Hello, Ana"
    )
