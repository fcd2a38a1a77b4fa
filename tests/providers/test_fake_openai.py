"""The stand-in for the vendor's server refuses what the real one refuses, so that our tests mean something."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.fakes.openai import Call, Fail, FakeOpenAI, Say

USER = {"role": "user", "content": "hi"}
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture
async def model() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as model:
        yield model


async def posted(model: FakeOpenAI, body: Any, *, key: str | None = None) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {model.key if key is None else key}"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{model.url}/chat/completions", json=body, headers=headers) as response,
    ):
        return response.status, await response.text()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "parse the JSON body"),
        ({"messages": [USER]}, "model parameter"),
        ({"model": "m", "messages": []}, "empty array"),
        ({"model": "m", "messages": [USER], "colour": "red"}, "Unrecognized request argument supplied: colour"),
        ({"model": "m", "messages": [{"role": "event", "content": "x"}]}, "messages[0].role"),
        ({"model": "m", "messages": [{"role": "user", "content": None}]}, "expected a string"),
        ({"model": "m", "messages": [USER, RESULT]}, "must be a response to"),
        ({"model": "m", "messages": [USER, CALLS]}, "did not have response messages: c1"),
        ({"model": "m", "messages": [USER, CALLS, USER, RESULT]}, "did not have response messages: c1"),
        ({"model": "m", "messages": [USER, CALLS, RESULT, RESULT]}, "must be a response to"),
        ({"model": "m", "messages": [USER], "tools": []}, "Invalid 'tools'"),
        ({"model": "m", "messages": [USER], "tools": [{"type": "function", "function": {"name": "a b"}}]}, "pattern"),
        ({"model": "m", "messages": [USER], "stream_options": {"include_usage": True}}, "stream_options"),
        ({"model": "gpt-5-mini", "messages": [USER], "max_tokens": 9}, "max_tokens"),
    ],
)
async def test_it_refuses(model: FakeOpenAI, body: Any, says: str) -> None:
    status, text = await posted(model, body)
    assert status == 400
    assert says in json.loads(text)["error"]["message"]
    assert model.requests == []
    assert len(model.refused) == 1


async def test_it_refuses_another_key(model: FakeOpenAI) -> None:
    status, text = await posted(model, {"model": "m", "messages": [USER]}, key="sk-other")
    assert (status, json.loads(text)["error"]["code"]) == (401, "invalid_api_key")


async def test_it_takes_a_whole_conversation(model: FakeOpenAI) -> None:
    model.script([Say("ok", [Call("f", {"x": 1})])])
    status, text = await posted(model, {"model": "m", "messages": [USER, CALLS, RESULT, USER], "tools": [TOOL]})
    choice = json.loads(text)["choices"][0]
    assert (status, choice["finish_reason"]) == (200, "tool_calls")
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x": 1}'}


async def test_a_stream_ends_with_usage_and_done(model: FakeOpenAI) -> None:
    model.script(["one two"])
    body = {"model": "m", "messages": [USER], "stream": True, "stream_options": {"include_usage": True}}
    *chunks, done = (await posted(model, body))[1].removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    usage = json.loads(chunks[-1].removeprefix("data: "))
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 2)


async def test_an_answer_is_held_until_it_is_released(model: FakeOpenAI) -> None:
    gate = asyncio.Event()
    model.script([Say("at last", hold=gate)])
    answer = asyncio.ensure_future(posted(model, {"model": "m", "messages": [USER]}))
    await model.wait_for(1)
    assert not answer.done()
    gate.set()
    assert "at last" in (await answer)[1]


async def test_leaving_with_unscripted_requests_is_an_error() -> None:
    with pytest.raises(AssertionError, match="1 times more"):
        async with FakeOpenAI() as model:
            model.script([Fail(503)])
            assert (await posted(model, {"model": "m", "messages": [USER]}))[0] == 503
            assert (await posted(model, {"model": "m", "messages": [USER]}))[0] == 500


async def test_unknown_paths_are_404(model: FakeOpenAI) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{model.url}/models") as response:
        assert response.status == 404
