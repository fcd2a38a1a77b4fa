"""Replies as Block Kit: what is meant is what is seen, within Slack's limits, calling nobody."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import Address, Button, Media, Part, Reply
from channels.slack.render import render
from gateway.tools.escape import plain, shown
from tests.fakes.slack import UPDATED_TEXT, as_markdown, check_message, elements_of

DIRECT = Address(channel="slack", account="T1", place="D1")
THREAD = Address(channel="slack", account="T1", place="C1", thread="1.2", group=True)
FILE = Media(sha256="0" * 64, mime_type="image/png", filename="a.png", size=10)
CONFIRM = Button(label="Confirm", token="c", style="confirm")


def blocks(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [block for part in parts for block in cast("list[dict[str, Any]]", part.arguments["blocks"])]


def seen(markdown: str) -> str:
    """What a person sees of a reply, with marks around what is styled."""
    return as_markdown(blocks(render(THREAD, Reply(text=markdown))))


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("**bold** *italic* ~~strike~~ `code`", "*bold* _italic_ ~strike~ `code`"),
        ("# Title\n\ntext", "*Title*\n\ntext"),
        ("**a *b* c**", "*a **_b_** c*"),
        ("foo**bar**baz", "foo*bar*baz"),
        ("**one\ntwo**", "*one\ntwo*"),
        ("[label](https://example.com/?a=1&b=2)", "<https://example.com/?a=1&b=2|label>"),
        (
            "[`x`](https://example.com) **[y](https://example.com)**",
            "<https://example.com|x> *<https://example.com|y>*",
        ),
        ("[a|b>c](https://example.com)", "<https://example.com|a|b>c>"),
        ("[x](ftp://example.com) [y](/path) [z](http://)", "x y z"),
        ("[w](javascript:alert)", "[w](javascript:alert)"),
        ("[write](mailto:ana@example.com)", "<mailto:ana@example.com|write>"),
        (
            "see https://example.com/a_b?x=1&y=2.",
            "see <https://example.com/a_b?x=1&y=2|https://example.com/a_b?x=1&y=2>.",
        ),
        ("`https://example.com`", "`https://example.com`"),
        ("https://[ and https://:80 are none", "https://[ and https://:80 are none"),
        ("> quoted **x**\n> more\n\nafter", "> quoted *x*\n> more\nafter"),
        ("> quoted\n>\n> ```\n> code\n> ```", "> quoted\n> \n> `code`"),
        ("before\n\n```py\na<b && c\n```", "before\n```a<b && c```"),
        ("````\n```\n````", "```" * 3),
        ("- a\n- b\n  1. c", "• a\n• b\n  1. c"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "```a | b\n--+--\n1 | 2```"),
        ("a & b < c > d", "a & b < c > d"),
        ("&amp;lt;", "&lt;"),
    ],
)
def test_markdown_becomes_rich_text(markdown: str, expected: str) -> None:
    assert seen(markdown) == expected


@pytest.mark.parametrize(
    "text",
    [
        "rm *.log and *.tmp",
        "*not bold* _not italic_ ~not struck~ `no code`",
        "> no quote",
        "snake_case_name and 2*3*4",
        "```not a block```",
        "`a ` b` and ``",
        ":tada: @here <@U1> &amp; https://example.com/*",
        "1. a\n2. b",
    ],
)
def test_plain_text_is_shown_literally(text: str) -> None:
    """What a prompt shows of an argument is the argument: no character of it is a mark."""
    [block] = blocks(render(THREAD, Reply(text=plain(text))))
    pieces = elements_of([block])
    assert all("style" not in piece for piece in pieces)
    assert "".join(piece["text"] for piece in pieces) == text.replace("\n", " ⏎ ")


def test_code_keeps_every_character() -> None:
    [piece] = elements_of(blocks(render(THREAD, Reply(text="`` a`b*c ``"))))
    assert piece == {"type": "text", "text": "a`b*c", "style": {"code": True}}


CALLS = [
    "<!channel>",
    "<!here|here>",
    "<!everyone>",
    "<!subteam^S123|@ops>",
    "<@U123>",
    "<@U123|ana>",
    "<#C123>",
    "&lt;!channel&gt;",
    "\\<!channel\\>",
    "&#60;!here&#62;",
    "`<!channel>`",
    "```\n<!channel>\n```",
    "[<!channel>](https://example.com)",
    "[x](<!channel>)",
    "[x](!channel)",
    "[x](@U123)",
    "[x](https://example.com/<!here>)",
    "<https://example.com|bank>",
    "**<!chan**nel>",
    "| a |\n|---|\n| <!here> |",
    "slack:T1:U123",
    "@here @channel @everyone @group @ana",
]
"""What would call people if Slack read it."""
BESIDE = re.compile(r"<|@(?:here|channel|everyone|group)\b", re.IGNORECASE)
"""Of the text beside the blocks Slack would read these."""


@pytest.mark.parametrize("text", CALLS)
def test_nobody_is_called_by_what_a_model_writes(text: str) -> None:
    for reply in (Reply(text=text), Reply(text=text, buttons=(CONFIRM,))):
        parts = render(THREAD, reply)
        assert {piece["type"] for piece in elements_of(blocks(parts))} <= {"text", "link"}
        assert not any(BESIDE.search(str(part.arguments["text"])) for part in parts)


@given(st.text(alphabet="<>!@#|&;`*_~[]()\\ \nahttps:/.channelhereU1^", max_size=200))
def test_random_text_mentions_nobody_and_links_only_to_urls(text: str) -> None:
    parts = render(THREAD, Reply(text=text))
    for piece in elements_of(blocks(parts)):
        assert piece["type"] == "text" or piece["url"].startswith(("http://", "https://", "mailto:"))
    assert not any(BESIDE.search(str(part.arguments["text"])) for part in parts)


def test_edit_shows_names_as_slack_does_and_notifies_nobody() -> None:
    """Slack tells nobody of a mention that comes with an edit."""
    note = "Confirmed by `slack:T1:U061F7AUR`, done"
    [edit] = render(THREAD, Reply(text=note, edits="1.3"))
    assert as_markdown(blocks([edit])) == "Confirmed by <@U061F7AUR>, done"
    assert edit.arguments["text"] == "Confirmed by slack:T1:U061F7AUR, done"
    for reply in (Reply(text=note), Reply(text="word " * 1000 + note, edits="1.3")):
        assert "user" not in {piece["type"] for piece in elements_of(blocks(render(THREAD, reply)))}
    assert "slack:T2:U7" in as_markdown(blocks(render(THREAD, Reply(text="by `slack:T2:U7`", edits="1.3"))))


@pytest.mark.parametrize("value", ["slack:T1:U7", "<@U7>", "by slack:T1:U7, done", "`slack:T1:U7`"])
def test_a_value_names_nobody_not_even_in_an_edit(value: str) -> None:
    for edits in (None, "1.3"):
        parts = render(THREAD, Reply(text=f"**Tell {plain(shown(value))}**\n- it: {plain(shown(value))}", edits=edits))
        assert {piece["type"] for piece in elements_of(blocks(parts))} == {"text"}
        assert value in as_markdown(blocks(parts)).replace("\\", "")


@pytest.mark.parametrize(
    "text", ["&" * 16_000, "<" * 60_000, "*a " * 10_000, "*a* " * 4_000, ("[a](https://x.yz/" + "q" * 900 + ") ") * 17]
)
def test_text_built_to_be_long_is_within_the_limits_at_once(text: str) -> None:
    began = time.process_time()
    parts = render(DIRECT, Reply(text=text))
    assert time.process_time() - began < 2
    for part in parts:
        check_message(dict(part.arguments), longest=UPDATED_TEXT)


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
        "text": "hi",
        "unfurl_links": False,
        "unfurl_media": False,
    }
    assert "thread_ts" not in render(DIRECT, Reply(text="hi"))[0].arguments


def test_an_edit_has_no_buttons_and_what_is_too_long_follows() -> None:
    first, *rest = render(THREAD, Reply(text="word " * 5000, edits="1.3"))
    assert (first.call, first.arguments["ts"], first.buttons) == ("chat.update", "1.3", ())
    assert {part.call for part in rest} == {"chat.postMessage"}


def test_buttons_without_words_stand_under_dots() -> None:
    assert render(DIRECT, Reply(text=" \n ")) == ()
    assert as_markdown(blocks(render(DIRECT, Reply(buttons=(CONFIRM,))))) == "…"


def test_what_slack_would_refuse_is_refused_here() -> None:
    with pytest.raises(ValueError, match="2000 characters"):
        render(DIRECT, Reply(text="x", buttons=(Button(label="x", token="x" * 2001),)))
    with pytest.raises(ValueError, match="25 buttons"):
        render(DIRECT, Reply(text="x", buttons=(CONFIRM,) * 26))
