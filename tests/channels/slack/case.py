"""Slack for the contract: the documented payloads, the signature, and a Web API."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from slack_sdk.signature import Clock, SignatureVerifier

from channels import Address, Attachment, Message, Parsed, Receipt, WebhookRequest, WebhookResponse
from channels.events import event_from_json
from channels.slack import SlackChannel
from channels.slack.parse import PayloadReader
from gateway.testing import (
    RETRY_AFTER_SECONDS,
    Arrived,
    ArrivedFile,
    ChannelCase,
    Delivery,
    Fault,
    MessageField,
    Webhook,
)
from tests.fakes.slack import FakeSlack, Press

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
TEAM, BOT = "T061EG9R6", "U0LAN0Z89"
"""The workspace and the app of the payloads."""
FORM = "application/x-www-form-urlencoded"


def posted(payload: Any, as_: str) -> WebhookRequest:
    """As Slack sends it: JSON, JSON in a form, or a form."""
    match as_:
        case "json":
            kind, body = "application/json", json.dumps(payload)
        case "payload":
            kind, body = FORM, urlencode({"payload": json.dumps(payload)})
        case _:
            kind, body = f"{FORM}; charset=utf-8", urlencode(payload)
    return WebhookRequest("POST", "https://bot.example/webhooks/slack", {"content-type": kind}, body.encode())


FIXTURES = {
    path.stem: json.loads(path.read_text()) for path in sorted(Path(__file__).with_name("fixtures").glob("*.json"))
}


def delivery(name: str) -> Delivery:
    fixture = FIXTURES[name]
    assert fixture["source"].startswith("https://docs.slack.dev/"), "each names the page of its shape"
    expected = fixture["expected"]
    body = expected["body"].encode()
    headers = {"Content-Type": "text/plain; charset=utf-8"} if body else {}
    events = tuple(event_from_json(event) for event in expected["events"])
    response = WebhookResponse(headers=headers, body=body)
    parsed = Parsed(events, response, not_understood=expected["not_understood"])
    return Delivery(name=name, request=posted(fixture["payload"], fixture["as"]), parsed=parsed)


class _Then(Clock):
    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> float:
        return self._at.timestamp()


def prove(request: WebhookRequest, at: datetime, attempt: int) -> WebhookRequest:
    """By Slack's own library."""
    timestamp = str(int(at.timestamp()))
    signature = SignatureVerifier(SECRET, _Then(at)).generate_signature(timestamp=timestamp, body=request.body)
    assert signature is not None
    headers = {**request.headers, "x-slack-request-timestamp": timestamp, "x-slack-signature": signature}
    if attempt > 1:
        headers |= {"x-slack-retry-num": str(attempt - 1), "x-slack-retry-reason": "http_timeout"}
    return replace(request, headers=headers)


def written(ts: str, text: str, **fields: Any) -> WebhookRequest:
    said = json.loads(json.dumps(FIXTURES["message_im"]["payload"]))
    said["event_id"] = f"EvContract{ts}"
    said["event"] |= {"ts": ts, "event_ts": ts, "text": text, **fields}
    return posted(said, "json")


def answered(receipt: Receipt, later: bool) -> Message:
    """A yes with the stamp next to ours."""
    assert receipt.message_id is not None
    ts = Decimal(receipt.message_id) + Decimal(1 if later else -1).scaleb(-6)
    [event] = PayloadReader("slack", TEAM, BOT).read(written(str(ts), "yes")).events
    assert isinstance(event, Message)
    return event


def webhook() -> Webhook:
    ids = itertools.count(1)

    def says(text: str) -> WebhookRequest:
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return written(f"1767225600.{next(ids):06}", escaped)

    def holding(fields: Mapping[str, Any]) -> WebhookRequest:
        return written(f"1767225600.{next(ids):06}", **{"text": "yes", **fields})

    def presses(token: str) -> WebhookRequest:
        pressed = json.loads(json.dumps(FIXTURES["press_in_im"]["payload"]))
        pressed["actions"][0]["value"] = token
        return posted(pressed, "payload")

    ours = (
        name
        for name, fixture in FIXTURES.items()
        if all(event["address"]["account"] == TEAM for event in fixture["expected"]["events"])
    )
    return Webhook(
        deliveries=[delivery(name) for name in ours],
        says=says,
        presses=presses,
        fields=FIELDS,
        holding=holding,
        prove=prove,
        proof=["x-slack-signature", "x-slack-request-timestamp"],
        covers_body=True,
        window_seconds=(300, 300),
    )


