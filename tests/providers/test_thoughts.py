"""No thought and no raw call reaches a person, for any cut of the text."""

from __future__ import annotations

import json
import time

from hypothesis import given
from hypothesis import strategies as st

from gateway.providers.thoughts import AnswerText, _before_raw_call

ANSWERS = {
    "<think>secret</think>answer": "answer",
    "\n<think>\nsecret\n</think>\n\nanswer": "answer",
    "<THINKING>secret ` odd</THINKING>answer": "answer",
    "secret</think>\nanswer": "answer",
    "one <think>secret</think>two": "one two",
    "<think>secret": "",
    "<think>a</think>one<think>secret</think>": "one",
    "write `<think>` here": "write `<think>` here",
    "```\n<think>kept</think>\n```\nand": "```\n<think>kept</think>\n```\nand",
    "```\n`<think>`\n```": "```\n`<think>`\n```",
    "a < b and <thin": "a < b and <thin",
    "plain `code": "plain `code",
}


def read(pieces: list[str], *, waits: bool = False) -> tuple[str, str, AnswerText]:
    text = AnswerText(waits=waits)
    shown = "".join([text.add(piece) for piece in pieces])
    return shown, text.whole(), text


def cut(text: str, cuts: list[int]) -> list[str]:
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(st.sampled_from([*ANSWERS]), st.data())
def test_the_answer_is_the_same_however_it_is_cut(said: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=len(said))))
    shown, whole, text = read(cut(said, cuts))
    assert whole.strip() == ANSWERS[said]
    if not text.begins_thinking:
        assert "secret" not in shown
        assert whole.strip().startswith(shown.strip())


def test_a_mark_of_code_that_comes_in_pieces_is_one_mark() -> None:
    for size in (1, 2, 3):
        for said, answer in ANSWERS.items():
            assert read(cut(said, list(range(size, len(said), size))))[1].strip() == answer


@given(st.integers(1, 8))
def test_a_model_that_began_with_thoughts_is_waited_for(size: int) -> None:
    said = "secret one</think>the answer"
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    shown, whole, text = read(pieces, waits=True)
    assert "secret" not in shown and whole == "the answer" and text.begins_thinking
    assert "the answer".startswith(shown)


def test_a_call_in_the_text_is_found_outside_of_code() -> None:
    call = json.dumps({"name": "delete", "arguments": {}})
    found = {
        f"Sure.\n<tool_call>{call}</tool_call>": "Sure.",
        f"[TOOL_CALLS][{call}]": "",
        "<function=delete>{}</function>": "",
        f"```\n<tool_call>{call}</tool_call>\n```": None,
        "the tag `<tool_call>` begins one": None,
        "hello": None,
    }
    assert {text: _before_raw_call(text) for text in found} == found


UNITS = ["`", "`a", "``a`", "```\n", "~~~\n", "<", "<think>", "</think>", "[", "<think x", "`<think>`"]
ROWS = [
    "".join(f"{'`' * length}a" for length in range(1, 361)),
    "".join(f"{'`' * length}\n" for length in range(350, 3, -1)),
]


def test_no_text_of_64_kilobytes_takes_long() -> None:
    slow = []
    for text in [*((unit * 65_536)[:65_536] for unit in UNITS), *ROWS]:
        began, answer = time.process_time(), AnswerText()
        for at in range(0, len(text), 64):
            answer.add(text[at : at + 64])
        _before_raw_call(answer.whole())
        if time.process_time() - began > 0.5:
            slow.append(text[:20])
    assert slow == []
