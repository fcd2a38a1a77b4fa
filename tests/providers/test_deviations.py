"""Deviations of compatible servers, each reported by people: a call has the meant arguments, or no call is used."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.providers.anthropic.messages import AnthropicAnswer
from gateway.providers.base import ProviderError, Request, Response, ToolSpec
from gateway.providers.lenient import FailedAnswer
from gateway.providers.openai.chat import OpenAIAnswer
from gateway.providers.openai.client import OpenAIProvider
from gateway.providers.openai.responses import ResponsesAnswer
from gateway.providers.thoughts import AnswerText, shown, without_thoughts

ARGS = '{"invoice_id":"INV 7"}'
MEANT: list[Any] = [{"invoice_id": "INV 7"}]


def head(index: int | None = 0, call_id: str | None = "c1", arguments: Any = "") -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": "delete", "arguments": arguments}}


def piece(arguments: Any, index: int | None = 0) -> dict[str, Any]:
    return {"index": index, "function": {"arguments": arguments}}


def chunk(*calls: Any, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": [*calls], **delta}, "finish_reason": finish}]}


def message(finish: str | None = "tool_calls", **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": said, "finish_reason": finish}]}


END = chunk(finish="tool_calls")

CHAT: dict[str, tuple[list[Any], list[Any] | None]] = {
    "a blank in a piece of its own": (
        [chunk(head()), *map(chunk, map(piece, ['{"invoice_id":"INV', " ", '7"}'])), END],
        MEANT,
    ),
    "a line break in a piece of its own": (
        [chunk(head()), *map(chunk, map(piece, ['{"invoice_id":', "\n", '"INV 7"}', "\n"])), END],
        MEANT,
    ),
    "a new id in each piece": ([chunk(head()), chunk(head(call_id="c2", arguments=ARGS)), END], None),
    "a new id and index in each piece": ([chunk(head()), chunk(head(1, "c2", ARGS)), END], None),
    "an empty object, then id and name again": ([chunk(head(arguments="{}")), chunk(head(arguments=ARGS)), END], None),
    "objects, id and name again": (
        [chunk(head(arguments={})), chunk(head(arguments={"invoice_id": "INV 7"})), END],
        None,
    ),
    "an empty object, then another id": ([chunk(head(arguments="{}")), chunk(head(0, "c2", ARGS)), END], None),
    "two calls, the first of everything": (
        [chunk(head(arguments="{}")), chunk(head(1, "c2", ARGS)), END],
        [{}, {"invoice_id": "INV 7"}],
    ),
    "heads first, then the pieces by index": (
        [chunk(head(), head(1, "c2")), chunk(piece(ARGS), piece(ARGS, 1)), END],
        [*MEANT, *MEANT],
    ),
    "message and delta in each chunk": (
        [
            {"choices": [{"index": 0, "delta": {"tool_calls": [head()]}, "message": {"tool_calls": [head()]}}]},
            {
                "choices": [
                    {"index": 0, "delta": {"tool_calls": [piece(ARGS)]}, "message": {"tool_calls": [piece(ARGS)]}}
                ]
            },
            END,
        ],
        MEANT,
    ),
    "the whole message behind the pieces": (
        [chunk(head()), chunk(piece(ARGS)), message(tool_calls=[head(arguments=ARGS)])],
        MEANT,
    ),
    "calls in the message behind the text alone": (
        [chunk(content="Sure."), message(content="Sure.", tool_calls=[head(arguments=ARGS)])],
        MEANT,
    ),
    "a reason with the head, then nothing": ([chunk(head(), finish="stop")], None),
    "a reason before the head": ([END, chunk(head())], None),
    "all in one chunk": ([chunk(head(arguments="{}"), finish="tool_calls")], [{}]),
    "a call in place of the list": ([chunk(head()), {"choices": [{"delta": {"tool_calls": piece(ARGS)}}]}, END], MEANT),
    "a text in place of the list": ([chunk(head()), {"choices": [{"delta": {"tool_calls": ARGS}}]}, END], None),
    "arguments beside the function": ([chunk({**head(), "arguments": {"invoice_id": "INV 7"}}), END], None),
    "arguments under another name": (
        [chunk({"index": 0, "id": "c1", "function": {"name": "delete", "parameters": {"invoice_id": "INV 7"}}}), END],
        None,
    ),
    "an unknown end": ([chunk(head(arguments="{}")), chunk(finish="eos")], None),
    "a key twice": ([chunk(head(arguments='{"invoice_id":"INV 7","invoice_id":null}')), END], None),
    "a character in two halves": (
        [chunk(head()), chunk(piece('{"invoice_id":"\ud83d')), chunk(piece('\ude00"}')), END],
        [{"invoice_id": "😀"}],
    ),
    "an empty rest with id and name": ([chunk(head(arguments=ARGS)), chunk(head(arguments="\n")), END], MEANT),
    "an empty object behind": ([chunk(head(arguments=ARGS)), chunk(head(arguments="{}")), END], None),
    "an empty rest under a new id": ([chunk(head(arguments=ARGS)), chunk(head(call_id="c2")), END], None),
    "a name alone in each piece": (
        [
            chunk({"function": {"name": "delete", "arguments": ARGS}}),
            chunk({"function": {"name": "delete", "arguments": ""}}),
            END,
        ],
        None,
    ),
    "a whole answer": (
        [message(tool_calls=[head(arguments="{}"), head(1, "c2", ARGS)])],
        [{}, {"invoice_id": "INV 7"}],
    ),
}


def chat(chunks: list[Any]) -> Response:
    answer, text = OpenAIAnswer(), AnswerText()
    for each in chunks:
        text.add(answer.add(each))
    response = answer.response("m", "http://localhost", 0.0)
    assert response.content == text.whole() or response.finish == "refused" or text.whole() == "😀 hi"
    return response


def read(response: Response) -> list[Any] | None:
    """Return the arguments of the calls; None if no call is usable."""
    faults = [call.parse_error for call in response.tool_calls]
    assert all(faults) or not any(faults), "a reply is used whole or not at all"
    return None if any(faults) else [dict(call.args) for call in response.tool_calls]


@pytest.mark.parametrize(("chunks", "meant"), CHAT.values(), ids=CHAT)
def test_chat_completions(chunks: list[Any], meant: list[Any] | None) -> None:
    assert read(chat(chunks)) == meant


@pytest.mark.parametrize("bad", ["length", "error", "content_filter"])
def test_good_reason_behind_a_bad_one_changes_no_end(bad: str) -> None:
    chunks = [chunk(head(arguments=ARGS)), chunk(finish=bad), END]
    if bad == "error":
        with pytest.raises(ProviderError):
            chat(chunks)
    else:
        assert chat(chunks).finish == {"length": "length", "content_filter": "refused"}[bad]


def test_word_null_is_no_reason() -> None:
    with pytest.raises(ProviderError, match="broke off"):
        chat([chunk(content="Half of", finish="null")])


@pytest.mark.parametrize(
    "error",
    [
        {"object": "error", "message": "the GPU is gone", "code": 500},
        {"error": {"message": "the GPU is gone"}},
        {"code": "InternalError", "message": "the GPU is gone"},
        {"choices": [{"index": 0, "error": {"message": "the GPU is gone"}}]},
        {"detail": "the GPU is gone"},
        {"errors": [{"message": "the GPU is gone"}]},
        {"status": 500, "message": "the GPU is gone"},
    ],
)
def test_error_between_pieces_ends_the_answer(error: Any) -> None:
    with pytest.raises(FailedAnswer) as failed:
        chat([chunk(content="Half"), error, END])
    assert "the GPU is gone" in str(failed.value.body)


def test_words_of_others_are_left_out() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "Another answer"}}]}
    assert (
        chat([chunk(content="Hello"), other, chunk(content=" 7", role="tool"), chunk(finish="stop")]).content == "Hello"
    )


def test_halves_of_a_character_are_joined() -> None:
    text = AnswerText()
    assert [text.add(each) for each in ("Hi \ud83d", "\ude00", " there", "\ud83d")] == ["Hi ", "😀", " there", ""]
    assert text.whole() == "Hi 😀 there\ud83d"


def started(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def arguments(index: int, partial_json: Any, **more: Any) -> dict[str, Any]:
    delta = {"type": "input_json_delta", "partial_json": partial_json, **more}
    return {"type": "content_block_delta", "index": index, "delta": delta}


CALL = {"type": "tool_use", "id": "t1", "name": "delete", "input": {}}
STOP = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}

MESSAGES: dict[str, tuple[list[Any], list[Any] | None]] = {
    "a blank in a piece of its own": (
        [started(0, **CALL), *(arguments(0, each) for each in ("", '{"invoice_id":"INV', " ", '7"}')), STOP],
        MEANT,
    ),
    "the index of a text": ([started(0, type="text", text=""), started(1, **CALL), arguments(0, ARGS), STOP], None),
    "the index of a thought": ([started(0, type="thinking"), started(1, **CALL), arguments(0, ARGS), STOP], None),
    "an object under another name": (
        [started(0, **CALL), arguments(0, None, input={"invoice_id": "INV 7"}), STOP],
        None,
    ),
    "a piece without content": ([started(0, **CALL), arguments(0, None), STOP], None),
    "a piece without content, then the rest": (
        [started(0, **CALL), arguments(0, None), arguments(0, ARGS), STOP],
        MEANT,
    ),
    "a call behind the end": ([STOP, started(0, **CALL)], None),
    "no arguments": ([started(0, **CALL), arguments(0, ""), STOP], [{}]),
    "two calls of a tool, each with its end": (
        [
            *(started(0, **CALL), arguments(0, ""), {"type": "content_block_stop", "index": 0}),
            *(started(1, **{**CALL, "id": "t2"}), arguments(1, ARGS), {"type": "content_block_stop", "index": 1}),
            STOP,
        ],
        [{}, *MEANT],
    ),
    "arguments under another name": ([started(0, **CALL, arguments={"invoice_id": "INV 7"}), STOP], None),
}


@pytest.mark.parametrize(("events", "meant"), MESSAGES.values(), ids=MESSAGES)
def test_messages(events: list[Any], meant: list[Any] | None) -> None:
    answer = AnthropicAnswer()
    for each in events:
        answer.add(each)
    assert read(answer.response("m", "", "http://localhost", 0.0)) == meant


def test_error_between_events_ends_the_answer() -> None:
    with pytest.raises(FailedAnswer, match="error"):
        AnthropicAnswer().add({"error": {"message": "the GPU is gone"}})


def test_text_in_a_block_of_thoughts_is_a_thought() -> None:
    answer = AnthropicAnswer()
    thought = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I wonder"}}
    assert [answer.add(each) for each in (started(0, type="thinking"), thought)] == ["", ""]
    assert answer.text == ""


def test_thought_among_the_parts_of_a_text_is_left_out() -> None:
    parts = [{"type": "text", "text": "I wonder", "thought": True}, {"type": "text", "text": "Hello"}]
    assert chat([message("stop", content=parts)]).content == "Hello"


class Event:
    """An event of the library."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def to_dict(self, **_: Any) -> dict[str, Any]:
        return self._fields


