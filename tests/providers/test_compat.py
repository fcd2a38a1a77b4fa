"""Parameters refused by a compatible server are left out, and no others."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from gateway import Agent, ChannelAgent, Confirm, tool
from gateway.providers import ProviderConfigurationError, ProviderError, make_provider
from gateway.providers.base import ModelMessage, Request, ToolCall, ToolSpec
from gateway.providers.openai.client import OpenAIProvider
from gateway.providers.openai.compat import NAMES, PARAMETERS, refused_in
from gateway.testing import ChatDriver
from tests.fakes.dialects import DIALECTS, Dialect
from tests.fakes.model_server import Call, Fail, Raw, Say

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
LOOK = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {}})
ASKED = Request(
    system="Be kind.",
    messages=(ModelMessage(role="user", content="my max_tokens is unsupported, 'temperature' too"),),
    tools=(LOOK,),
    temperature=0.2,
    max_tokens=50,
)


def provider_of(server: Dialect, **given: Any) -> OpenAIProvider:
    return OpenAIProvider("a-model", api_key=server.key, base_url=server.url, **given)


async def text_of(provider: OpenAIProvider, request: Request = ASKED) -> str:
    items = [item async for item in provider.stream(request)]
    return "".join(item for item in items if isinstance(item, str))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ["stream_options", "temperature", "max_tokens"])
async def test_a_refused_parameter_is_left_out_and_remembered(
    dialect: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Dialect(dialect, name) as server:
        provider = provider_of(server)
        server.script(["hello", "again"])
        assert (await text_of(provider), await text_of(provider)) == ("hello", "again")
        assert len(server.refused) == 1, "the second call knows"
        for sent in server.requests:
            assert {"stream_options", "temperature", "max_tokens", "tools"} - {*sent} == {name}
            assert sent.get("max_completion_tokens") == (50 if name == "max_tokens" else None)
        (line,) = [record.message for record in caplog.records if "does not take" in record.message]
        assert f"does not take {name} for the model a-model" in line and f"OPENAI_COMPAT={name} keeps it so" in line
        assert "my max_tokens" not in line
        await provider.close()


async def test_several_parameters_are_learnt_one_a_try() -> None:
    async with Dialect("vllm", "stream_options", "temperature", "max_tokens") as server:
        server.script(["hello"])
        provider = provider_of(server)
        assert await text_of(provider) == "hello"
        assert [fail.code for fail in server.refused] == ["stream_options", "temperature", "max_tokens"]
        await provider.close()


async def test_a_bound_is_never_left_out() -> None:
    async with Dialect("openai", "max_tokens", "max_completion_tokens") as server:
        provider = provider_of(server)
        with pytest.raises(ProviderError, match="400"):
            await text_of(provider)
        assert len(server.refused) == 3
        await provider.close()


@pytest.mark.parametrize(("name", "kept"), [("strict", True), ("response_format", False)])
async def test_a_schema_becomes_an_instruction_where_it_is_refused(name: str, kept: bool) -> None:
    async with Dialect("azure", name) as server:
        server.script(['{"a": "b"}'])
        provider = provider_of(server, whole_api=True)
        await text_of(provider, Request(messages=ASKED.messages, system="Be kind.", schema=SCHEMA))
        (sent,) = server.requests
        assert ("response_format" in sent) == kept
        system = sent["messages"][0]["content"]
        assert system.startswith("Be kind.") and ('"required"' in system) != kept
        await provider.close()


async def test_parameters_excluded_by_the_operator_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Dialect("groq", "stream_options", "temperature") as server:
        server.script(["hello"])
        environ = {"OPENAI_BASE_URL": server.url, "OPENAI_COMPAT": "stream_options, temperature"}
        provider = make_provider("openai:a-model", environ={**environ, "OPENAI_API_KEY": server.key})
        assert isinstance(provider, OpenAIProvider)
        assert await text_of(provider) == "hello" and server.refused == []
        await provider.close()
    with pytest.raises(ProviderConfigurationError, match=r"OPENAI_COMPAT has 'tools', which is none of stream_options"):
        make_provider("openai:a-model", environ={**environ, "OPENAI_COMPAT": "tools"})


@pytest.mark.parametrize(
    "fail",
    [
        Fail(400, "invalid_value", "Invalid value in messages[0].content: 'my max_tokens is unsupported'"),
        Fail(400, "content_policy", 'The text "temperature is not supported" is not allowed'),
        Fail(400, "invalid_value", "max_tokens is too large: 50. This model takes at most 40", param="max_tokens"),
        Fail(400, None, "messages: at least one message is required"),
    ],
)
async def test_other_refusals_are_not_tried_again(fail: Fail) -> None:
    async with Dialect("openai") as server:
        server.script([fail])
        provider = provider_of(server)
        with pytest.raises(ProviderError, match="400"):
            await text_of(provider)
        assert len(server.requests) == 1
        await provider.close()


@pytest.mark.parametrize(
    "says",
    [
        "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property "
        "'reasoning_content' is unsupported)]",  # Groq: https://github.com/zed-industries/zed/issues/36215
        "Extra inputs are not permitted, field: 'messages[1].reasoning_content'",
    ],
)
async def test_thoughts_that_a_server_refuses_are_left_out(says: str) -> None:
    echo = {"provider": "openai", "model": "a-model", "reasoning_content": "hm"}
    call = ToolCall(call_id="c1", name="look")
    messages = [
        *ASKED.messages,
        ModelMessage(role="assistant", tool_calls=(call,), echo=echo),
        ModelMessage(role="tool", content="42", call_id="c1", tool_name="look"),
    ]
    async with Dialect("openai") as server:
        server.script([Fail(400, None, says), "hello"])
        provider = provider_of(server)
        assert await text_of(provider, Request(messages=messages)) == "hello"
        assert ["reasoning_content" in sent["messages"][1] for sent in server.requests] == [True, False]
        await provider.close()


async def test_a_call_that_the_model_spoiled_is_tried_again() -> None:
    async with Dialect("groq") as server:
        server.script([Fail(400, "tool_use_failed", "Failed to call a function. See 'failed_generation'.")])
        provider = provider_of(server)
        with pytest.raises(ProviderError) as caught:
            await text_of(provider)
        assert caught.value.retryable and caught.value.refusal is None
        await provider.close()


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"message": "invalid temperature: only 1 is allowed for this model"}, "temperature"),
        ({"message": "temperature is not a valid parameter"}, "temperature"),
        ({"message": "Invalid argument: stream_options"}, "stream_options"),
        ({"message": "stream_options cannot be used here"}, "stream_options"),
        ({"message": "temperature may only be set to 1"}, "temperature"),
        ({"message": "max_tokens has been removed, use max_completion_tokens"}, "max_tokens"),
        ({"message": "参数 temperature 不支持"}, "temperature"),
        ({"message": "Jinja Exception: conversation roles must alternate"}, "user_after_tool"),
        ({"message": "reasoning_content is missing in assistant tool call message"}, "no_reasoning"),
        ({"message": "The reasoning_content in the thinking mode must be passed back to the API."}, "no_reasoning"),
        ({"message": "max_tokens above 4096 is not supported", "param": "max_tokens"}, None),
        ({"message": "Unsupported value: 'max_tokens' must be at most 4096"}, None),
        ({"message": "The model does not support image input. max_tokens and temperature are fine."}, None),
        ({"message": "Unknown model x. See the docs for max_tokens and temperature."}, None),
        ({"detail": [{"loc": ["body", "tools", 0, "temperature"], "msg": "extra fields not permitted"}]}, None),
    ],
)  # fmt: skip
def test_refused_parameter_is_read_from_the_refusal(body: Any, name: str | None) -> None:
    assert refused_in(body, {"temperature", "max_tokens", "stream_options"}) == name


async def test_failed_call_of_the_model_leaves_no_parameter_out() -> None:
    async with Dialect("groq") as server:
        text = "tool call validation failed: additionalProperties 'temperature' not allowed"
        server.script([Fail(400, "tool_use_failed", text), "hello"])
        provider = provider_of(server)
        with pytest.raises(ProviderError, match="tool_use_failed"):
            await text_of(provider)
        assert await text_of(provider) == "hello" and "temperature" in server.requests[-1]
        await provider.close()


async def test_a_rule_is_learnt_from_a_template_and_within_a_stream() -> None:
    says = "Jinja Exception: conversation roles must alternate user/assistant/user/assistant/..."
    messages = [
        *ASKED.messages,
        ModelMessage(role="assistant", tool_calls=(ToolCall(call_id="c1", name="look"),)),
        ModelMessage(role="tool", content="asked", call_id="c1", tool_name="look"),
        ModelMessage(role="user", content="and now?"),
    ]
    stream = Raw(f'data: {{"error": {{"message": "{says}"}}}}\n\n', "text/event-stream")
    for refusal in (Fail(500, None, says), stream):
        async with Dialect("openai") as server:
            server.script([refusal, "hello"])
            provider = provider_of(server)
            assert await text_of(provider, Request(messages=messages)) == "hello"
            roles = [[message["role"] for message in sent["messages"]] for sent in server.requests]
            assert roles[-1] == ["user", "assistant", "tool", "assistant", "user"]
            await provider.close()


async def test_a_server_that_wants_thoughts_is_given_some() -> None:
    messages = [
        *ASKED.messages,
        ModelMessage(role="assistant", tool_calls=(ToolCall(call_id="c1", name="look"),)),
        ModelMessage(role="tool", content="42", call_id="c1", tool_name="look"),
    ]
    async with Dialect("openai") as server:
        server.script([Fail(400, None, "reasoning_content is missing in assistant tool call message"), "hello"])
        provider = provider_of(server)
        assert await text_of(provider, Request(messages=messages)) == "hello"
        assert server.requests[-1]["messages"][1]["reasoning_content"]
        await provider.close()


async def test_a_refusal_is_remembered_once_an_answer_came() -> None:
    broken = Raw('data: {"error": {"message": "down"}}\n\n', "text/event-stream")
    async with Dialect("openai", "temperature") as server:
        server.script([broken, "hello", "again"])
        provider = provider_of(server)
        with pytest.raises(ProviderError, match="failed half way"):
            await text_of(provider)
        assert (await text_of(provider), await text_of(provider)) == ("hello", "again")
        assert len(server.refused) == 2
        await provider.close()


def test_a_refusal_of_any_shape_is_read() -> None:
    shapes: list[Any] = [
        None,
        "",
        [],
        {},
        {"error": []},
        {"detail": [None]},
        "[" * 50_000,
        {"message": "{" * 30_000},
        7,
    ]
    assert [refused_in(shape, NAMES) for shape in shapes] == [None] * len(shapes)
    assert {*PARAMETERS} < {*NAMES}


async def test_a_conversation_goes_on_by_mistrals_rules(caplog: pytest.LogCaptureFixture) -> None:
    deleted: list[str] = []

    @tool(confirm=Confirm("Delete {name}?"))
    async def delete(name: str) -> str:
        """Delete."""
        deleted.append(name)
        return f"{name} is deleted."

    caplog.set_level(logging.WARNING)
    async with Dialect("mistral", rules=True) as server:
        provider = provider_of(server)
        server.script([Call("delete", {"name": "one"}), "Of course.", "You are welcome."])
        async with ChatDriver(ChannelAgent(Agent([delete], provider=provider))) as chat:
            await chat.says("ana", "delete one")
            await chat.says("ana", "what is it?")
            assert chat.messages[1].text.startswith("Of course.")
            await chat.presses("ana", "Confirm")
            await chat.says("ana", "thanks")
            assert (deleted, chat.last.text) == (["one"], "You are welcome.")
    (line,) = [record.message for record in caplog.records if "does not take" in record.message]
    assert "user_after_tool, call_ids" in line


async def test_no_thought_reaches_a_person_twice_and_no_call_as_text(caplog: pytest.LogCaptureFixture) -> None:
    async with Dialect("openai") as server:
        provider = provider_of(server)
        server.script(["secret hm</think>one", "secret hm</think>two"])
        assert await text_of(provider) != "one", "its first draft was shown, and is replaced by the answer"
        assert (await text_of(provider)).strip() == "two"
        server.script([Say("secret", ends="length"), "this model does not think", "it is shown as it comes"])
        assert (await text_of(provider), await text_of(provider)) == ("", "this model does not think")
        assert len([item async for item in provider.stream(ASKED)]) > 2
        server.script(["<think>secret</think>`<think>` is a tag"])
        assert (await provider.complete(ASKED)).content == "`<think>` is a tag"
        server.script(['Sure. <tool_call>{"name": "look", "arguments": {}}</tool_call>'])
        response = await provider.complete(ASKED)
        (call,) = response.tool_calls
        assert (response.content, response.finish) == ("Sure.", "tools")
        assert call.parse_error is not None and "stood in the text" in call.parse_error
        await provider.close()
    assert "name it text+openai:a-model" in caplog.text
