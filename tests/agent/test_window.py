"""The window chooses the part of a conversation that a model reads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.agent.window import LEAST_BYTES, MOST_BYTES, Window, fitted, size
from gateway.providers.base import ModelMessage, ToolCall


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


@pytest.mark.parametrize(("length", "most"), [(100_000, 50_000), (10_000, LEAST_BYTES), (10**7, MOST_BYTES)])
def test_a_model_that_takes_less_is_asked_with_less_from_then_on(length: int, most: int) -> None:
    window = Window()
    window.was_too_large([user("x" * length)])
    assert window.most == most
