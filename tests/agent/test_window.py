"""The window chooses the part of a conversation that a model reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.agent.window import LEAST_BYTES, MOST_BYTES, Window, fitted
from gateway.memory.tokens import size
from gateway.providers.base import ModelMessage, ProviderError, Request, ToolCall, ToolSpec


def user(text: str) -> ModelMessage:
    return ModelMessage(role="user", content=text)


def called(number: int, result: str) -> list[ModelMessage]:
    call = ToolCall(call_id=f"c{number}", name="look", args={"n": number})
    return [
        ModelMessage(role="assistant", tool_calls=(call,)),
        ModelMessage(role="tool", content=result, call_id=call.call_id, tool_name="look"),
    ]


def test_history_that_fits_is_left_as_it_is() -> None:
    messages = [user("hello"), *called(1, "x" * 1000), user("and?")]
    assert fitted(messages, 2_000) is messages


def test_the_oldest_go_first_and_the_last_message_stays() -> None:
    messages = [user(f"{number} " + "x" * 1000) for number in range(20)]
    kept = fitted(messages, 5_000)
    assert [message.content.split()[0] for message in kept] == ["16", "17", "18", "19"]


def test_a_window_begins_with_no_result_and_no_answer() -> None:
    messages = [user("x" * 600), *called(1, "y" * 600), user("z" * 600), user("w" * 600)]
    assert [message.role for message in fitted(messages, 2_400)] == ["user", "user"]


def test_one_message_takes_a_quarter_at_most_and_says_so() -> None:
    kept = fitted([user("before"), user("é" * 4_000), user("after")], 4_000)
    assert [message.content.split("\n")[0][:6] for message in kept] == ["before", "éééééé", "after"]
    assert kept[1].content.endswith("[3500 characters left out here: too long for the model]")


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 3)), min_size=1, max_size=25), st.integers(2_000, 9_000)
)
def test_any_history_fits_into_the_window(turns: list[tuple[int, int]], most: int) -> None:
    messages = []
    for number, (length, calls) in enumerate(turns):
        messages.append(user(f"{number} " + "漢" * length))
        for call in range(calls):
            messages += called(call, "r" * length)
    kept = fitted(messages, most)
    assert kept[0].role == "user"
    assert f"{len(turns) - 1} " in [m.content[: len(str(len(turns))) + 1] for m in kept if m.role == "user"][-1] + " "
    assert [m.role for m in kept] == [m.role for m in messages][-len(kept) :]
    assert size(kept) <= max(most, 600 * len(kept))


def note(text: str) -> ModelMessage:
    return ModelMessage(role="event", content=text)


def test_note_between_a_call_and_its_result_begins_no_window() -> None:
    call, result = called(1, "r" * 600)
    messages = [user("x" * 600), call, note("paid"), user("and?"), result, user("z" * 600), user("w" * 600)]
    assert [message.content[:1] for message in fitted(messages, 2_000)] == ["z", "w"]
    held = [user("x" * 6_000), call, note("paid"), user("and?"), result]
    assert [message.role for message in fitted(held, 2_000)] == ["user", "assistant", "event", "user", "tool"]


_TURN = st.tuples(st.integers(0, 3_000), st.integers(0, 3), st.sampled_from(["", "event", "user"]))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(_TURN, min_size=1, max_size=20), st.integers(2_000, 9_000))
def test_no_call_stands_apart_and_the_newest_message_stays(turns: list[tuple[int, int, str]], most: int) -> None:
    messages: list[ModelMessage] = []
    for number, (length, calls, between) in enumerate(turns):
        messages.append(user(f"{number} " + "x" * length))
        for index in range(calls):
            call, result = called(number * 10 + index, "r" * length)
            messages += [call, *([ModelMessage(role=between, content="between")] if between else []), result]  # type: ignore[arg-type]
    kept = fitted(messages, most)
    made = {call.call_id for message in kept for call in message.tool_calls}
    answered = {message.call_id for message in kept if message.role == "tool"}
    assert made == answered
    assert kept[-1].role == messages[-1].role
    assert kept[-1].content[:2] == messages[-1].content[:2]


# ── what is known of a model's limit ──

TOOL = ToolSpec(name="look", description="d" * 400, parameters={})
TOO_LONG = ProviderError("x", "too long", retryable=False, refusal="too_long")


def told(sent: int | None, taken: int) -> ProviderError:
    return ProviderError("x", "too long", retryable=False, refusal="too_long", sent_tokens=sent, taken_tokens=taken)


def asking(length: int, model: str | None = None) -> Request:
    return Request(system="s" * 600, tools=[TOOL], messages=[user("x" * length)], model=model, max_tokens=1_000)


def test_unknown_limit_is_the_default() -> None:
    window = Window()
    window.counted(asking(10_000), 10_000)
    assert window.room(asking(10)) == MOST_BYTES


def test_configured_limit_leaves_room_for_everything_else() -> None:
    room = Window(10_000).room(asking(10))
    assert room == int(9_000 * 0.95 * 4) - 600 - 400 - len("look") - len("{}")


def test_vendors_count_of_the_last_call_replaces_the_estimate() -> None:
    window = Window(10_000)
    before = window.room(asking(10))
    window.counted(asking(20_000), 10_500)
    assert window.room(asking(10)) < before * 0.55, "half a token for each byte"
    window.counted(asking(20_000), 3_500)
    assert window.room(asking(10)) > before
    window.counted(asking(20_000), 10**9)
    assert window.room(asking(10)) == 8_000, "no count leaves less than a conversation needs"
    window.counted(asking(20_000), 5_252)
    window.counted(asking(10), 900)
    assert window.room(asking(10)) == pytest.approx(before, rel=0.01), "a short call tells nothing"


@pytest.mark.parametrize(("length", "most"), [(100_000, 47_000), (10_000, 22_800), (10**7, 4_747_000)])
def test_refusal_without_a_number_halves_the_window(length: int, most: int) -> None:
    window = Window()
    request = replace(asking(length), max_tokens=None)
    assert window.was_too_large(request, TOO_LONG) <= LEAST_BYTES
    assert window.room(request) == pytest.approx(most, rel=0.05)


def test_refusal_with_numbers_is_taken_at_its_word() -> None:
    window = Window()
    request = asking(832_000)
    room = window.was_too_large(request, told(208_310, 200_000))
    assert room == window.room(request) == pytest.approx(199_000 * 0.95 * 4, rel=0.01)


def test_each_model_has_its_own_limit() -> None:
    window = Window()
    window.was_too_large(asking(40_000, "small"), told(10_000, 8_000))
    assert window.room(asking(10, "small")) < 28_000
    assert window.room(asking(10, "large")) == window.room(asking(10)) == MOST_BYTES


def test_configured_limit_that_is_too_high_is_corrected() -> None:
    window = Window(200_000)
    window.was_too_large(asking(40_000), told(10_000, 8_000))
    assert window.room(asking(10)) < 28_000
    window.was_too_large(asking(20_000), told(10_000, 100_000))
    assert window.room(asking(10)) < 28_000, "and never raised"


def test_a_correction_does_not_push_the_question_out() -> None:
    wrong = ModelMessage(role="assistant", content="w" * 290)
    told = [
        user("before"),
        user("question".ljust(290)),
        wrong,
        user("Again".ljust(290)),
        wrong,
        user("Again".ljust(290)),
    ]
    assert fitted(told, 1_200)[0].content.startswith("Again")
    assert fitted(told, 1_200, since=1)[0].content.startswith("question")
