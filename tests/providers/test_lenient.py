"""An unneeded part of a reply fails no answer, and an incomplete answer is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.providers.anthropic.messages import AnthropicAnswer
from gateway.providers.base import ProviderError
from gateway.providers.openai.chat import OpenAIAnswer
from tests.fakes.dialects import Dialect
from tests.fakes.model_server import Raw
from tests.providers.test_compat import ASKED, provider_of, text_of

END = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


def said(**delta: Any) -> dict[str, Any]:
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta}]}


HI: dict[str, list[dict[str, Any]]] = {
    "a list of parts": [said(content=[{"type": "thinking", "text": "hm"}, {"type": "text", "text": "hi"}]), END],
    "a list of texts": [said(content=["h", "i"]), END],
    "a count with a fraction": [said(content="hi"), {**END, "usage": {"prompt_tokens": 1.5, "completion_tokens": 2}}],
    "details that are a list": [said(content="hi"), {**END, "usage": {"prompt_tokens_details": []}}],
    "a usage that is a text": [said(content="hi"), {**END, "usage": "none"}],
    "numbers for ids": [{**said(content="hi"), "id": 7, "model": 3}, END],
    "no choices": [said(content="hi"), {"usage": None}, END],
    "a refusal of another shape": [said(content="hi", refusal={"is": None}), END],
    "thoughts of another shape": [said(content="hi", reasoning_content=[{"text": "hm"}]), END],
}


def test_good_answer_is_not_lost_for_unneeded_parts() -> None:
    lost = {}
    for what, chunks in HI.items():
        answer = OpenAIAnswer()
        pieces = "".join(answer.add(chunk) for chunk in chunks)
        response = answer.response("m", "https://a.server/v1", 0.0)
        if (pieces, response.content, response.finish) != ("hi", "hi", "stop"):
            lost[what] = response
    assert not lost


def test_an_answer_like_anthropics_is_not_lost_either() -> None:
    answer = AnthropicAnswer()
    usage = {"input_tokens": 5.5, "cache_creation": [], "output_tokens": "many"}
    for event in (
        {"type": "message_start", "message": {"id": 7, "model": "m", "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "odd", "data": {"a": 1}, "text": 3}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "hi"}},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "name": "look", "input": "{}"},
        },
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
    ):
        answer.add(event)
    response = answer.response("m", "", "https://a.server", 0.0)
    assert (response.content, response.usage.prompt_tokens, response.usage.completion_tokens) == ("hi", 5, 2)
    (call,) = response.tool_calls
    assert (call.name, call.args, call.parse_error) == ("look", {}, None)


@pytest.mark.parametrize("reason", ["error", "network_error", "abort", "insufficient_system_resource", "timeout"])
def test_an_answer_that_broke_off_is_tried_again(reason: str) -> None:
    answer = OpenAIAnswer()
    answer.add(said(content="half an ans"))
    answer.add({"choices": [{"delta": {}, "finish_reason": reason}]})
    with pytest.raises(ProviderError, match="broke off") as caught:
        answer.response("m", "https://a.server/v1", 0.0)
    assert caught.value.retryable


def test_an_unknown_end_delivers_the_text_and_whole_calls(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        answer = OpenAIAnswer()
        calls = [
            {"index": 0, "id": "c1", "function": {"name": "purge", "arguments": ""}},
            {"index": 1, "id": "c2", "function": {"name": "look", "arguments": '{"at": "INV-1"}'}},
        ]
        answer.add(said(content="hi", tool_calls=calls))
        answer.add({"choices": [{"delta": {}, "finish_reason": "eos_of_the_model"}]})
        response = answer.response("m", "https://a.server/v1", 0.0)
        purge, look = response.tool_calls
        assert response.content == "hi"
        assert purge.parse_error is not None and "no known end" in purge.parse_error
        assert (look.args, look.parse_error) == ({"at": "INV-1"}, None)
    assert len([record for record in caplog.records if "eos_of_the_model" in record.message]) == 1


async def test_a_field_that_cannot_be_read_is_named_without_its_value() -> None:
    chunk = said(tool_calls=[{"index": 0, "id": "c1", "function": "a secret of the person"}])
    async with Dialect("openai") as server:
        server.script([Raw(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", content_type="text/event-stream")])
        provider = provider_of(server)
        with pytest.raises(ProviderError) as caught:
            await text_of(provider, ASKED)
        await provider.close()
    assert "(choices.0.delta.tool_calls.0.function: str)" in caught.value.code
    assert "secret" not in caught.value.code
