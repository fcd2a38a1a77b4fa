"""Payloads of the documented shapes, and bytes of no shape at all.

Each fixture names the page of Slack's documentation with its shape.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.signature import SignatureVerifier

from channels import Address, Button, Forged, Malformed, Media, Message, Parsed, Part, Reply, Stale, WebhookRequest
from channels.events import event_from_json, event_to_json
from channels.slack import SlackChannel
from channels.slack.parse import PayloadReader
from channels.slack.render import render
from gateway.tools.escape import plain, shown
from tests.channels.slack.case import FIXTURES, FORM, delivery, posted
from tests.fakes.slack import UPDATED_TEXT, as_markdown, check_message, elements_of

READER = PayloadReader("slack")


def raw(body: bytes, kind: str = "application/json") -> WebhookRequest:
    return WebhookRequest("POST", "https://bot.example/webhooks/slack", {"content-type": kind}, body)


def loaded(name: str) -> Any:
    return copy.deepcopy(FIXTURES[name])


def read(name: str, reader: PayloadReader = READER) -> Parsed:
    return reader.read(delivery(name).request)


@pytest.mark.parametrize("name", FIXTURES)
def test_a_payload_becomes_its_events(name: str) -> None:
    documented = delivery(name)
    parsed = READER.read(documented.request)
    assert parsed == documented.parsed
    assert tuple(event_from_json(event_to_json(event)) for event in parsed.events) == parsed.events


def test_a_message_and_its_mention_are_one() -> None:
    [message], [mention] = read("message_mention").events, read("app_mention").events
    assert message.address == mention.address
    assert set(message.event_ids) & set(mention.event_ids) == {"C0123/1767225600.000200"}
    assert isinstance(message, Message) and isinstance(mention, Message)
    assert message.mentions_bot and mention.mentions_bot


@pytest.mark.parametrize(
    "name", ["message_im", "app_mention", "message_changed", "reaction_added", "press_in_im", "command"]
)
@pytest.mark.parametrize("user", ["USLACKBOT", "USLACKUSER"])
def test_system_users_of_slack_are_no_persons(name: str, user: str) -> None:
    request = delivery(name).request
    (person,) = {event.person.user_id for event in READER.read(request).events if event.person is not None}
    parsed = READER.read(replace(request, body=request.body.replace(person.encode(), user.encode())))
    assert parsed.events == () and not parsed.not_understood


def test_a_press_is_in_the_conversation_of_its_prompt() -> None:
    for prompt, press in (
        ("message_channel_thread_of_a_person", "press_in_thread"),
        ("message_im", "press_in_im"),
        ("message_im", "press_on_the_root_of_a_thread"),
    ):
        assert read(prompt).events[0].address == read(press).events[0].address


@pytest.mark.parametrize(
    ("account", "names"),
    [
        ("T061EG9R6", ["shared_channel", "shared_channel_press", "press_in_channel", "workspace_of_an_organisation"]),
        ("E1", ["organisation_install", "press_in_an_organisation", "command_in_an_organisation"]),
    ],
)
def test_events_of_any_team_belong_to_our_own_account(account: str, names: list[str]) -> None:
    for name in names:
        [event] = read(name, PayloadReader("slack", account, "U0LAN0Z89")).events
        assert event.person is not None
        assert (event.address.account, event.person.account) == (account, account), name


def test_event_without_authorizations_is_of_our_own_account() -> None:
    fixture = loaded("shared_channel")
    del fixture["payload"]["authorizations"]
    [event] = PayloadReader("slack", "T061EG9R6").read(posted(fixture["payload"], "json")).events
    assert (event.address.account, str(event.person)) == ("T061EG9R6", "slack:T061EG9R6:U9OTHER")


@pytest.mark.parametrize("account", [None, "T061EG9R6"])
def test_an_installation_that_names_no_team_is_the_events_own(account: str | None) -> None:
    fixture = loaded("message_im")
    fixture["payload"]["authorizations"] = [{"user_id": "U0LAN0Z89", "is_bot": True}]
    [event] = PayloadReader("slack", account).read(posted(fixture["payload"], "json")).events
    assert event.address.account == "T061EG9R6"


def test_person_of_another_organisation_presses_as_they_write() -> None:
    reader = PayloadReader("slack", "T061EG9R6", "U0LAN0Z89")
    [written], [pressed] = read("shared_channel", reader).events, read("shared_channel_press", reader).events
    assert str(written.person) == str(pressed.person) == "slack:T061EG9R6:U9OTHER"
    [prompt] = read("message_channel_thread_of_a_person", reader).events
    assert pressed.address == prompt.address


@pytest.mark.parametrize(
    ("name", "account", "home", "is_guest"),
    [
        ("shared_channel", "T061EG9R6", "T061EG9R6", False),
        ("shared_channel", "T061EG9R6", "T0OTHER", True),
        ("shared_channel", "T061EG9R6", None, False),
        ("organisation_install", "E1", "E1", False),
        ("organisation_install", "E1", "T0OURS", False),
        ("organisation_install", "E1", "T0OTHER", True),
        ("shared_channel_press", "T061EG9R6", "T061EG9R6", False),
        ("shared_channel_press", "T061EG9R6", "T0OTHER", True),
        ("press_in_an_organisation", "E1", "E1", False),
        ("press_in_an_organisation", "E1", "T0OTHER", True),
    ],
)
def test_guest_is_a_person_of_another_workspace(name: str, account: str, home: str | None, is_guest: bool) -> None:
    """The team of an event in a shared channel may be the other company's: only the installation's counts."""
    fixture = loaded(name)["payload"]
    fixture["context_team_id"], fixture["team_id"] = "T0OURS", "T0OTHER"
    if "event" in fixture:
        fixture["event"]["user_team"] = home
    else:
        fixture["user"]["team_id"], fixture["team"] = home, {"id": "T0OTHER"}
    request = posted(fixture, loaded(name)["as"])
    [event] = PayloadReader("slack", account, "U0LAN0Z89").read(request).events
    assert event.person is not None and event.person.is_guest == is_guest


def test_events_for_the_app_in_another_workspace_are_ignored() -> None:
    for account in ("T0ELSE", "E0ELSE"):
        for name in ("message_im", "message_mention", "organisation_install", "reaction_added"):
            parsed = read(name, PayloadReader("slack", account, "U0LAN0Z89"))
            assert (parsed.events, parsed.not_understood) == ((), False)


@pytest.mark.parametrize(
    ("text", "command", "words"),
    [
        ("<@U0LAN0Z89> /stop", "stop", ""),
        ("<@U0LAN0Z89>, /Total  this\nyear", "total", "this\nyear"),
        (" /new", "new", ""),
        ("/etc/hosts is gone", None, "/etc/hosts is gone"),
        ("/ stop", None, "/ stop"),
        ("please /stop", None, "please /stop"),
        ("//stop", None, "//stop"),
    ],
)
def test_a_command_can_be_written_where_slack_takes_none(text: str, command: str | None, words: str) -> None:
    fixture = loaded("app_mention_thread")
    fixture["payload"]["event"]["text"] = text
    [event] = READER.read(posted(fixture["payload"], "json")).events
    assert isinstance(event, Message)
    assert (event.command, event.text) == (command, words)


def test_path_at_the_start_of_a_channel_message_is_no_command() -> None:
    fixture = loaded("message_channel")
    fixture["payload"]["event"]["text"] = "/tmp is full"
    [event] = READER.read(posted(fixture["payload"], "json")).events
    assert isinstance(event, Message)
    assert (event.command, event.text) == (None, "/tmp is full")


def test_the_bot_that_is_known_counts_where_slack_names_none() -> None:
    fixture = loaded("message_mention")
    del fixture["payload"]["authorizations"]
    [event] = PayloadReader("slack", bot_user="U0LAN0Z89").read(posted(fixture["payload"], "json")).events
    assert isinstance(event, Message)
    assert (event.mentions_bot, event.text) == (True, "delete INV-42, ask @bo & me")


@pytest.mark.parametrize(
    "request_",
    [
        *(raw(body) for body in (b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe{}", b"[" * 100_000, b"payload=%7B%7D")),
        raw(b"payload=%ff", FORM),
        raw(b"\xff=1", FORM),
        raw(b"payload=%7B", FORM),
        raw(b"payload=", FORM),
        raw(b"payload=[]", FORM),
        raw(b"a=1&" * 101, FORM),
        raw(b"", "APPLICATION/JSON"),
    ],
)
def test_body_neither_json_nor_form_in_utf8_is_malformed(request_: WebhookRequest) -> None:
    with pytest.raises(Malformed):
        READER.read(request_)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"type": 1},
        {"type": "event_callback"},
        {"type": "event_callback", "event_id": "", "event": {"type": "message"}},
        {"type": "event_callback", "event_id": "E", "event": {"type": "message", "user": "U"}},
        {"type": "event_callback", "event_id": "E", "team_id": "T", "event": {"type": "message", "user": "U"}},
        {"type": "event_callback", "event_id": "E", "event": None},
        {"type": "event_callback", "event_id": "E", "event": {"type": "message", "files": [None]}},
        {"type": "event_callback", "event_id": "E", "event": {"type": "reaction_added", "item": 5}},
        {"type": "block_actions"},
        {"type": "block_actions", "user": {"id": "U"}, "container": {}, "actions": ["x"]},
        {"type": "url_verification"},
    ],
)
def test_authentic_payload_of_unknown_shape_is_not_understood(payload: dict[str, Any]) -> None:
    for as_ in ("json", "payload"):
        parsed = READER.read(posted(payload, as_))
        assert (parsed.events, parsed.not_understood) == ((), True)


def test_message_with_half_a_surrogate_pair_is_read() -> None:
    """Slack cuts long texts, perhaps within an emoji. The half may be in an unread field."""
    fixture = loaded("message_im")
    fixture["payload"]["event"] |= {"text": "delete \ud83d\ude00 INV-42 \ud83d", "blocks": [{"text": "\ude00"}]}
    for as_ in ("json", "payload"):
        [event] = READER.read(posted(fixture["payload"], as_)).events
        assert isinstance(event, Message)
        assert event.text == "delete 😀 INV-42 ?"


@pytest.mark.parametrize("ts", ["", "x", "999999999999.1", "1.2.3", "nan", "١.٢", "1" * 400])
def test_a_time_that_no_calendar_holds_is_unknown(ts: str) -> None:
    fixture = loaded("message_im")
    fixture["payload"]["event"]["ts"] = ts
    parsed = READER.read(posted(fixture["payload"], "json"))
    assert all(event.sent_at is None for event in parsed.events)
    assert parsed.not_understood == (ts == "")


def test_a_body_built_to_be_slow_is_read_at_once() -> None:
    for text in ("<" * 200_000, "<@U0LAN0Z89>" * 20_000, "<a|" * 70_000, " " * 200_000, ", " * 100_000):
        fixture = loaded("message_im")
        fixture["payload"]["event"]["text"] = text + "x"
        body = posted(fixture["payload"], "json")
        began = time.process_time()
        READER.read(body)
        assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("text", "spoils"),
    [
        ("~yes~", True),
        ("OK ~K7P2~", True),
        ("&gt; yes", True),
        ("ok\n&gt;yes", True),
        ("```yes```", True),
        ("yes", False),
        ("*yes* _please_ `K7P2`", False),
        ("5 &gt; 4", False),
        ("about ~5", False),
    ],
)
def test_marks_in_a_text_without_blocks_spoil_it(text: str, spoils: bool) -> None:
    payload = loaded("message_im")["payload"]
    payload["event"]["text"] = text
    payload["event"].pop("blocks", None)
    [message] = READER.read(posted(payload, "json")).events
    assert isinstance(message, Message)
    assert (message.spoiled_by, message.unknown_fields) == (("text",) if spoils else (), ())


@pytest.mark.parametrize("blocks", [[{"type": "hologram"}], [{"type": "rich_text", "elements": ["yes"]}], "yes", 7])
def test_unknown_blocks_are_an_unknown_field(blocks: Any) -> None:
    payload = loaded("message_im")["payload"]
    payload["event"]["blocks"] = blocks
    [message] = READER.read(posted(payload, "json")).events
    assert isinstance(message, Message)
    assert (message.spoiled_by, len(message.unknown_fields)) == ((), 1)
    assert message.unknown_fields[0].startswith("blocks.")


# ── Only a request signed by Slack within five minutes is Slack's ──


SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
CHANNEL = SlackChannel("xoxb-1", SECRET)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BODY = '{"text": "für alle 🧾"}'.encode()


def signature(at: datetime = NOW) -> dict[str, str]:
    timestamp = str(int(at.timestamp()))
    signed = SignatureVerifier(SECRET).generate_signature(timestamp=timestamp, body=BODY)
    assert signed is not None
    return {"x-slack-request-timestamp": timestamp, "x-slack-signature": signed}


def asked(headers: dict[str, str]) -> WebhookRequest:
    return WebhookRequest("POST", "https://bot.example/webhooks/slack", headers, BODY)


@pytest.mark.ledger("MISC-18")
def test_old_and_future_are_stale() -> None:
    for seconds in (0, 299, -299, 300, -300):
        CHANNEL.verify(asked(signature(at=NOW + timedelta(seconds=seconds))), NOW)
    for seconds in (301, -301, 86400 * 365, -86400 * 365):
        with pytest.raises(Stale):
            CHANNEL.verify(asked(signature(at=NOW + timedelta(seconds=seconds))), NOW)


def test_channel_without_a_secret_refuses_every_request() -> None:
    with pytest.raises(Forged):
        SlackChannel("xoxb-1").verify(asked(signature()), NOW)


"""A header's value from the web server: bytes outside UTF-8 are lone surrogates."""


