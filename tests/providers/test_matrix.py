"""Each kind of transcript in the form of each server: no server refuses it, also after a change of the vendor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.providers import ModelMessage, Request, ToolCall
from tests.fakes.model_server import Call, Say
from tests.fakes.shapes import SECRET
from tests.providers.checkers import refusals
from tests.providers.vendors import VENDORS, Vendor, history, user

ECHOES: dict[str, dict[str, Any]] = {
    "none": {},
    "another server's": {"provider": "openai", "model": "m", "reasoning_content": SECRET},
    "the Responses API's": {
        "provider": "openai",
        "model": "m",
        "items": [
            {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e"},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        ],
    },
    "Anthropic's": {
        "provider": "anthropic",
        "model": "m",
        "prefix": "p",
        "blocks": [{"type": "thinking", "thinking": SECRET, "signature": "s"}],
    },
}


def said(text: str) -> ModelMessage:
    return ModelMessage(role="assistant", content=text)


def called(*ids: str, text: str = "", echo: dict[str, Any] | None = None, **more: Any) -> ModelMessage:
    calls = tuple(ToolCall(call_id=id_, name="look", **more) for id_ in ids)
    return ModelMessage(role="assistant", content=text, tool_calls=calls, echo=echo or None)


def result(id_: str, text: str = "42") -> ModelMessage:
    return ModelMessage(role="tool", content=text, call_id=id_, tool_name="look")


def event(text: str = "Ana confirmed") -> ModelMessage:
    return ModelMessage(role="event", content=text)


TRANSCRIPTS: dict[str, Sequence[ModelMessage]] = {
    "one message": [user("hi")],
    "several messages at once": [user("hi"), user("are you there?"), user("hello?")],
    "an event alone": [event()],
    "an event first": [event(), user("hi")],
    "an event behind an answer": [user("hi"), said("hello"), event(), event("expired")],
    "an event behind a message": [user("hi"), event()],
    "the model speaks first": [said("Good morning."), user("hi")],
    "the model speaks twice": [user("hi"), said("one"), said("two"), user("hm")],
    "the model says nothing": [user("hi"), said(""), user("hm")],
    "a call": [user("hi"), called("c1"), result("c1")],
    "a call with words": [user("hi"), called("c1", text="Let me look."), result("c1"), said("42"), user("thanks")],
    "a question": [user("hi"), called("c1"), result("c1", "asked"), user("yes")],
    "a question and an event": [user("hi"), called("c1"), result("c1", "asked"), event(), user("thanks")],
    "a question that nobody answered": [user("hi"), called("c1"), result("c1", "asked"), event("expired"), event()],
    "two questions in a row": [
        user("hi"), called("c1"), result("c1"), user("and that"), called("c2"), result("c2"), user("yes"),
    ],
    "several calls": [user("hi"), called("c1", "c2", "c3"), result("c3"), result("c1"), result("c2"), user("ok")],
    "calls after calls": [user("hi"), called("c1"), result("c1"), called("c2"), result("c2"), said("ok"), user("so")],
    "ids twice": [user("hi"), called("c", "c"), result("c"), result("c", "43"), called("c"), result("c"), user("ok")],
    "no ids": [user("hi"), called("", ""), result(""), result(""), user("ok")],
    "long and odd ids": [user("hi"), called("x" * 90, "a b/ü"), result("x" * 90), result("a b/ü"), user("ok")],
    "a lost result": [user("hi"), called("c1", "c2"), result("c1"), user("ok")],
    "a result without a call": [user("hi"), result("gone"), user("ok")],
    "a call that cannot be read": [user("hi"), called("c1", parse_error="not valid JSON"), result("c1"), user("ok")],
    "an empty result": [user("hi"), called("c1"), result("c1", ""), user("ok")],
    "blanks": [user(" "), said(" "), user("\n")],
    "halves of a character": [user("\ud83d"), called("c1", text="\ude00"), result("c1", "\ud83d"), user("ok")],
    "cut in the middle": [result("c1"), said("42"), user("ok")],
    "a name that is none": [
        user("hi"),
        ModelMessage(role="assistant", tool_calls=(ToolCall(call_id="c1", name="look at/that " * 9),)),
        result("c1"),
    ],
    "all of it": history(),
}  # fmt: skip


def test_no_server_refuses_any_transcript() -> None:
    wrong = {
        name: found
        for name, messages in TRANSCRIPTS.items()
        if (found := refusals(Request(system="Be brief.", messages=messages)))
    }
    assert wrong == {}


@pytest.mark.parametrize("echo", ECHOES)
def test_no_server_refuses_the_echo_of_another(echo: str) -> None:
    messages = [user("hi"), called("c1", echo=ECHOES[echo]), result("c1", "asked"), event(), user("thanks")]
    assert refusals(Request(messages=messages)) == {}


@pytest.mark.parametrize("first", VENDORS.values(), ids=VENDORS)
@pytest.mark.parametrize("second", VENDORS.values(), ids=VENDORS)
async def test_a_conversation_moves_between_vendors(first: Vendor, second: Vendor) -> None:
    messages: list[ModelMessage] = [user("off please")]
    async with first.running() as here, second.running() as there:
        for server, provider in (here, there, here):
            server.script([Say("Well.", [Call("look", {"at": "hall"})], thinks="Hm."), "Done."])
            for _ in range(2):
                reply = await provider.complete(Request(messages=messages))
                messages += [reply.message, *(result(call.call_id) for call in reply.tool_calls)]
            messages += [event(), user("and now?")]
        # Another server of the same API cannot read the thoughts of the first. It refuses them once.
        assert here[0].refused == [] or first is second
        assert len(there[0].refused) == (2 if first is second and first.name == "anthropic" else 0) or first is second
