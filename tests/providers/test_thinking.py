"""A model's thoughts go back with their reply, and nowhere else.

The stand-in refuses the same thoughts as Anthropic's server: missing, changed, moved behind other words, or left at the
end of a message (tests/fakes/schemas.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from gateway import Agent, AgentConfig, ToolContext, tool
from gateway.agent import LoopOutcome, LoopPorts
from gateway.agent.journal import Progress
from gateway.memory import Transcripts, to_entries
from gateway.providers import ModelMessage, Provider, Request, Response
from gateway.store.codec import encode
from tests.agent.scripted import Notebook, Person
from tests.fakes.anthropic import Blocks, Call, Raw, Say
from tests.fakes.model_server import ModelServer
from tests.providers.test_vendors import begun, sse
from tests.providers.vendors import ANTHROPIC, ASKED, VENDORS, Vendor, streamed, user

only_anthropic = pytest.mark.parametrize("vendor", ["anthropic"], indirect=True)
only_openai = pytest.mark.parametrize("vendor", ["openai"], indirect=True)
OFF = Call("switch", {"lamp": "hall"})
HALL: dict[str, Any] = {"type": "tool_use", "name": "switch", "input": {"lamp": "hall"}}


@tool
async def switch(lamp: str) -> str:
    """Switch a lamp."""
    return f"{lamp} is off"


def lamps(provider: Provider, instructions: str = "Be brief.") -> Agent:
    return Agent([switch], provider=provider, instructions=instructions)


async def turn(agent: Agent, *messages: ModelMessage, journal: Notebook | None = None) -> LoopOutcome:
    context = ToolContext(person="app:-:ana", idempotency_key="t1")
    return await agent.answer(
        messages, context=context, on_confirm=Person(), ports=LoopPorts(journal=journal, keep=_keeps_nothing)
    )


async def _keeps_nothing(artifact: object) -> Any:
    raise AssertionError("no tool here makes a file")


def remembered(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages read from a transcript."""
    return Transcripts().read("c", [encode(line) for line in to_entries(messages)])


def replies(model: ModelServer) -> list[list[dict[str, Any]]]:
    return [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "assistant"]


def types(blocks: Sequence[dict[str, Any]]) -> list[str]:
    return [block["type"] for block in blocks]


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


# ── within a turn ──


@only_anthropic
async def test_thoughts_go_back_with_the_results_of_the_calls(model: ModelServer, provider: Provider) -> None:
    model.script([Say("At once.", [OFF], thinks="The hall, then."), Say(calls=[OFF], thinks=""), "Both are off."])
    outcome = await turn(lamps(provider), user("off please"))
    assert model.refused == []
    assert outcome.content == "Both are off."
    first, second = replies(model)
    assert first == [
        {**thought("The hall, then."), "signature": "c2lnbmVk0000"},
        said("At once."),
        {**HALL, "id": "toolu_1_0"},
    ]
    assert types(second) == ["thinking", "tool_use"], "also a thought that is not shown: the signature is what counts"


@only_anthropic
@pytest.mark.parametrize(
    "content",
    [
        [thought("Which?"), {"type": "redacted_thinking"}, said("At once."), HALL],
        [thought("Which?"), said("At once."), thought("The hall."), HALL, thought("And the attic."), HALL],
        [said("At once."), thought("Which?"), HALL],
        [{"type": "redacted_thinking"}, HALL, HALL],
    ],
)
async def test_thoughts_keep_their_order(model: ModelServer, provider: Provider, content: list[dict[str, Any]]) -> None:
    model.script([Blocks(content=content), "Done."])
    await turn(lamps(provider), user("off please"))
    assert model.refused == []
    assert [types(reply) for reply in replies(model)] == [types(content)]


@only_anthropic
async def test_thoughts_between_the_results_of_a_turn_go_back(model: ModelServer, provider: Provider) -> None:
    """The interleaved round trip of https://platform.claude.com/docs/build-with-claude/thinking-tool-workflows."""
    model.script(
        [
            Blocks(content=[thought("Which?"), HALL]),
            Blocks(content=[{"type": "redacted_thinking"}, thought("And the attic."), said("The attic too."), HALL]),
            Blocks(content=[thought("Done."), said("Both are off.")]),
            "Any time.",
        ]
    )
    begin = user("off please")
    done = await turn(lamps(provider), begin)
    before = model.requests[-1]["messages"]
    await turn(lamps(provider), *remembered([begin, *done.messages]), user("thanks"))
    assert model.refused == []
    assert model.requests[-1]["messages"][: len(before)] == before, "byte by byte, also from the transcript"
    assert [types(reply) for reply in replies(model)] == [
        ["thinking", "tool_use"],
        ["redacted_thinking", "thinking", "text", "tool_use"],
        ["thinking", "text"],
    ]
    assert [block for block in replies(model)[1] if "data" in block] == [
        {"type": "redacted_thinking", "data": "c2lnbmVk0002"}
    ]


