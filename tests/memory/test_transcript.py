"""The transcript as a turn reads it: whole, with only the new lines parsed anew."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.memory import RESET, ConversationMemory, Transcripts, to_entries
from gateway.providers import ModelMessage, ToolCall
from gateway.store.codec import decode, decode_all, encode

ASKED = ModelMessage(role="user", content="Delete INV-42.")
CALLED = ModelMessage(role="assistant", tool_calls=(ToolCall(call_id="1", name="delete", args={"ids": ["INV-42"]}),))
DONE = ModelMessage(role="tool", content="done", call_id="1", tool_name="delete")
SAID = ModelMessage(role="assistant", content="It is deleted.")
HEARD = ModelMessage(role="event", content="It was undone.")


def lines(messages: Sequence[ModelMessage]) -> list[str]:
    return [encode(line) for line in to_entries(messages)]


WHOLE = [ASKED, CALLED, DONE, SAID, HEARD, ASKED]


@pytest.mark.ledger("MEM-04", "MEM-06")
@pytest.mark.parametrize("last", range(len(WHOLE) + 1))
def test_transcript_starts_with_a_message_that_needs_no_other(last: int) -> None:
    read = Transcripts().read("c", lines(WHOLE[last:]))
    assert read == WHOLE[{0: 0, 5: 5, 6: 6}.get(last, 4) :]


@pytest.mark.parametrize("after", range(len(WHOLE) + 1))
def test_messages_before_the_last_reset_are_forgotten(after: int) -> None:
    written = lines(WHOLE)
    reset = encode(RESET)
    assert Transcripts().read("c", [reset, *written[:after], reset, ASKED_LINE, *written[after:]])[0] == ASKED
    assert Transcripts().read("c", [*written, reset]) == []


[ASKED_LINE] = lines([ASKED])


def test_of_the_next_turns_lines_only_the_new_ones_are_read() -> None:
    transcripts, written = Transcripts(), lines([ASKED, SAID, HEARD, SAID])
    before = transcripts.read("c", written[:3])
    after = transcripts.read("c", ["".join(line) for line in written[1:]])
    assert after == [HEARD, SAID]
    assert after[0] is before[2]
    assert transcripts.read("c", written[1:])[1] is after[1]
    assert transcripts.read("another", written)[0] is not before[0]


def test_changing_a_call_in_one_turn_does_not_reach_the_next() -> None:
    transcripts, written = Transcripts(), lines([ASKED, CALLED, ModelMessage(role="assistant", echo={"a": [1]})])
    for _ in range(2):
        _, called, echoing = transcripts.read("c", written)
        args, echo = called.tool_calls[0].args, echoing.echo
        assert (args, echo) == ({"ids": ["INV-42"]}, {"a": [1]})
        assert isinstance(args, dict)
        assert isinstance(echo, dict)
        args["ids"], echo["a"] = ["INV-43"], None


def test_lines_before_a_reset_need_not_be_readable() -> None:
    transcripts, written = Transcripts(), ['{"role": "nobody"}', encode(RESET), *lines([HEARD])]
    assert transcripts.read("c", written) == transcripts.read("c", written) == [HEARD]


def test_equal_calls_share_no_arguments() -> None:
    [_, first, second] = Transcripts().read("c", lines([ASKED, CALLED, CALLED]))
    assert first == second
    assert first.tool_calls[0].args is not second.tool_calls[0].args


def test_reset_read_from_the_cache_still_resets() -> None:
    transcripts, written = Transcripts(), [*lines([ASKED, SAID]), encode(RESET), *lines([HEARD])]
    assert transcripts.read("c", written) == transcripts.read("c", written) == [HEARD]


def test_cache_drops_long_lines_and_old_conversations() -> None:
    transcripts = Transcripts()
    long = lines([ModelMessage(role="user", content="x" * 40_000)])
    assert transcripts.read("c", long)[0] is not transcripts.read("c", long)[0]
    first = transcripts.read("c", [ASKED_LINE])[0]
    for number in range(255):
        transcripts.read(f"c{number}", [ASKED_LINE])
    assert transcripts.read("c", [ASKED_LINE])[0] is first
    for number in range(256):
        transcripts.read(f"d{number}", [ASKED_LINE])
    assert transcripts.read("c", [ASKED_LINE])[0] is not first


@pytest.mark.parametrize("odd", ['{"role": "nobody"}', "{", "7", "[" * 5000])
def test_history_begins_behind_a_line_that_cannot_be_read(odd: str) -> None:
    transcripts, written = Transcripts(), lines([ASKED])
    for _ in range(2):
        assert transcripts.read("c", [*written, odd]) == []
        assert transcripts.read("c", [*written, odd, *lines([HEARD])]) == [HEARD]
    assert transcripts.read("c", written) == [ASKED]


@pytest.mark.ledger("MEM-03")
def test_turn_is_trimmed_to_the_history_of_the_next() -> None:
    memory = ConversationMemory(3)
    transcripts, turns = (
        Transcripts(memory),
        [to_entries([ASKED, CALLED, DONE, SAID]), to_entries([HEARD, ASKED, SAID])],
    )
    history: list[ModelMessage] = []
    for number, turn in enumerate(turns):
        trim = transcripts.trim(history, turn)
        assert trim is not None
        written = [encode(line) for each in turns[: number + 1] for line in each]
        history = transcripts.read("c", written)
        assert history == trim.kept
    assert history == [SAID, HEARD, ASKED, SAID]
    assert Transcripts().trim(history, turns[0]) is None, "without a memory there is no trim"
    assert transcripts.trim(history, [RESET]) is None, "a reset is none"


def test_lines_read_together_are_as_deep_as_one_may_be() -> None:
    """Every read text can be written again, from any depth of the stack."""
    fine, deep = "[" * 200 + "]" * 200, "[" * 252 + "]" * 252
    assert decode_all(["1", fine, deep]) == [1, decode(fine), deep]
    assert decode_all(["[" * 130 + "]" * 130] * 2) == [decode("[" * 130 + "]" * 130)] * 2