def function_call(arguments: str, call_id: str = "c1") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "delete", "arguments": arguments}


def completed(*output: Any) -> Event:
    return Event(type="response.completed", response={"status": "completed", "output": [*output]})


def arguments_piece(kind: str, text: str, **place: Any) -> Event:
    name = "delta" if kind == "delta" else "arguments"
    return Event(type=f"response.function_call_arguments.{kind}", **{name: text}, **place)


def item_done(item: dict[str, Any]) -> Event:
    return Event(type="response.output_item.done", output_index=0, item=item)


RESPONSES: dict[str, tuple[list[Event], list[Any] | None]] = {
    "nothing in the whole answer": ([item_done(function_call(ARGS)), completed()], MEANT),
    "arguments in the pieces alone": (
        [arguments_piece("delta", ARGS[:9]), arguments_piece("delta", ARGS[9:]), completed(function_call(""))],
        None,
    ),
    "arguments at the end of the pieces alone": (
        [arguments_piece("done", ARGS), completed(function_call("{}"))],
        None,
    ),
    "arguments in the item alone": ([item_done(function_call(ARGS)), completed(function_call("{}"))], None),
    "two calls, one blank in the whole answer": (
        [
            *(arguments_piece("done", ARGS, output_index=0), arguments_piece("done", '{"invoice_id":"8"}')),
            completed(function_call(ARGS), function_call("{}", "c2")),
        ],
        None,
    ),
    "the same in another writing": (
        [arguments_piece("done", ARGS), completed(function_call('{ "invoice_id": "INV 7" }'))],
        MEANT,
    ),
    "two calls without places": (
        [
            *(arguments_piece("delta", ARGS), arguments_piece("done", ARGS)),
            *(arguments_piece("delta", "{}"), arguments_piece("done", "{}")),
            completed(function_call(ARGS), function_call("{}", "c2")),
        ],
        [*MEANT, {}],
    ),
}


