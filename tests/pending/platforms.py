"""A prompt as displayed on each platform, and the arguments read back from the display."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from typing import Any

from channels import Address, Reply
from channels.slack.render import render as render_slack
from channels.telegram.render import render as render_telegram
from channels.twilio.render import render_sms, render_whatsapp
from channels.webchat.channel import render_reply
from gateway.web.markdown import to_html
from tests.tools.test_escape import read_value

__all__ = ["SEEN", "read_argument", "read_rows"]

_PART_NUMBER = re.compile(r"^\(\d+/\d+\) ")


def telegram(reply: Reply) -> str:
    """Text with entities: only the title and the words to type look different."""
    parts = render_telegram(Address(channel="telegram", account="1", place="2"), reply)
    for part in parts:
        entities: Any = part.arguments.get("entities", ())
        assert {entity["type"] for entity in entities} <= {"bold"}
    return "\n".join(str(part.arguments["text"]) for part in parts)


def slack(reply: Reply) -> str:
    """Blocks of rich text. The text of a link is the address; no user is mentioned."""
    pieces: list[str] = []
    for part in render_slack(Address(channel="slack", account="T1", place="D1"), reply):
        blocks: Any = part.arguments["blocks"]
        for element in (each for block in blocks if block["type"] == "rich_text" for each in block["elements"]):
            for piece in element["elements"]:
                assert piece["type"] == "text" or piece["url"] == piece["text"]
                pieces.append(piece["text"])
    return "".join(pieces)


def whatsapp(reply: Reply) -> str:
    """Text without the characters taken by WhatsApp for markup."""
    bodies = [_PART_NUMBER.sub("", str(part.arguments["body"])) for part in render_whatsapp(reply)]
    return re.sub(r"[*~`]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", "", "\n".join(bodies))


def sms(reply: Reply) -> str:
    """Plain text with the quotes and new lines of a plain keyboard."""
    place = Address(channel="sms", account="+15550001111", place="+15557654321")
    return "\n".join(_PART_NUMBER.sub("", str(part.arguments["body"])) for part in render_sms(place, reply))


def web_chat(reply: Reply) -> str:
    """The page's HTML; a browser joins several spaces into one."""
    [part] = render_reply(reply)
    page = _Page()
    page.feed(to_html(str(part.arguments["text"]), links=not part.arguments.get("exact")))
    page.close()
    assert page.tags <= {"p", "strong", "ul", "li", "br", "ol", "code"}
    return "".join(page.pieces)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.pieces += ["\n- "] if tag == "li" else ["\n"] if tag in ("p", "br") else []

    def handle_data(self, data: str) -> None:
        self.pieces.append(re.sub(r"\s+", " ", data) if data.strip() else "")


SEEN: Mapping[str, Callable[[Reply], str]] = {
    "telegram": telegram,
    "slack": slack,
    "whatsapp": whatsapp,
    "sms": sms,
    "web chat": web_chat,
}


def read_rows(seen: str) -> list[tuple[str, str]]:
    """Return the names and the displayed values."""
    shown = seen.translate({0x2068: None, 0x2069: None})
    found = [re.fullmatch(r" *[-•] (.+?): (.+)", line) for line in shown.split("\n")]
    return [(row[1], row[2]) for row in found if row is not None]


def read_argument(seen: str) -> Any:
    """Return the value behind a displayed value, on any platform."""
    quoted = seen[:1] == '"' == seen[-1:] and len(seen) > 1
    return read_value(f"“{seen[1:-1]}”" if quoted else seen)
