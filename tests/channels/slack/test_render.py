"""Replies as Block Kit, within Slack's limits, calling nobody."""

from __future__ import annotations

import html
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Address, Button, Media, Part, Reply
from channels.formatting import read_markdown
from channels.formatting.mrkdwn import to_mrkdwn
from channels.slack.render import CAPABILITIES, render
from tests.fakes.slack_limits import check_message

DIRECT = Address(channel="slack", account="T1", place="D1")
THREAD = Address(channel="slack", account="T1", place="C1", thread="1.2", group=True)
FILE = Media(sha256="0" * 64, mime_type="image/png", filename="a.png", size=10)
CONFIRM = Button(label="Confirm", token="c", style="confirm")


def mrkdwn(markdown: str) -> str:
    return to_mrkdwn(read_markdown(markdown))


def sections(part: Part) -> list[str]:
    blocks = part.arguments["blocks"]
    assert isinstance(blocks, list)
    return [block["text"]["text"] for block in blocks if block["type"] == "section"]  # type: ignore[index,call-overload,misc]


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("**bold** *italic* ~~strike~~ `code`", "*bold* _italic_ ~strike~ `code`"),
        ("# Title\n\ntext", "*Title*\n\ntext"),
        ("**a *b* c**", "*a _b_ c*"),
        ("foo**bar**baz", "foo\u200b*bar*\u200bbaz"),
        ("**one\ntwo**", "*one*\n*two*"),
        ("[label](https://example.com/?a=1&b=2)", "<https://example.com/?a=1&amp;b=2|label>"),
        ("[`x`](https://example.com) **[y](https://example.com)**", "<https://example.com|x> <https://example.com|y>"),
        ("[a|b>c](https://example.com)", "<https://example.com|a¦b&gt;c>"),
        ("[x](ftp://example.com) [y](/path)", "x y"),
        ("see https://example.com/a_b?x=1&y=2.", "see <https://example.com/a_b?x=1&amp;y=2>."),
        ("`https://example.com`", "`https://example.com`"),
        ("> quoted **x**\n> more", "> quoted *x*\n> more"),
        ("```py\na<b && c\n```", "```\na&lt;b &amp;&amp; c\n```"),
        ("````\n```\n````", "```\n``\u200b`\n```"),
        ("- a\n- b", "• a\n• b"),
        ("a & b < c > d", "a &amp; b &lt; c &gt; d"),
        ("&amp;lt;", "&amp;lt;"),
    ],
)
def test_markdown_in_slacks_dialect(markdown: str, expected: str) -> None:
    assert mrkdwn(markdown) == expected


CALLS = [
    "<!channel>",
    "<!here|here>",
    "<!everyone>",
    "<!subteam^S123|@ops>",
    "<@U123>",
    "<@U123|ana>",
    "<#C123>",
    "&lt;!channel&gt;",
    "`<!channel>`",
    "```\n<!channel>\n```",
    "[<!channel>](https://example.com)",
    "[x](<!channel>)",
    "[x](!channel)",
    "[x](@U123)",
    "<https://example.com|bank>",
    "**<!chan**nel>",
    "| a |\n|---|\n| <!here> |",
]


@pytest.mark.parametrize("text", CALLS)
def test_nobody_is_called_by_what_a_model_writes(text: str) -> None:
    assert re.findall(r"<(?!https://example\.com|mailto:)[^>]*>", mrkdwn(text)) == []
    for part in render(THREAD, Reply(text=text)):
        blocks = part.arguments["blocks"]
        assert isinstance(blocks, list)
        assert all(block["text"]["verbatim"] is True for block in blocks)  # type: ignore[index,call-overload]


@pytest.mark.parametrize("word", ["@here", "@channel", "@everyone", "@HERE", "@group"])
def test_a_call_in_words_is_a_word(word: str) -> None:
    text = f"hello {word}, [{word}](https://example.com) and bo@hereford.example"
    written = mrkdwn(text)
    assert re.findall(rf"{word}\b", written) == []
    assert "bo@hereford.example" in written
    assert written.replace("\u2060", "").startswith(f"hello {word}, <https://example.com|{word}>")
    assert mrkdwn(f"`{word}`") == f"`{word}`", "code stays as it can be copied"


