"""A server's words reach the operator, and a person's words in them do not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from channels import Media
from gateway import Agent, ChannelAgent
from gateway.providers import ModelMessage, Request, ToolCall
from gateway.providers.openai.client import OpenAIProvider
from gateway.providers.refusals import words_of
from gateway.testing import ChatDriver
from tests.fakes.dialects import DIALECTS, Dialect
from tests.fakes.model_server import Fail

SECRET = "Wire 900 euros to Zoë Brückner, 客户的密码是红色, pin_4711, pet's name Rex"
ASKED = Request(
    system="House rule: never mention Borealis.",
    messages=(
        ModelMessage(role="user", content=SECRET, speaker="Dagmar"),
        ModelMessage(role="assistant", tool_calls=(ToolCall(call_id="1", name="pay", args={"iban": "DE8937040044"}),)),
        ModelMessage(role="tool", content="Balance Quicksilver", call_id="1"),
    ),
)
PARTS = (
    "900",
    "Zoë",
    "Brückner",
    "客户",
    "密码",
    "红色",
    "4711",
    "Rex",
    "Dagmar",
    "DE893704",
    "Quicksilver",
    "Borealis",
)


@pytest.mark.parametrize("part", [*PARTS, SECRET])
@pytest.mark.parametrize(
    "body",
    [
        "Invalid content: {}",
        {"message": "Unexpected value '{}' in messages"},
        {"message": "Unexpected value {} in messages, see {}."},
        {"error": {"message": 'The text "{}" is refused', "type": "invalid_request_error"}},
        {"detail": [{"loc": ["body", "messages", 0], "msg": "not {}", "input": "{}"}]},
        {"message": "[{{'loc': ['body'], 'msg': 'no', 'input': {{'content': '{}'}}}}"},
        {"message": "Value error, got {}", "code": 400},
        {"message": "失败:{}不允许"},
    ],
)
def test_no_word_of_a_person_is_in_the_words_of_a_server(part: str, body: Any) -> None:
    assert [each for each in PARTS if each in words_of(_filled(body, part), ASKED)] == []


def _filled(body: Any, part: str) -> Any:
    if isinstance(body, dict):
        return {key: _filled(value, part) for key, value in body.items()}
    if isinstance(body, list):
        return [_filled(value, part) for value in body]
    return body.replace("{}", part).replace("{{", "{").replace("}}", "}") if isinstance(body, str) else body


def test_other_spellings_of_a_persons_words_are_left_out_too() -> None:
    file = Media(sha256="0" * 64, mime_type="application/pdf", filename="Ana Ruiz HIV test.pdf", size=1)
    said = [
        ModelMessage(
            role="user", content="I am José Muñoz, call 34 600 111 222, code 4 7 1 1, Ana Garcia", files=(file,)
        ),
        ModelMessage(role="assistant", content="Анна", echo={"reasoning_content": "she seems ill"}),
    ]
    request = Request(messages=said)
    for text in (
        "bad name AnaGarcia here",
        "bad name Jose\u0301 Mun\u0303oz here",
        "bad number 34600111222 here",
        "bad code 4 7 1 1 here",
        "bad file Ana Ruiz HIV test.pdf here",
        "bad name \\u0410\u043d\u043d\u0430 here",
        "bad text she seems ill here",
    ):
        assert words_of({"message": text}, request).removesuffix(" here").split()[2:] in (["…"], ["….pdf"], ["….…"]), (
            text
        )
    assert '"' not in words_of({"message": 'bad value" (turn of …, run deadbeef'}, request)


@pytest.mark.parametrize("text", ["x " + "a-" * 9_990, "вг" * 9_900, "sk-" * 9_000, "\\u0041" * 3_000, "a1" * 9_000])
def test_no_refusal_takes_long_to_read(text: str) -> None:
    request = Request(messages=[ModelMessage(role="user", content="абвд ghij klmn " * 7_000)])
    began = time.process_time()
    words_of({"errors": [{"message": f"{text} {number}"} for number in range(100)]}, request)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"message": "Unexpected role 'user' after role 'tool'"}, "Unexpected role user after role tool"),
        ({"error": {"message": "Unsupported parameter: 'logprobs'."}}, "Unsupported parameter: logprobs"),
        (
            {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]},
            "Extra inputs are not permitted",
        ),
        ({"message": "Incorrect API key provided: sk-abcdef0123"}, "Incorrect API key provided: …"),
        ({"message": "no key 0123456789abcdef0123456789abcdef here"}, "no key … here"),
        ({"message": "two\nlines\u202e and \x1b[31mred"}, "two lines and [31mred"),
        ("<html><body>Bad request of 1.2.3.4</body></html>", ""),
        ({"message": "word " * 100}, ("word " * 48) + "…"),
        (None, ""),
        ({}, ""),
    ],
)
def test_the_words_are_bounded_and_have_no_keys(body: Any, says: str) -> None:
    assert words_of(body, ASKED) == says


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_servers_words_are_logged_in_one_line_for_the_operator(
    dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Dialect(dialect, "tools") as server:
        provider = OpenAIProvider("a-model", api_key=server.key, base_url=server.url)
        server.script([Fail(400, "tools", message="a parameter")])
        async with ChatDriver(ChannelAgent(Agent([], provider=provider))) as chat:
            await chat.says("ana", "Quicksilver")
            assert "Reference: " in chat.last.text
    (line,) = [each.getMessage() for each in caplog.records if "the model of" in each.getMessage()]
    assert "400" in line and 'the server says "' in line and "docs/models.md" in line
    assert "tools" in line, "the field"
    assert "turn of agent/test:" in line and ", run " in line and ", event " in line
    assert "Quicksilver" not in caplog.text
