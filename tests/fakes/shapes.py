"""The answers of servers in many shapes, from user reports, with the right reaction to each.

The person asked to purge Ana, and with `both` also Bob. The tools take a customer, or everybody without a name: lost
arguments would be another action.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.fakes.model_server import Raw

__all__ = ["ANTHROPIC_SHAPES", "OPENAI_SHAPES", "SECRET", "Shape"]

SECRET = "a thought"
ANA, BOB = {"customer": "Ana"}, {"customer": "Bob"}

Becomes = Literal["asked", "said", "told to the model", "asked for once more"]
Delta = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """An answer of a server. `becomes`: the reaction of the gateway.

    ``asked``: the person is asked for Ana, and with `both` for Bob. ``said``: the person reads ``Hello.``.
    ``told to the model``: the calls cannot be used. ``asked for once more``: the whole answer cannot be used.
    """

    becomes: Becomes
    raw: Raw
    both: bool = False


def sse(*events: tuple[str | None, Any], done: bool = True) -> Raw:
    lines = [
        f"event: {name}\ndata: {json.dumps(event)}\n\n" if name else f"data: {json.dumps(event)}\n\n"
        for name, event in events
    ]
    return Raw("".join(lines) + ("data: [DONE]\n\n" if done else ""), content_type="text/event-stream")


# ── Chat Completions ──


def chunks(
    *deltas: Delta, ends: str | None = "tool_calls", done: bool = True, last: Delta | None = None, **head: Any
) -> Raw:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", **head}
    events: list[Any] = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    if ends is not None:
        events.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": ends}], **(last or {})})
    return sse(*((None, event) for event in events), done=done)


def call(arguments: Any = None, /, **piece: Any) -> Delta:
    """A delta with a piece of a call: `index`, `id`, `name` and arguments."""
    function = {key: piece.pop(key) for key in ("name",) if key in piece}
    if arguments is not None:
        function["arguments"] = arguments
    return {"tool_calls": [{**piece, "function": function}]}


def cut(args: Delta) -> list[str]:
    text = json.dumps(args)
    return [text[:5], text[5:9], text[9:]]


def purge(*deltas: Delta, becomes: Becomes = "asked", both: bool = False, **how: Any) -> Shape:
    return Shape(becomes, chunks(*deltas, **how), both=both)


def said(*texts: Any, becomes: Becomes = "said", ends: str | None = "stop", **how: Any) -> Shape:
    return Shape(becomes, chunks(*({"content": text} for text in texts), ends=ends, **how))


HEAD = call("", index=0, id="c1", name="purge", type="function")
OPENAI_SHAPES: dict[str, Shape] = {
    "as documented": purge(HEAD, *(call(piece, index=0) for piece in cut(ANA))),
    "two calls as documented": purge(
        HEAD,
        *(call(piece, index=0) for piece in cut(ANA)),
        call("", index=1, id="c2", name="purge"),
        *(call(piece, index=1) for piece in cut(BOB)),
        both=True,
    ),
    # https://github.com/agno-agi/agno/issues/8879
    "the second call begins under the first index": purge(
        HEAD,
        *(call(piece, index=0) for piece in cut(ANA)),
        call("", index=0, id="c2", name="purge"),
        *(call(piece, index=1) for piece in cut(BOB)),
        both=True,
    ),
    "no index": purge(call("", id="c1", name="purge"), *(call(piece) for piece in cut(ANA))),
    "two calls without index": purge(
        call("", id="c1", name="purge"),
        *(call(piece) for piece in cut(ANA)),
        call("", id="c2", name="purge"),
        *(call(piece) for piece in cut(BOB)),
        both=True,
    ),
    "two whole calls without index": purge(
        {
            "tool_calls": [
                {"id": "c1", "function": {"name": "purge", "arguments": json.dumps(ANA)}},
                {"id": "c2", "function": {"name": "purge", "arguments": json.dumps(BOB)}},
            ]
        },
        both=True,
    ),
    # https://github.com/ai-dynamo/dynamo/pull/4723
    "one index for all calls": purge(
        call(json.dumps(ANA), index=0, id="c1", name="purge"),
        call(json.dumps(BOB), index=0, id="c2", name="purge"),
        both=True,
    ),
    # https://github.com/NousResearch/hermes-agent/issues/8259
    "id and name in each piece": purge(HEAD, *(call(piece, index=0, id="c1", name="purge") for piece in cut(ANA))),
    "id in each piece": purge(HEAD, *(call(piece, index=0, id="c1") for piece in cut(ANA))),
    "empty id and name in each piece": purge(HEAD, *(call(piece, index=0, id="", name="") for piece in cut(ANA))),
    "no id": purge(call("", index=0, name="purge"), *(call(piece, index=0) for piece in cut(ANA))),
    "an id that is a number": purge(call("", index=0, id=7, name="purge"), *(call(p, index=0) for p in cut(ANA))),
    "an index that is a text": purge(call(json.dumps(ANA), index="0", id="c1", name="purge")),
    # https://github.com/ggml-org/llama.cpp/issues/20198
    "arguments as an object": purge(call(ANA, index=0, id="c1", name="purge")),
    "the whole call twice": purge(*[call(json.dumps(ANA), index=0, id="c1", name="purge")] * 2),
    "no arguments in the first piece": purge(
        call(None, index=0, id="c1", name="purge"), *(call(piece, index=0) for piece in cut(ANA))
    ),
    # https://github.com/googleapis/python-genai/issues/2868
    "the end of a text behind a call": purge(call(json.dumps(ANA), id="c1", name="purge"), ends="stop"),
    "the old end of a call": purge(call(json.dumps(ANA), index=0, id="c1", name="purge"), ends="function_call"),
    "the old form of a call": purge(
        {"function_call": {"name": "purge", "arguments": ""}},
        *({"function_call": {"arguments": piece}} for piece in cut(ANA)),
        ends="function_call",
    ),
    "an unknown end behind a whole call": purge(call(json.dumps(ANA), index=0, id="c1", name="purge"), ends="eos"),
    "no last line": purge(HEAD, *(call(piece, index=0) for piece in cut(ANA)), done=False),
    # the pieces of two calls, impossible to separate
    "mixed calls": purge(
        call("", id="c1", name="purge"), call("", id="c2", name="purge"), call("{}"), becomes="told to the model"
    ),
    "a piece of no call": purge(
        call("", index=0, id="c1", name="purge"), call("", index=1, id="c2", name="purge"),
        call(json.dumps(ANA), index=5), becomes="told to the model",
    ),
    "empty arguments, then the arguments": purge(
        call("{}", index=0, id="c1", name="purge"), call(json.dumps(ANA), index=0), becomes="told to the model"
    ),
    "two values in one text": purge(
        call(json.dumps(ANA) + json.dumps(BOB), index=0, id="c1", name="purge"), becomes="told to the model"
    ),
    "arguments as JSON in JSON": purge(
        call(json.dumps(json.dumps(ANA)), index=0, id="c1", name="purge"), becomes="told to the model"
    ),
    "an unknown end behind no arguments": purge(HEAD, ends="eos", becomes="told to the model"),
    "cut at the limit": purge(HEAD, call('{"cust', index=0), ends="length", becomes="told to the model"),
    # https://github.com/NousResearch/hermes-agent/issues/91717
    "cut at the limit, and named whole": purge(HEAD, call('{"cust', index=0), becomes="told to the model"),
    "a list for a name": purge(
        call(json.dumps(ANA), index=0, id="c1", name=["purge"]), becomes="told to the model"
    ),
    # https://github.com/anomalyco/opencode/issues/26170
    "an error behind a call": purge(
        call(json.dumps(ANA), index=0, id="c1", name="purge"), ends="error", becomes="asked for once more"
    ),
    "no end behind a call": purge(
        call(json.dumps(ANA), index=0, id="c1", name="purge"), ends=None, becomes="asked for once more"
    ),
    "arguments as a number": purge(call(7, index=0, id="c1", name="purge"), becomes="asked for once more"),
    "a text": said("Hel", "lo."),
    # https://github.com/microsoft/agent-framework/issues/6978
    "a text in parts": said([{"type": "thinking", "thinking": SECRET}], [{"type": "text", "text": "Hello."}]),
    "a text in plain parts": said(["Hel", "lo."]),
    # https://github.com/nullclaw/nullclaw/issues/272
    "a thought in the text": said("<thi", f"nk>{SECRET}", "</think>", "\n\nHello."),
    "a thought without its first tag": said(f"{SECRET}\n</th", "ink>\n\nHel", "lo."),
    "a thought beside the text": Shape(
        "said", chunks({"reasoning_content": SECRET}, {"reasoning": SECRET}, {"content": "Hello."}, ends="stop")
    ),
    # https://github.com/openclaw/openclaw/issues/69843
    "a call in the text": said('<tool_call>{"name": "purge"}</tool_call>', becomes="told to the model"),
    "a call in a text of Mistral's": said('[TOOL_CALLS][{"name": "purge"}]', becomes="told to the model"),
    "a row of marks of code before a thought ends": said(f"{SECRET}: the ` key\n</think>\n\nHello."),
    "an open block of code in a thought": said(f"{SECRET} ```py\nx\n</think>Hello."),
    "a thought of Magistral's": said(f"[THINK]{SECRET}", "[/THI", "NK]Hello."),
    "a thought of Seed's": said(f"<seed:think>{SECRET}</seed:think>Hello."),
    "a thought of Kimi's": said(f"◁think▷{SECRET}◁/think▷Hello."),
    "a thought with an attribute": said(f'<think type="deep">{SECRET}</think>Hello.'),
    "the channels of gpt-oss": said(
        f"<|channel|>analysis<|message|>{SECRET}<|end|><|start|>assistant", "<|channel|>final<|message|>Hello."
    ),
    "a call in a text of DeepSeek's": said("<｜tool▁calls▁begin｜>purge", becomes="told to the model"),
    "a call in a text of MiniMax's": said("<minimax:tool_call>purge", becomes="told to the model"),
    "a call in a text of Llama's": said('<|python_tag|>{"name": "purge"}', becomes="told to the model"),
    "a call within a thought": said(f"<think>{SECRET} <tool_call>no</tool_call></think>Hello."),
    "no calls as an object": Shape("said", chunks({"content": "Hello.", "tool_calls": {}}, ends="stop")),
    "no calls as a list of nulls": Shape("said", chunks({"content": "Hello.", "tool_calls": [None]}, ends="stop")),
    "a text as one part": said({"type": "text", "text": "Hello."}),
    "a choice that is null": Shape(
        "said",
        sse(
            (None, {"choices": [None]}),
            (None, {"choices": [{"delta": {"content": "Hello."}, "finish_reason": "stop"}]}),
        ),
    ),
    "cut at Mistral's limit": purge(HEAD, call('{"cust', index=0), ends="model_length", becomes="told to the model"),
    "a broken call beside another": purge(
        call(json.dumps(ANA), index=0, id="c1", name="purge"),
        call('{"customer": "', index=1, id="c2", name="purge"),
        becomes="told to the model",
    ),
    "counts with fractions": said("Hello.", last={"usage": {"prompt_tokens": 1.5, "completion_tokens": "2"}}),
    "counts as a list": said("Hello.", last={"usage": {"prompt_tokens": 3, "prompt_tokens_details": []}}),
    "no counts": said("Hello.", last={"usage": None}),
    "fields of no meaning": said("Hello.", id=7, model=None, system_fingerprint=[], provider={"name": "x"}),
    # Azure's first chunk
    "a chunk without choices first": Shape(
        "said",
        sse(
            (None, {"id": "", "choices": [], "prompt_filter_results": [{}]}),
            (None, {"choices": [{"delta": {"role": "assistant", "content": None}}]}),
            (None, {"choices": [{"delta": {"content": "Hello."}, "finish_reason": "stop"}]}),
        ),
    ),
    "an unknown end behind a text": said("Hello.", ends="eos"),
    "an error behind a text": said("Hel", ends="error", becomes="asked for once more"),
    "no end behind a text": said("Hel", ends=None, becomes="asked for once more"),
    "blanks": said(" \n", "\u200b", becomes="asked for once more"),
    "thoughts alone": said(f"<think>{SECRET}</think>", becomes="asked for once more"),
    "a text that is a number": said(7, becomes="asked for once more"),
    "no answer": Shape("asked for once more", Raw("<html>Wait.</html>", content_type="text/html")),
}  # fmt: skip


# ── Messages ──


def blocks(*contents: Sequence[Delta], ends: str | None = "tool_use", stop: bool = True, usage: Any = None) -> Raw:
    tokens = {"input_tokens": 3, "output_tokens": 1} if usage is None else usage
    started: Delta = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": tokens}
    events: list[Any] = [{"type": "message_start", "message": started}]
    for content in contents:
        events += content
    if ends is not None:
        events.append({"type": "message_delta", "delta": {"stop_reason": ends}, "usage": tokens})
    if stop:
        events.append({"type": "message_stop"})
    return sse(*((event["type"], event) for event in events), done=False)


def block(content: Delta, *deltas: Delta, index: int | None = 0) -> list[Delta]:
    at = {} if index is None else {"index": index}
    return [
        {"type": "content_block_start", **at, "content_block": content},
        *({"type": "content_block_delta", **at, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", **at},
    ]


def tool_use(*pieces: Any, index: int | None = 0, **content: Any) -> list[Delta]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block({"type": "tool_use", "id": "t1", "name": "purge", "input": {}, **content}, *deltas, index=index)


def text(*pieces: str, index: int = 0) -> list[Delta]:
    return block(
        {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces), index=index
    )


ANTHROPIC_SHAPES: dict[str, Shape] = {
    "as documented": Shape("asked", blocks(tool_use(*cut(ANA)))),
    "two calls as documented": Shape(
        "asked", blocks(tool_use(*cut(ANA)), tool_use(*cut(BOB), index=1, id="t2")), both=True
    ),
    "no index": Shape(
        "asked", blocks(tool_use(*cut(ANA), index=None), tool_use(*cut(BOB), index=None, id="t2")), both=True
    ),
    "one index": Shape("asked", blocks(tool_use(*cut(ANA)), tool_use(*cut(BOB), id="t2")), both=True),
    "no id": Shape("asked", blocks(tool_use(*cut(ANA), id=None))),
    "the arguments at the start": Shape("asked", blocks(tool_use(input=ANA))),
    "the arguments as a text": Shape("asked", blocks(tool_use(input=json.dumps(ANA)))),
    "a piece that is an object": Shape("asked", blocks(tool_use(ANA))),
    "the arguments twice": Shape("told to the model", blocks(tool_use(*cut(BOB), input=ANA))),
    # https://github.com/tbphp/gpt-load/issues/736
    "no last event": Shape("asked", blocks(tool_use(*cut(ANA)), stop=False)),
    "the end of a text behind a call": Shape("asked", blocks(tool_use(*cut(ANA)), ends="end_turn")),
    "an unknown end behind a whole call": Shape("asked", blocks(tool_use(*cut(ANA)), ends="eos")),
    "an unknown end behind no arguments": Shape("told to the model", blocks(tool_use(), ends="eos")),
    "cut at the limit": Shape("told to the model", blocks(tool_use('{"cust'), ends="max_tokens")),
    "no end": Shape("asked for once more", blocks(tool_use(*cut(ANA)), ends=None)),
    "an error behind a call": Shape("asked for once more", blocks(tool_use(*cut(ANA)), ends="error")),
    "an error behind a text": Shape("asked for once more", blocks(text("Hel"), ends="error")),
    "a tool of the server's beside": Shape(
        "asked", blocks(tool_use(*cut(ANA)), tool_use(*cut(BOB), index=1, type="server_tool_use", id="s1"))
    ),
    "a tool of the server's alone": Shape(
        "said", blocks(tool_use(*cut(BOB), type="server_tool_use"), text("Hello.", index=1), ends="end_turn")
    ),
    "a thought in the text": Shape("said", blocks(text("<thi", f"nk>{SECRET}</think>", "Hello."), ends="end_turn")),
    "a call in the text": Shape("told to the model", blocks(text("<tool_call>purge"), ends="end_turn")),
    "arguments as a list": Shape("asked for once more", blocks(tool_use(input=["Ana"]))),
    "counts with fractions": Shape(
        "said", blocks(text("Hello."), ends="end_turn", usage={"input_tokens": 5.5, "output_tokens": "1"})
    ),
    "no counts": Shape("said", blocks(text("Hello."), ends="end_turn", usage=[])),
    "an unknown block": Shape(
        "said", blocks(block({"type": "annotation", "data": {"a": 1}}), text("Hello.", index=1), ends="end_turn")
    ),
    "blanks": Shape("asked for once more", blocks(text(" ", "\n"), ends="end_turn")),
}  # fmt: skip