@only_anthropic
async def test_switched_model_sees_only_its_own_thoughts(model: ModelServer, provider: Provider) -> None:
    rounds = [Say(calls=[Call("switch", {"lamp": lamp})], thinks=f"The {lamp}.") for lamp in ("hall", "attic", "den")]
    model.script([*rounds, "All are off."])
    models = ["claude-a", "claude-b", "claude-a", "claude-b"]
    config = AgentConfig(model_selector=lambda iteration, messages, usage: models[iteration - 1])
    await turn(Agent([switch], provider=provider, config=config), user("off please"))
    assert model.refused == []
    plain, thinking = ["tool_use"], ["thinking", "tool_use"]
    sent = [[types(m["content"]) for m in body["messages"] if m["role"] == "assistant"] for body in model.requests]
    assert sent == [[], [plain], [thinking, plain], [plain, thinking, plain]]


DOCUMENTED = [
    {"type": "message_start", "message": {"id": "msg_01", "model": "claude-test", "usage": {"input_tokens": 9}}},
    begun(0, type="thinking", thinking="", signature=""),
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "The user wants "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "it dark."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "EqQBCgIYAhIM1gbc"}},
    {"type": "content_block_stop", "index": 0},
    begun(1, type="redacted_thinking", data="EmwKAhgBEgy3va3pzix"),
    {"type": "content_block_stop", "index": 1},
    begun(2, type="tool_use", id="toolu_01", name="switch", input={}),
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ""}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"lamp":'}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ' "hall"}'}},
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]
"""The events of https://platform.claude.com/docs/en/build-with-claude/streaming#streaming-with-extended-thinking."""


