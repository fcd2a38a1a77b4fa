"""The stand-ins refuse the same requests as the vendors' servers, so that our tests mean something."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.model_server import Call, Fail, ModelServer, Say
from tests.providers.vendors import Vendor

USER = {"role": "user", "content": "hi"}

CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

USED = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
CALLED = {"role": "assistant", "content": [USED]}
GIVEN = {"type": "tool_result", "tool_use_id": "c1", "content": "ok"}
ANSWERED = {"role": "user", "content": [GIVEN]}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def chat(*messages: Any, **fields: Any) -> tuple[str, Any]:
    return "openai", {"model": "m", "messages": list(messages)} | fields


def turns(*messages: Any, **fields: Any) -> tuple[str, Any]:
    return "anthropic", {"model": "m", "max_tokens": 9, "messages": list(messages)} | fields


@pytest.mark.parametrize(
    ("vendor", "body", "says"),
    [
        ("openai", [], "parse the JSON body"),
        ("openai", {"messages": [USER]}, "model parameter"),
        (*chat(), "empty array"),
        (*chat(USER, colour="red"), "Unrecognized request argument supplied: colour"),
        (*chat({"role": "event", "content": "x"}), "messages[0].role"),
        (*chat({"role": "user", "content": None}), "expected a string"),
        (*chat(USER, RESULT), "must be a response to"),
        (*chat(USER, CALLS), "did not have response messages: c1"),
        (*chat(USER, CALLS, USER, RESULT), "did not have response messages: c1"),
        (*chat(USER, CALLS, RESULT, RESULT), "must be a response to"),
        (*chat(USER, tools=[]), "Invalid 'tools'"),
        (*chat(USER, tools=[{"type": "function", "function": {"name": "a b"}}]), "pattern"),
        (*chat(USER, temperature=3.0), "temperature"),
        (*chat(USER, stream_options={"include_usage": True}), "stream_options"),
        (*chat(USER, model="gpt-5-mini", max_tokens=9), "max_tokens"),
        ("anthropic", [], "not valid JSON"),
        ("anthropic", {"model": "m", "messages": [USER]}, "max_tokens: Field required"),
        (*turns(), "at least one message"),
        (*turns(USER, temperature=1.0), "temperature: Extra inputs are not permitted"),
        (*turns(USER, system=" "), "non-whitespace"),
        (*turns({"role": "system", "content": "x"}), "messages.0"),
        (*turns({"role": "user", "content": ""}), "non-whitespace"),
        (*turns(CALLED), "first message"),
        (*turns(USER, CALLED), "messages.1: `tool_use` ids were found without `tool_result`"),
        (*turns(USER, CALLED, USER), "without `tool_result` blocks immediately after: c1"),
        (*turns(USER, CALLED, {"role": "user", "content": [text("so"), GIVEN]}), "without `tool_result`"),
        (*turns(USER, CALLED, {"role": "user", "content": [GIVEN, GIVEN]}), "without `tool_result`"),
        (*turns(ANSWERED), "unexpected `tool_use_id`"),
        (*turns(USER, {"role": "assistant", "content": "The answer is"}), "prefill"),
        (*turns(USER, tools=[{"name": "a b", "input_schema": {"type": "object"}}]), "tools.0.custom.name"),
    ],
    indirect=["vendor"],
)
async def test_fake_server_refuses_an_invalid_request(vendor: Vendor, model: ModelServer, body: Any, says: str) -> None:
    status, answer = await vendor.post(model, body)
    assert status == 400
    assert says in answer["error"]["message"]
    assert (model.requests, len(model.refused)) == ([], 1)


@pytest.mark.parametrize(
    ("vendor", "headers", "status"),
    [
        ("openai", {}, 401),
        ("openai", {"Authorization": "Bearer other"}, 401),
        ("openai", {"Authorization": "Bearer KEY"}, 200),
        ("anthropic", {}, 401),
        ("anthropic", {"x-api-key": "other", "Authorization": "Bearer KEY"}, 401),
        ("anthropic", {"x-api-key": "KEY"}, 400),
        ("anthropic", {"x-api-key": "KEY", "anthropic-version": "2020-01-01"}, 400),
        ("anthropic", {"x-api-key": "KEY", "anthropic-version": "2026-10-21"}, 200),
        ("anthropic", {"Authorization": "Bearer KEY", "anthropic-version": "2026-10-21"}, 200),
    ],
    indirect=["vendor"],
)
async def test_fake_server_refuses_a_wrong_key(vendor: Vendor, headers: dict[str, str], status: int) -> None:
    async with vendor.fake(key="KEY") as model:
        model.script(["ok"])
        body = {"model": "m", "max_tokens": 9, "messages": [USER]}
        assert (await vendor.post(model, body, headers))[0] == status


# ── thoughts: each break of the rule in the vendor's words ──

ASK = {"model": "claude-test", "max_tokens": 9, "messages": [USER]}


def answering(blocks: Any, **fields: Any) -> dict[str, Any]:
    used = next(block["id"] for block in blocks if block["type"] == "tool_use")
    result = {"type": "tool_result", "tool_use_id": used, "content": "ok"}
    messages = [USER, {"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
    return {**ASK, "messages": messages} | fields


@pytest.mark.parametrize("vendor", ["anthropic"], indirect=True)
async def test_fake_server_refuses_a_reply_without_its_thoughts(vendor: Vendor, model: ModelServer) -> None:
    model.script([Say("Well.", [Call("f", {})], thinks="Hm."), "ok", "ok", "ok"])
    blocks = (await vendor.post(model, ASK))[1]["content"]
    thought, said, call = blocks

    async def refusal(body: Any) -> str:
        status, answer = await vendor.post(model, body)
        assert (status, answer.get("error", {}).get("type")) in ((200, None), (400, "invalid_request_error"))
        return str(answer.get("error", {}).get("message", ""))

    assert await refusal(answering(blocks)) == ""
    assert "but found `text`" in await refusal(answering([said, call]))
    assert "but found `tool_use`" in await refusal(answering([call]))
    assert "cannot be modified" in await refusal(answering([thought, thought, said, call]))
    assert "Invalid `signature`" in await refusal(answering([thought | {"thinking": "Ha."}, said, call]))
    assert "Invalid `signature`" in await refusal(answering([thought | {"signature": "forged"}, said, call]))
    assert "Invalid `signature`" in await refusal(answering([thought | {"signature": ""}, said, call]))
    for other in ({"system": "Be brief."}, {"model": "claude-other"}):
        assert "bound to a different conversation" in await refusal(answering(blocks, **other))
        assert await refusal(answering([said, call], **other)) == ""
    ended = {**ASK, "messages": [USER, {"role": "assistant", "content": [thought]}, USER]}
    assert "final block" in await refusal(ended)


@pytest.mark.parametrize("vendor", ["openai"], indirect=True)
async def test_a_compatible_server_wants_its_reasoning_back(vendor: Vendor, model: ModelServer) -> None:
    model.script([Say(calls=[Call("f", {})], thinks="Hm."), "ok"])
    body = {"model": "m", "messages": [USER]}
    reply = (await vendor.post(model, body))[1]["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "ok"}
    without = {name: value for name, value in reply.items() if name != "reasoning_content"}
    status, answer = await vendor.post(model, {**body, "messages": [USER, without, result]})
    assert (status, "must be passed back" in answer["error"]["message"]) == (400, True)
    assert (await vendor.post(model, {**body, "messages": [USER, reply, result]}))[0] == 200


# ── the script ──


def asked(vendor: Vendor) -> dict[str, Any]:
    return {"model": vendor.model, vendor.limit: 90, vendor.history: [USER]}


async def test_leaving_with_unscripted_requests_is_an_error(vendor: Vendor) -> None:
    with pytest.raises(AssertionError, match="1 times more"):
        async with vendor.fake() as model:
            model.script([Fail(503)])
            assert (await vendor.post(model, asked(vendor)))[0] == 503
            assert (await vendor.post(model, asked(vendor)))[0] == 500