@pytest.mark.parametrize(("events", "meant"), RESPONSES.values(), ids=RESPONSES)
def test_responses(events: list[Event], meant: list[Any] | None) -> None:
    answer = ResponsesAnswer(OpenAIProvider.vendor)
    for each in events:
        answer.add(each)
    assert read(answer.response("m", "http://localhost", 0.0)) == meant


def test_limit_of_tokens_is_not_mended_by_a_later_reason() -> None:
    answer = AnthropicAnswer()
    for each in (
        {"delta": {"text": "Half"}},
        {"delta": {"stop_reason": "max_tokens"}},
        {"delta": {"stop_reason": "end_turn"}},
    ):
        answer.add(each)
    assert answer.response("m", "", "http://localhost", 0.0).finish == "length"


THOUGHTS = [
    "<|channel>thought\nI wonder<channel|>Hello",
    "<|START_THINKING|>I wonder<|END_THINKING|>Hello",
    "<|begin_of_thought|>I wonder<|end_of_thought|>Hello",
    "<unused94>thought\nI wonder<unused95>Hello",
]


@pytest.mark.parametrize(
    "written",
    [
        "<think>I use `foo</think>Hello `bar` there",
        "<think>I use ```foo</think>Hello `bar` there",
        "<think>\n```py\nfoo</think>Hello `bar` there",
        "<think>about `</think>`, I wonder</think>Hello `bar` there",
    ],
)
def test_code_does_not_reach_out_of_thoughts(written: str) -> None:
    assert without_thoughts(written) == "Hello `bar` there"


