"""The memory of a conversation: the newest messages within its limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.options import WrongOption
from gateway.memory import ConversationMemory
from gateway.memory.tokens import TokenCount
from gateway.memory.window import Cut
from gateway.providers.base import ModelMessage, ToolCall


def user(text: str) -> ModelMessage:
    return ModelMessage(role="user", content=text)


def note(text: str) -> ModelMessage:
    return ModelMessage(role="event", content=text)


def called(*ids: str, result: str = "r") -> list[ModelMessage]:
    calls = tuple(ToolCall(call_id=id_, name="look") for id_ in ids)
    results = [ModelMessage(role="tool", content=result, call_id=id_, tool_name="look") for id_ in ids]
    return [ModelMessage(role="assistant", tool_calls=calls), *results]


def said(memory: ConversationMemory) -> list[str]:
    return [message.content or message.role for message in memory.get_history()]


def filled(messages: list[ModelMessage], *limits: Any) -> ConversationMemory:
    memory = ConversationMemory(*limits)
    memory.add_many(messages)
    return memory


@pytest.mark.ledger("MEM-01")
@pytest.mark.parametrize("wrong", [{"max_messages": 0}, {"max_tokens": 0}, {"max_messages": -1}, {"max_tokens": "9"}])
def test_a_limit_below_one_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))) as raised:
        ConversationMemory(**wrong)
    assert isinstance(raised.value, WrongOption)


@pytest.mark.ledger("MEM-01", "CFG-21")
def test_memory_has_the_documented_defaults() -> None:
    memory = ConversationMemory()
    assert (memory.max_messages, memory.max_tokens, memory.summary) == (20, None, None)
    assert (memory.summarize_on_trim, memory.summarize_max_tokens) == (False, 150)
    assert (memory.summarize_provider, memory.summarize_model) == (None, None)


@pytest.mark.ledger("MEM-02", "MEM-06")
def test_memory_holds_one_conversation_of_all_roles() -> None:
    memory = ConversationMemory()
    memory.add(user("a"))
    memory.add_many([*called("1"), ModelMessage(role="assistant", content="done")])
    assert [message.role for message in memory.get_history()] == ["user", "assistant", "tool", "assistant"]
    memory.get_history().clear()
    assert len(memory) == 4
    memory.clear()
    assert (memory.get_history(), memory.summary, len(memory)) == ([], None, 0)


@pytest.mark.ledger("MEM-03")
def test_limit_of_messages_drops_the_oldest_first() -> None:
    assert said(filled([user(str(number)) for number in range(6)], 4)) == ["2", "3", "4", "5"]
    trim = ConversationMemory(4).trim([user(str(number)) for number in range(6)], TokenCount())
    assert trim.cuts == [Cut(2, 4, "enforce_limits")]
    assert [message.content for message in trim.dropped] == ["0", "1"]


@pytest.mark.ledger("MEM-03")
def test_limit_of_tokens_keeps_at_least_one_message() -> None:
    messages = [user("x" * 40) for _ in range(6)]
    assert len(filled(messages, 20, 30)) == 3, "10 tokens each, four characters a token"
    assert len(filled(messages, 2, 30)) == 2
    assert len(filled([user("x" * 4000), user("y" * 4000)], 20, 10)) == 1


@pytest.mark.ledger("MEM-03")
def test_tokens_are_counted_by_the_vendors_last_count() -> None:
    tokens, memory = TokenCount(), ConversationMemory(20, 30)
    tokens.learn(8_000, 4_000)
    memory.append([user("x" * 40) for _ in range(6)], tokens)
    assert len(memory) == 1, "half a token for each byte"
    tokens.learn(8_000, 1_000)
    memory.add_many([user("x" * 40) for _ in range(8)])
    assert len(memory) == 6, "and what is added by hand counts alike"


@pytest.mark.ledger("MEM-04", "MEM-05")
def test_a_result_that_lost_its_call_goes_too() -> None:
    messages = [user("a"), *called("1", "2"), user("b"), ModelMessage(role="assistant", content="c")]
    trim = ConversationMemory(4).trim(messages, TokenCount())
    assert [message.content for message in trim.kept] == ["b", "c"]
    assert trim.cuts == [Cut(2, 4, "enforce_limits"), Cut(2, 2, "tool_pair_boundary")]


@pytest.mark.ledger("MEM-04")
def test_a_leading_call_without_its_results_goes_too() -> None:
    call, _ = called("1")
    half, result, _ = called("2", "3")
    assert said(filled([user("a"), call, user("b")], 2)) == ["b"]
    assert said(filled([half, result, user("b")], 3)) == ["b"]


@pytest.mark.ledger("MEM-04")
def test_no_call_is_split_from_a_result_with_words_between() -> None:
    call, result = called("1")
    between = [user("a"), call, note("paid"), user("and?"), result, user("b")]
    assert said(filled(between, 3)) == ["b"]
    assert said(filled(between, 4)) == ["assistant", "paid", "and?", "r", "b"]


@pytest.mark.ledger("MEM-04")
def test_pair_stays_whole_when_no_other_message_is_left() -> None:
    assert said(filled([user("a"), *called("1", "2")], 1)) == ["assistant", "r", "r"]
    call, result = called("1")
    memory = filled([user("a"), call], 1)
    assert said(memory) == ["a", "assistant"], "a call that runs is not dropped"
    memory.add(result)
    assert said(memory) == ["assistant", "r"]
    assert said(filled([result], 1)) == ["r"]


def test_a_repeated_id_pairs_with_the_last_call() -> None:
    assert said(filled([*called("1"), user("a"), *called("1"), user("b")], 3)) == ["assistant", "r", "b"]
    assert said(filled([*called("1"), user("a"), *called("1"), user("b")], 2)) == ["b"]


def test_notes_push_no_words_out() -> None:
    notes = [note("y" * 400) for _ in range(100)]
    assert said(filled([user("a"), *notes, user("b")], 2, 10))[0] == "a"
    assert said(filled([note("of a"), user("a"), note("of b"), user("b")], 1)) == ["of b", "b"]


def test_two_memories_share_no_messages() -> None:
    first, second = ConversationMemory(), ConversationMemory()
    first.add(user("a"))
    assert second.get_history() == []


def test_dropped_messages_wait_for_their_summary() -> None:
    memory = ConversationMemory(2, summarize_on_trim=True)
    memory.add_many([user(str(number)) for number in range(4)])
    taken, state = memory.take_dropped()
    assert [message.content for message in taken] == ["0", "1"]
    assert not memory.put_summary(None, taken, state)
    again, state = memory.take_dropped()
    assert again == taken, "a failed summary loses no message"
    assert memory.put_summary("so far", again, state) and memory.summary == "so far"
    assert memory.take_dropped()[0] == []


def test_a_summary_that_comes_late_replaces_no_newer_one() -> None:
    memory = ConversationMemory(1, summarize_on_trim=True)
    memory.add_many([user("0"), user("1")])
    slow, state = memory.take_dropped()
    memory.add(user("2"))
    fast, same = memory.take_dropped()
    assert memory.put_summary("fast", fast, same)
    assert not memory.put_summary("slow", slow, state)
    assert (memory.summary, memory.take_dropped()[0]) == ("fast", slow)
    memory.clear()
    memory.put_summary("late", slow, state)
    assert (memory.summary, memory.take_dropped()[0]) == (None, [])
    memory.add_many([user("3"), user("4")])
    new, now = memory.take_dropped()
    assert memory.put_summary("new", new, now)
    memory.put_summary("late", slow, state)
    assert (memory.summary, memory.take_dropped()[0]) == ("new", []), "cleared messages stay forgotten"


_STEP = st.tuples(st.integers(0, 200), st.integers(0, 3), st.booleans())


@given(st.lists(_STEP, min_size=1, max_size=25), st.integers(1, 12), st.none() | st.integers(1, 200))
def test_trimming_by_turns_is_trimming_at_once(
    turns: list[tuple[int, int, bool]], most: int, tokens: int | None
) -> None:
    """A chat trims all stored lines at each turn, an agent alone the remaining ones."""
    memory, whole = ConversationMemory(most, tokens), list[ModelMessage]()
    for number, (length, calls, noted) in enumerate(turns):
        added = [note("n")] if noted else []
        added += [user(f"{number} " + "x" * length)]
        added += called(*(f"{number}.{call}" for call in range(calls)), result="r" * length) if calls else []
        added += [ModelMessage(role="assistant", content=str(number))]
        memory.add_many(added)
        whole += added
        assert memory.trim(whole, TokenCount()).kept == memory.get_history()
        kept = memory.get_history()
        made = [call.call_id for message in kept for call in message.tool_calls]
        assert made == [message.call_id for message in kept if message.role == "tool"]
        assert kept[-1] == added[-1]
        assert sum(message.role != "event" for message in kept) <= most