class Platform:
    def __init__(self, fake: FakeSlack, patch: pytest.MonkeyPatch) -> None:
        self._fake, self._patch = fake, patch
        self.presses: list[Press] = []

    @property
    def calls(self) -> int:
        return len(self._fake.calls) + sum(len(press.answers) for press in self.presses)

    def arrived(self) -> Sequence[Arrived]:
        messages = [
            (
                int(sent.ts.partition(".")[2]),
                Arrived(
                    message_id=sent.ts,
                    text=sent.shown,
                    buttons=tuple(
                        (element["text"]["text"], element["value"])
                        for block in sent.blocks
                        if block["type"] == "actions"
                        for element in block["elements"]
                    ),
                ),
            )
            for sent in self._fake.sent
        ]
        files = [
            (
                int(file.file_id[1:]),
                Arrived(
                    message_id=None,
                    text="",
                    file=ArrivedFile(content=file.content or b"", mime_type=None, filename=file.name),
                ),
            )
            for file in self._fake.files
        ]
        return [shown for _, shown in sorted([*messages, *files], key=lambda numbered: numbered[0])]

    async def fail(self, fault: Fault) -> None:
        fake, method = self._fake, "chat.postMessage"
        match fault:
            case "limited":
                fake.fail_next(method, "ratelimited", status=429, retry_after=RETRY_AFTER_SECONDS)
            case "refused":
                fake.fail_next(method, "is_archived")
            case "unauthorized":
                fake.fail_next(method, "token_revoked")
            case "page":
                fake.fail_next(method, status=403, html=True)
            case "broken":
                fake.fail_next(method, status=502, html=True)
            case "cut":
                fake.fail_next(method, cut=True, taken=True)
            case "silent":
                self._patch.setattr("channels.slack.api._ANSWER_SECONDS", 0.1)
                fake.hold(method)
            case "away":
                await fake._runner.cleanup()


@asynccontextmanager
async def slack_case(patch: pytest.MonkeyPatch) -> AsyncIterator[ChannelCase]:
    async with FakeSlack() as fake:
        fake.team, fake.bot_user = TEAM, BOT
        ana, place = fake.person("ana"), fake.channel()
        platform = Platform(fake, patch)

        def keeps(content: bytes) -> Attachment:
            file = fake.upload("a.bin", content, "application/octet-stream")
            return Attachment(kind="document", ref=file["url_private"])

        def handle() -> str:
            press = fake._presses["pressed"] = Press(ana)
            platform.presses.append(press)
            return f"{fake.url}/actions/pressed"

        async def writes(text: str) -> None:
            await fake.says(ana, fake.direct(ana), text)

        yield ChannelCase(
            channel=SlackChannel,
            settings={
                "SLACK_BOT_TOKEN": fake.bot_token,
                "SLACK_SIGNING_SECRET": SECRET,
                "SLACK_APP_TOKEN": fake.app_token,
                "SLACK_API_URL": fake.api_url,
            },
            address=Address(channel="slack", account=TEAM, place=place, thread="1767225600.000001", group=True),
            webhook=webhook(),
            platform=platform,
            keeps=keeps,
            handle=handle,
            answered=answered,
            writes=writes,
        )


# ── The documented fields of a message event and the elements of its blocks, each with a value and the spoiling ──