@given(st.text(alphabet="<>!@#|&;`*_~[]()\\ \nahttps:/.channelhereU1^", max_size=200))
def test_only_links_are_in_angle_brackets(text: str) -> None:
    assert [t for t in re.findall(r"<([^>]*)>?", mrkdwn(text)) if not t.startswith(("http", "mailto:"))] == []


@given(st.text(alphabet="ab&<>\n **`[](https://x.y)é🙂", max_size=300), st.integers(1, 60))
def test_whatever_is_said_is_within_the_limits_and_whole(text: str, times: int) -> None:
    parts = render(THREAD, Reply(text=text * times, buttons=(CONFIRM,)))
    for part in parts:
        check_message(dict(part.arguments))
    said = html.unescape("".join(s for part in parts for s in sections(part)))
    letters = [c for c in read_markdown(text * times).text if c in "abé🙂"]
    assert "".join(letters) in "".join(c for c in said if c in "abé🙂") or "](" in text or "http" in text


@pytest.mark.parametrize(
    "text", ["&" * 16_000, "<" * 60_000, "*a " * 10_000, ("[a](https://x.yz/" + "q" * 900 + ") ") * 9]
)
def test_text_built_to_be_long_is_within_the_limits_at_once(text: str) -> None:
    began = time.process_time()
    parts = render(DIRECT, Reply(text=text))
    assert time.process_time() - began < 2
    for part in parts:
        check_message(dict(part.arguments))
        assert sum(map(len, sections(part))) <= CAPABILITIES.max_text


@pytest.mark.ledger("PEND-66")
def test_buttons_come_last_and_the_media_before_them() -> None:
    reply = Reply(text="word " * 5000, buttons=(CONFIRM, Button(label="l" * 200, token="x" * 2000)), media=(FILE,))
    file, *texts = render(THREAD, reply)
    assert (file.call, file.arguments, file.media) == (
        "files.completeUploadExternal",
        {"channel_id": "C1", "thread_ts": "1.2"},
        FILE,
    )
    assert [part.buttons for part in texts] == [()] * (len(texts) - 1) + [reply.buttons]
    check_message(dict(texts[-1].arguments))


def test_a_reply_goes_to_its_place_with_words_for_notifications() -> None:
    [part] = render(THREAD, Reply(text="**hi**"))
    assert part.call == "chat.postMessage"
    assert {k: v for k, v in part.arguments.items() if k != "blocks"} == {
        "channel": "C1",
        "thread_ts": "1.2",
        "text": "*hi*",
        "unfurl_links": False,
        "unfurl_media": False,
    }
    assert "thread_ts" not in render(DIRECT, Reply(text="hi"))[0].arguments


def test_an_edit_has_no_buttons_and_what_is_too_long_follows() -> None:
    first, *rest = render(THREAD, Reply(text="word " * 5000, edits="1.3"))
    assert (first.call, first.arguments["ts"], first.buttons) == ("chat.update", "1.3", ())
    assert {part.call for part in rest} == {"chat.postMessage"}


def test_nothing_to_say_is_no_call() -> None:
    assert render(DIRECT, Reply()) == ()
    assert render(DIRECT, Reply(text=" \n ")) == ()
    assert sections(render(DIRECT, Reply(buttons=(CONFIRM,)))[0]) == ["…"]


def test_what_slack_would_refuse_is_refused_here() -> None:
    with pytest.raises(ValueError, match="2000 characters"):
        render(DIRECT, Reply(text="x", buttons=(Button(label="x", token="x" * 2001),)))
    with pytest.raises(ValueError, match="25 buttons"):
        render(DIRECT, Reply(text="x", buttons=(CONFIRM,) * 26))