# ── Replies as Block Kit: shown as meant, within Slack's limits, mentioning no person ──


DIRECT = Address(channel="slack", account="T1", place="D1")
THREAD = Address(channel="slack", account="T1", place="C1", thread="1.2", group=True)
FILE = Media(sha256="0" * 64, mime_type="image/png", filename="a.png", size=10)
CONFIRM = Button(label="Confirm", token="c", style="confirm")


def blocks(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [block for part in parts for block in cast("list[dict[str, Any]]", part.arguments["blocks"])]


def seen(markdown: str) -> str:
    """Return the visible text of a reply, with marks around styled words."""
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
    """A prompt shows an argument unchanged: no character becomes a mark."""
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
"""Texts that Slack, reading them as markup, would turn into mentions."""
BESIDE = re.compile(r"<|@(?:here|channel|everyone|group)\b", re.IGNORECASE)
"""The markup that Slack would read in the text beside the blocks."""


@pytest.mark.parametrize("text", CALLS)
def test_text_of_a_model_mentions_no_person(text: str) -> None:
    for reply in (Reply(text=text), Reply(text=text, buttons=(CONFIRM,))):
        parts = render(THREAD, reply)
        assert {piece["type"] for piece in elements_of(blocks(parts))} <= {"text", "link"}
        assert not any(BESIDE.search(str(part.arguments["text"])) for part in parts)


@given(st.text(alphabet="<>!@#|&;`*_~[]()\\ \nahttps:/.channelhereU1^", max_size=200))
def test_random_text_mentions_no_person_and_links_only_to_urls(text: str) -> None:
    parts = render(THREAD, Reply(text=text))
    for piece in elements_of(blocks(parts)):
        assert piece["type"] == "text" or piece["url"].startswith(("http://", "https://", "mailto:"))
    assert not any(BESIDE.search(str(part.arguments["text"])) for part in parts)


def test_edit_shows_names_as_slack_does_and_notifies_no_person() -> None:
    """Slack notifies no person of a mention in an edit."""
    note = "Confirmed by `slack:T1:U061F7AUR`, done"
    [edit] = render(THREAD, Reply(text=note, edits="1.3"))
    assert as_markdown(blocks([edit])) == "Confirmed by <@U061F7AUR>, done"
    assert edit.arguments["text"] == "Confirmed by slack:T1:U061F7AUR, done"
    for reply in (Reply(text=note), Reply(text="word " * 1000 + note, edits="1.3")):
        assert "user" not in {piece["type"] for piece in elements_of(blocks(render(THREAD, reply)))}
    assert "slack:T2:U7" in as_markdown(blocks(render(THREAD, Reply(text="by `slack:T2:U7`", edits="1.3"))))


@pytest.mark.parametrize("value", ["slack:T1:U7", "<@U7>", "by slack:T1:U7, done", "`slack:T1:U7`"])
def test_a_value_mentions_no_person_not_even_in_an_edit(value: str) -> None:
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


def test_an_edit_has_no_buttons_and_surplus_text_follows() -> None:
    first, *rest = render(THREAD, Reply(text="word " * 5000, edits="1.3"))
    assert (first.call, first.arguments["ts"], first.buttons) == ("chat.update", "1.3", ())
    assert {part.call for part in rest} == {"chat.postMessage"}


def test_buttons_without_words_stand_under_dots() -> None:
    assert render(DIRECT, Reply(text=" \n ")) == ()
    assert as_markdown(blocks(render(DIRECT, Reply(buttons=(CONFIRM,))))) == "…"


def test_reply_beyond_limits_of_slack_is_refused_before_sending() -> None:
    with pytest.raises(ValueError, match="2000 characters"):
        render(DIRECT, Reply(text="x", buttons=(Button(label="x", token="x" * 2001),)))
    with pytest.raises(ValueError, match="25 buttons"):
        render(DIRECT, Reply(text="x", buttons=(CONFIRM,) * 26))