HARMLESS: dict[str, Any] = {
    "app_context": {"entities": [{"type": "slack#/types/channel_id", "value": "C1"}]},
    "assistant_thread": {"action_token": "1.2.abc"},
    "attachments": [],
    "bot_id": None,
    "channel_type": "im",
    "client_msg_id": "5f2e3c1a-7a46-4d0c-9f5e-000000000001",
    "display_as_bot": False,
    "edited": None,
    "event_ts": "1767225600.000001",
    "files": [],
    "is_locked": False,
    "is_starred": True,
    "latest_reply": "1767225600.000001",
    "parent_user_id": "U061F7AUR",
    "pinned_to": ["D024BE91L"],
    "reactions": [{"name": "eyes", "count": 1, "users": ["U061F7AUR"]}],
    "reply_count": 1,
    "reply_users": ["U061F7AUR"],
    "reply_users_count": 1,
    "source_team": "T061EG9R6",
    "subscribed": True,
    "subtype": None,
    "team": "T061EG9R6",
    "thread_ts": "1767225500.000001",
    "upload": False,
    "user_profile": {"display_name": "ana"},
    "user_team": "T061EG9R6",
}
SHARED = [
    {
        "ts": "1767225500.000100",
        "author_id": "U2",
        "channel_id": "C2",
        "channel_team": "T061EG9R6",
        "is_msg_unfurl": True,
        "is_share": True,
        "message_blocks": [],
        "text": "Shall I delete the staging database?",
        "from_url": "https://tests.slack.com/archives/C2/p1767225500000100",
    }
]
"""A forwarded message. The text typed beside a forwarded message is the event's own text."""
SPOILS: list[tuple[str, Any]] = [
    ("app_id", "A1"),
    ("attachments", SHARED),
    ("attachments", [{"is_app_unfurl": True, "title": "Report"}]),
    ("bot_profile", {"id": "B1"}),
    ("display_as_bot", True),
    ("edited", {"user": "U1", "ts": "1767225600.000002"}),
    ("files", [{"id": "F1"}]),
    ("hidden", True),
    ("icons", {"emoji": ":robot_face:"}),
    ("is_ephemeral", True),
    ("metadata", {"event_type": "asked", "event_payload": {}}),
    ("root", {"ts": "1767225500.000001"}),
    ("subtype", "thread_broadcast"),
    ("subtype", "me_message"),
    ("upload", True),
    ("username", "ana"),
    ("x_files", ["F1"]),
    ("text", "~yes~"),
    ("text", "&gt; yes"),
    ("text", "```yes```"),
]
FINE_ELEMENTS = ("text", "emoji", "link", "user", "usergroup", "channel", "team", "broadcast", "color")
OTHER_ELEMENTS = (
    "attachment_mention",
    "canvas",
    "canvas_message_unfurl",
    "canvas_user_mention",
    "citation",
    "date",
    "file",
    "list_record",
    "message_mention",
    "salesforce_data_field",
    "tag",
    "work_object_mention",
    "workflow_mention",
)
STYLES = {
    **dict.fromkeys(("bold", "italic", "underline", "code", "unlink", "highlight", "client_highlight"), False),
    "strike": True,
}


def typed(element: dict[str, Any], *, in_: str = "rich_text_section", block: str = "rich_text") -> list[Any]:
    """The blocks that a client makes of a typed text."""
    return [{"type": block, "block_id": "b", "elements": [{"type": in_, "elements": [element]}]}]


WORDS = {"type": "text", "text": "yes"}
BLOCKS = [
    *((typed({"type": element}), False) for element in FINE_ELEMENTS),
    *((typed({"type": element}), True) for element in OTHER_ELEMENTS),
    *((typed(WORDS | {"style": {style: True}}), spoils) for style, spoils in STYLES.items()),
    (typed(WORDS | {"style": {"strike": False}}), False),
    *((typed(WORDS, in_=f"rich_text_{each}"), True) for each in ("quote", "preformatted", "list")),
    *(([{"type": block}], True) for block in ("section", "header", "context", "image", "video", "markdown", "table")),
    (None, False),
    ([], False),
]
FIELDS = [
    *(MessageField(name=name, value=value, spoils=False) for name, value in HARMLESS.items()),
    *(MessageField(name=name, value=value, spoils=True) for name, value in SPOILS),
    *(MessageField(name="blocks", value=value, spoils=spoils) for value, spoils in BLOCKS),
]