@only_anthropic
async def test_documented_events_go_back_as_the_documented_message(model: ModelServer, provider: Provider) -> None:
    model.script([sse(*DOCUMENTED)])
    reply = (await provider.complete(ASKED)).message
    result = ModelMessage(role="tool", content="hall is off", call_id="toolu_01")
    sent = ANTHROPIC.messages(replace(ASKED, messages=[*ASKED.messages, *remembered([user("x"), reply])[1:], result]))
    assert sent[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "The user wants it dark.", "signature": "EqQBCgIYAhIM1gbc"},
                {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
                {"type": "tool_use", "id": "toolu_01", "name": "switch", "input": {"lamp": "hall"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_01", "content": "hall is off"}]},
    ]


@only_anthropic
async def test_turn_after_a_take_over_sends_the_thoughts_back(model: ModelServer, provider: Provider) -> None:
    notebook = Notebook()
    model.script([Say(calls=[OFF], thinks="The hall."), "It is off."])
    await turn(lamps(provider), user("off please"), journal=notebook)
    before = model.requests[-1]["messages"]

    left = Notebook(notebook.steps[:1])
    assert left.kinds() == ["reply"]
    model.script(["It is off."])
    await turn(lamps(provider), user("off please"), journal=left)
    assert model.refused == []
    assert model.requests[-1]["messages"] == before


@only_anthropic
async def test_resumed_turn_with_new_instructions_drops_its_thoughts(model: ModelServer, provider: Provider) -> None:
    notebook = Notebook()
    model.script([Say(calls=[OFF], thinks="The hall."), "It is off.", "It is off."])
    await turn(lamps(provider, "It is Monday."), user("off please"), journal=notebook)
    await turn(lamps(provider, "It is Tuesday."), user("off please"), journal=Notebook(notebook.steps[:1]))
    assert model.refused == []
    assert [types(reply) for reply in replies(model)] == [["tool_use"]]


def test_reply_of_a_release_without_thoughts_is_read() -> None:
    notebook = Notebook(
        [{"reply": {"content": "Hello.", "tool_calls": [], "usage": {}, "model": "m", "finish": "stop"}}]
    )
    assert Progress(notebook).reply(1) == Response(content="Hello.", model="m")


# ── across turns ──


async def two_turns(
    model: ModelServer, first: Agent, second: Agent, *, between: Sequence[ModelMessage] = ()
) -> list[list[dict[str, Any]]]:
    """Return the replies of a first turn, with a switched lamp, as sent in a second turn."""
    begin = [user("off please")]
    model.script([Say(calls=[OFF], thinks="The hall."), Say("It is off.", thinks="Done, then."), "Any time."])
    done = await turn(first, *begin)
    await turn(second, *remembered([*begin, *done.messages, *between]), user("thanks"))
    assert model.refused == []
    return replies(model)


@only_anthropic
async def test_transcript_keeps_the_thoughts(model: ModelServer, provider: Provider) -> None:
    event = ModelMessage(role="event", content="The bill was paid.")
    sent = await two_turns(model, lamps(provider), lamps(provider), between=[event])
    assert [types(reply) for reply in sent] == [["thinking", "tool_use"], ["thinking", "text"]]


@only_anthropic
async def test_thoughts_are_left_out_for_other_instructions_or_tools(model: ModelServer, provider: Provider) -> None:
    plain = [["tool_use"], ["text"]]
    sent = await two_turns(model, lamps(provider), lamps(provider, "Be long-winded."))
    assert [types(reply) for reply in sent] == plain
    sent = await two_turns(model, lamps(provider), Agent(provider=provider, instructions="Be brief."))
    assert [types(reply) for reply in sent] == plain


@only_anthropic
async def test_trimmed_history_has_no_thoughts(model: ModelServer, provider: Provider) -> None:
    model.script([Say("Hello.", thinks="Ana."), Say("Well.", thinks="Again."), "Yes."])
    agent, begin = lamps(provider), [user("hello")]
    heard = [*begin, *(await turn(agent, *begin)).messages, user("well?")]
    heard += [*(await turn(agent, *heard)).messages, user("sure?")]
    await turn(agent, *heard[2:])
    assert model.refused == []
    assert [types(reply) for reply in replies(model)] == [["text"]]


@only_anthropic
async def test_another_model_gets_no_thoughts(model: ModelServer, provider: Provider) -> None:
    other = ANTHROPIC.provider("claude-other", api_key=model.key, base_url=model.url)
    sent = await two_turns(model, lamps(provider), lamps(other))
    await other.close()
    assert [types(reply) for reply in sent] == [["tool_use"], ["text"]]


@only_anthropic
async def test_only_thoughts_behind_a_change_are_left_out(model: ModelServer, provider: Provider) -> None:
    """As when the bot reports a still open question to the model for one turn alone."""
    agent, begin = lamps(provider), [user("hello")]
    model.script(
        [Say("Hello.", thinks="Ana."), Say("Later.", thinks="It is open."), Say("Well.", thinks="Now?"), "Yes."]
    )
    heard = [*begin, *(await turn(agent, *begin)).messages, user("and now?")]
    told = ModelMessage(role="event", content="Waiting for the person.")
    later = (await turn(agent, *remembered(heard[:-1]), told, heard[-1])).messages
    heard += [*later, user("well?")]
    heard += [*(await turn(agent, *remembered(heard[:-1]), heard[-1])).messages, user("sure?")]
    await turn(agent, *remembered(heard[:-1]), heard[-1])
    assert model.refused == []
    assert [types(reply) for reply in replies(model)] == [["thinking", "text"], ["text"], ["thinking", "text"]]


@only_anthropic
async def test_escaped_words_go_back_after_their_thoughts(model: ModelServer, provider: Provider) -> None:
    """No words, the model's own included, open an event."""
    model.script([Say("<gateway_event>", [OFF], thinks="Hm."), "ok"])
    reply = (await provider.complete(ASKED)).message
    await provider.complete(replace(ASKED, messages=[*ASKED.messages, reply]))
    assert model.refused == []
    assert types(replies(model)[0]) == ["thinking", "text", "tool_use"]
    assert replies(model)[0][1] == said("&lt;gateway_event>")


@only_anthropic
async def test_words_that_were_taken_out_leave_no_thoughts(model: ModelServer, provider: Provider) -> None:
    model.script([Say("Well.", thinks="Hm."), "ok"])
    reply = replace((await provider.complete(ASKED)).message, content=" ")
    await provider.complete(replace(ASKED, messages=[*ASKED.messages, reply, user("go on")]))
    assert model.refused == []
    assert replies(model) == []


@only_anthropic
async def test_thoughts_between_words_that_were_changed_are_left_out(model: ModelServer, provider: Provider) -> None:
    model.script([Blocks(content=[said("<gateway_event>"), thought("Hm."), said("Well.")]), "ok"])
    reply = (await provider.complete(ASKED)).message
    await provider.complete(replace(ASKED, messages=[*ASKED.messages, reply]))
    assert model.refused == []
    assert replies(model) == [[said("&lt;gateway_event>Well.")]]


@only_anthropic
async def test_half_a_surrogate_pair_is_no_thought(model: ModelServer, provider: Provider) -> None:
    """UTF-8 cannot hold the half, and any replacement would be a change."""
    model.script([Say("Well.", thinks="\ud800"), "ok"])
    reply = (await provider.complete(ASKED)).message
    await provider.complete(replace(ASKED, messages=[*ASKED.messages, *remembered([user("x"), reply])[1:]]))
    assert model.refused == []
    assert replies(model) == [[said("Well.")]]


# ── thoughts that cannot go back ──


@only_anthropic
@pytest.mark.parametrize(
    "answer",
    [
        Say("Half a sen", thinks="Hm.", ends="max_tokens"),
        Say("No.", thinks="Hm.", ends="refusal"),
        Blocks(content=[thought("Hm."), {**HALL, "input": '{"la'}, thought("And?"), HALL]),
        Say(thinks="Hm."),
        Blocks(content=[said("Well."), thought("Hm.")]),
        Blocks(content=[thought("Hm."), said(" \n")]),
        Say("Plain."),
    ],
)
async def test_thoughts_that_would_be_refused_are_not_kept(model: ModelServer, provider: Provider, answer: Say) -> None:
    model.script([answer, "ok"])
    reply = await provider.complete(ASKED)
    assert reply.echo is None
    if not reply.tool_calls:
        await provider.complete(replace(ASKED, messages=[*ASKED.messages, reply.message, user("go on")]))
        assert model.refused == []


@only_anthropic
async def test_a_thought_before_a_call_that_cannot_be_read_goes_back(model: ModelServer, provider: Provider) -> None:
    model.script([Say(calls=[Call("switch", '{"la')], thinks="Hm."), "Well."])
    await turn(lamps(provider), user("off please"))
    assert model.refused == []
    assert types(replies(model)[0]) == ["thinking", "tool_use"]


@only_anthropic
async def test_thoughts_beside_unknown_blocks_are_not_kept(model: ModelServer, provider: Provider) -> None:
    ended = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    thoughts = begun(0, type="thinking", thinking="Hm.", signature="s")
    text = begun(2, type="text", text="Well.")
    for extra, kept in (([begun(1, type="of_tomorrow")], False), ([], True)):
        model.script([sse(thoughts, *extra, text, ended, {"type": "message_stop"})])
        assert bool((await provider.complete(ASKED)).echo) is kept


# ── other providers ──


@pytest.mark.parametrize(("maker", "other"), [*permutations(VENDORS.values(), 2)], ids=lambda v: v.model)
async def test_a_conversation_goes_on_with_another_provider(maker: Vendor, other: Vendor) -> None:
    """A vendor's model gets no thoughts of another's."""
    begin = user("off please")
    async with maker.running() as (model, provider):
        model.script([Say("At once.", [OFF], thinks="The hall."), Say("It is off.", thinks="Done.")])
        done = [begin, *(await turn(lamps(provider), begin)).messages]
        assert any(message.echo for message in done)
    plain = [replace(message, echo=None) for message in done]
    async with other.running() as (model, provider):
        model.script(["Any time."])
        await turn(lamps(provider), *remembered(done), user("thanks"))
        assert model.refused == []
        assert "The hall." not in json.dumps(model.requests)
        expected = other.messages(Request(system="Be brief.", messages=[*plain, user("thanks")]))
        assert model.requests[0][model.history] == expected


@only_openai
@pytest.mark.parametrize("thinks", ["The hall, then.", ""])
@pytest.mark.parametrize("stream", [False, True])
async def test_compatible_servers_reasoning_goes_back(
    model: ModelServer, provider: Provider, thinks: str, stream: bool
) -> None:
    model.script([Say(calls=[OFF], thinks=thinks), Say("It is off.", thinks="Done."), "Any time."])
    reply = ((await streamed(provider))[1] if stream else await provider.complete(ASKED)).message
    result = ModelMessage(role="tool", content="is off", call_id=reply.tool_calls[0].call_id)
    done = await provider.complete(replace(ASKED, messages=[*ASKED.messages, reply, result]))
    assert done.echo is None, "with an answer in words nothing goes back"
    history = remembered([*ASKED.messages, reply, result, done.message, user("thanks")])
    await provider.complete(replace(ASKED, messages=history))
    assert model.refused == []
    sent = [message.get("reasoning_content") for message in model.requests[-1]["messages"]]
    assert sent == [None, None, thinks, None, None, None]


@only_openai
async def test_reasoning_of_another_model_is_not_sent(model: ModelServer, provider: Provider) -> None:
    model.script([Say(calls=[OFF], thinks="The hall."), "ok"])
    reply = (await provider.complete(ASKED)).message
    result = ModelMessage(role="tool", content="is off", call_id=reply.tool_calls[0].call_id)
    await provider.complete(replace(ASKED, model="gpt-5-mini", messages=[*ASKED.messages, reply, result]))
    assert "reasoning_content" not in str(model.requests[-1])


@only_openai
async def test_a_server_that_says_no_reasoning_is_sent_none(model: ModelServer, provider: Provider) -> None:
    body = {
        "choices": [{"message": {"tool_calls": [{"id": "a", "function": {"name": "switch"}}]}, "finish_reason": "x"}]
    }
    model.script([Raw(json.dumps(body))])
    assert (await provider.complete(ASKED)).echo is None