@pytest.mark.parametrize("written", THOUGHTS)
def test_thoughts_are_not_shown_in_any_cut(written: str) -> None:
    assert without_thoughts(written) == "Hello"
    for size in (1, 3, 7, 100):
        text = AnswerText()
        drafts = "".join(text.add(written[at : at + size]) for at in range(0, len(written), size))
        assert "wonder" not in drafts
        assert text.whole().strip() == "Hello"


CALLS = [
    "Sure. <|tool_call>call:delete{}",
    "Sure. ‹｜｜DSML｜｜ calls>",
    'Sure. <function_calls><invoke name="delete">',
    "Sure. <TOOLCALL>[{}]",
    "Sure. <|START_ACTION|>[]",
    "Sure. functools[{}]",
    "Sure. <|channel|>commentary to=functions.delete",
]


@pytest.mark.parametrize("written", CALLS)
def test_raw_call_in_a_text_is_no_answer(written: str) -> None:
    assert said(written) == ("Sure.", ["unknown"])


@pytest.mark.parametrize(
    ("written", "calls"),
    [
        ('{"name": "delete", "parameters": {}}', ["unknown"]),
        ('{"name": "delete", "price": 3}', []),
        ('{"name": "another", "parameters": {}}', []),
        ("`<TOOLCALL>` is how it is written", []),
    ],
)
def test_json_of_a_call_alone_is_a_call(written: str, calls: list[str]) -> None:
    assert said(written) == ("" if calls else written, calls)


def said(written: str) -> tuple[str, list[str]]:
    text = AnswerText()
    text.add(written)
    request = Request(messages=[], tools=[ToolSpec(name="delete", description="", parameters={})])
    response = shown("openai", Response(content=written), text, request, "m")
    return response.content, [call.name for call in response.tool_calls]
