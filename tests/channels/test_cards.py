"""A question on each platform: small text below the buttons, times in the reader's zone, buttons side by side."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from channels import Address, Button, Reply
from channels.formatting import read_markdown, time_link, with_times
from channels.slack.render import render as render_slack
from channels.telegram.render import render as render_telegram
from tests.fakes.slack import check_message
from tests.fakes.telegram_limits import check_entities, check_keyboard

SLACK = Address(channel="slack", account="T1", place="D1")
TELEGRAM = Address(channel="telegram", account="1", place="2")
AT = datetime(2026, 12, 1, 6, 40, tzinfo=UTC)
UNIX = int(AT.timestamp())
SMALL = "In words: **OK K7PA** or **NO K7PA**."
PAIR = (Button(label="Confirm all", token="y", style="confirm"), Button(label="Cancel all", token="n", style="cancel"))


TIME, DAY = (time_link("6:40 UTC", AT, with_day=with_day) for with_day in (False, True))


def card(time: str = TIME, body: str = "**Pay at 6:40 UTC?**\n\nUntil {}.", **more: Any) -> Reply:
    return Reply(text=f"{body.format(time)}\n\n{SMALL}", buttons=PAIR, small=len(SMALL), exact=True, **more)


@pytest.mark.parametrize(("time", "shown_as"), [(TIME, "{time}"), (DAY, "{date_short_pretty} {time}")])
def test_slack_shows_small_text_below_the_buttons(time: str, shown_as: str) -> None:
    (part,) = render_slack(SLACK, card(time))
    arguments: Any = part.arguments
    check_message(arguments)
    text, buttons, small = arguments["blocks"]
    assert (text["type"], buttons["type"], small["type"]) == ("rich_text", "actions", "context")
    assert small["elements"] == [{"type": "plain_text", "text": "In words: OK K7PA or NO K7PA.", "emoji": False}]
    pieces = text["elements"][0]["elements"]
    dates = [piece for piece in pieces if piece["type"] == "date"]
    assert dates == [{"type": "date", "timestamp": UNIX, "format": shown_as, "fallback": "6:40 UTC"}]
    assert "Pay at 6:40 UTC?" in "".join(piece.get("text", "") for piece in pieces), "a value is no time"
    assert arguments["text"].endswith("In words: OK K7PA or NO K7PA.")


def test_slack_edit_without_buttons_keeps_the_text_together() -> None:
    (part,) = render_slack(SLACK, Reply(text=f"Hello\n\n{SMALL}", small=len(SMALL), edits="1.2"))
    arguments: Any = part.arguments
    assert [block["type"] for block in arguments["blocks"]] == ["rich_text"]
    assert "In words" in arguments["text"]


@pytest.mark.parametrize("length", [11_000, 11_900, 12_500, 40_000])
def test_slack_leaves_room_for_the_small_text(length: int) -> None:
    parts = render_slack(SLACK, card(body="word " * (length // 5)))
    for part in parts:
        check_message(dict(part.arguments))
    assert [bool(part.buttons) for part in parts][-1]


@pytest.mark.parametrize(("time", "shown_as"), [(TIME, "t"), (DAY, "wdt")])
def test_telegram_shows_times_in_the_zone_of_the_reader(time: str, shown_as: str) -> None:
    (part,) = render_telegram(TELEGRAM, card(time))
    arguments: Any = part.arguments
    check_entities(arguments["text"], arguments["entities"])
    dates = [entity for entity in arguments["entities"] if entity["type"] == "date_time"]
    start = arguments["text"].rindex("6:40 UTC")
    about = {"offset": start, "length": 8, "unix_time": UNIX, "date_time_format": shown_as}
    assert dates == [{"type": "date_time", **about}]
    assert arguments["text"].endswith("In words: OK K7PA or NO K7PA.")


def test_telegram_puts_the_numbers_of_a_plan_side_by_side() -> None:
    numbers = [Button(label=f"Confirm {number}", token=f"c{number}") for number in range(1, 6)]
    long = [Button(label="Yes, and for 1 hour", token="s"), Button(label="Change", token="g")]
    (part,) = render_telegram(TELEGRAM, Reply(text="Hello", buttons=(*PAIR, *numbers, *long)))
    arguments: Any = part.arguments
    rows = [[button["text"] for button in row] for row in check_keyboard(arguments["reply_markup"])]
    assert rows == [
        ["Confirm all", "Cancel all"],
        ["Confirm 1", "Confirm 2", "Confirm 3"],
        ["Confirm 4", "Confirm 5"],
        ["Yes, and for 1 hour"],
        ["Change"],
    ]


def test_other_links_are_no_times() -> None:
    text = f"**bold** {TIME} [x](https://a.example) [y](askfirst-time:now) [z](askfirst-time:time/1e9)"
    assert [span.kind for span in with_times(read_markdown(text)).spans] == ["bold", "time", "link", "link", "link"]


@pytest.mark.parametrize("render", [partial(render_slack, SLACK), partial(render_telegram, TELEGRAM)])
def test_model_writes_no_time(render: Any) -> None:
    (part,) = render(Reply(text=f"Done {TIME}."))
    assert "6:40 UTC" in str(part.arguments["text"]) and str(UNIX) not in str(part.arguments)
