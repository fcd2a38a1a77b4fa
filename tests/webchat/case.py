"""The chat page for the contract: the session cookie, and the visible log in place of a platform."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from channels import Address, Attachment, ButtonPress, Message, Parsed, Person, Receipt, WebhookRequest, WebhookResponse
from channels.webchat import COOKIE, SessionCookies, WebChatChannel
from channels.webchat.parse import parse_event
from channels.webchat.verify import SESSION_SECONDS
from gateway.testing import ChannelCase, Delivery, MessageField, Webhook

KEY = "k" * 32
SESSION = "s" * 22
ADDRESS = Address(channel="webchat", account="local", place=SESSION)
ANSWER = WebhookResponse(headers={"Content-Type": "application/json"}, body=b'{"status": "accepted"}')


def posted(said: dict[str, Any]) -> WebhookRequest:
    """A body of the page. The page posts to another path, with the same meaning to the channel."""
    headers = {
        "content-type": "application/json",
        "host": "localhost:8000",
        "origin": "http://localhost:8000",
        "cookie": f"{COOKIE}={SESSION}.0.{'A' * 43}",  # names the session; `prove` replaces it by a true cookie
        "accept-language": "pt-BR,pt;q=0.9",
    }
    return WebhookRequest("POST", "http://localhost:8000/webhooks/webchat", headers, json.dumps(said).encode())


def prove(request: WebhookRequest, at: datetime, attempt: int) -> WebhookRequest:
    cookie = SessionCookies([KEY.encode()]).sign(SESSION, at).cookie
    return replace(request, headers={**request.headers, "cookie": f"{COOKIE}={cookie}"})


def parsed(kind: type[Message] | type[ButtonPress], client_id: str, **fields: Any) -> Parsed:
    person = Person(channel="webchat", account="local", user_id=SESSION, language="pt-BR")
    event = kind(event_ids=(f"{SESSION}:{client_id}",), address=ADDRESS, person=person, **fields)
    return Parsed((event,), ANSWER)


def answered(receipt: Receipt, later: bool) -> Message:
    """A yes from a page that shows our message, or only earlier messages."""
    event = parse_event(
        posted({"client_id": "answered", "text": "yes", "after": receipt.message_id if later else "m0"})
    )
    assert isinstance(event, Message)
    return event


class Page(WebChatChannel):
    """The channel of a page with the files of a directory as uploads. A token is a file name."""

    uploads: Path

    def __init__(self, *, keys: Sequence[bytes], hosts: Sequence[str]) -> None:
        super().__init__(keys=keys, hosts=hosts)
        self.uploaded = lambda session, token: self.uploads / token if (session, token) == (SESSION, "mine") else None


def webchat_case(directory: Path) -> ChannelCase:
    ids = itertools.count(1)
    file = {"token": "mine", "filename": "cat.png", "mime_type": "image/png", "size": 9}
    ref = f"{SESSION}:mine"
    picture = Attachment(kind="image", ref=ref, mime_type="image/png", filename="cat.png", size=9)
    notes = Attachment(kind="document", ref=ref, mime_type="text/plain; charset=utf-8", filename="notes.txt", size=9)
    Page.uploads = directory

    def keeps(content: bytes) -> Attachment:
        (directory / "mine").write_bytes(content)
        return picture

    pressed = {"client_id": "pressed-1", "token": "00abc", "message_id": "m1"}
    return ChannelCase(
        channel=Page,
        settings={"WEBCHAT_KEY": KEY, "WEBCHAT_HOSTS": "localhost,127.0.0.1"},
        address=ADDRESS,
        webhook=Webhook(
            deliveries=[
                Delivery(
                    name="message",
                    request=posted({"client_id": "abcdefgh", "text": " apaga a fatura\0 "}),
                    parsed=parsed(Message, "abcdefgh", text="apaga a fatura", message_id="abcdefgh"),
                ),
                Delivery(
                    name="command",
                    request=posted({"client_id": "abcdefgi", "text": "/Remind me\ntomorrow"}),
                    parsed=parsed(Message, "abcdefgi", text="me\ntomorrow", command="remind", message_id="abcdefgi"),
                ),
                Delivery(
                    name="message beneath another",
                    request=posted({"client_id": "abcdefgj", "text": "yes", "after": "m7"}),
                    parsed=parsed(Message, "abcdefgj", text="yes", message_id="abcdefgj", after="m7"),
                ),
                Delivery(
                    name="files without words",
                    request=posted(
                        {
                            "client_id": "abcdefgk",
                            "text": "",
                            "files": [
                                file,
                                {**file, "filename": "notes.txt", "mime_type": "text/plain; charset=utf-8"},
                            ],
                        }
                    ),
                    parsed=parsed(Message, "abcdefgk", text="", message_id="abcdefgk", attachments=(picture, notes)),
                ),
                Delivery(
                    name="press",
                    request=posted(pressed),
                    parsed=parsed(ButtonPress, "pressed-1", token="00abc", message_id="m1"),
                ),
            ],
            says=lambda text: posted({"client_id": f"message-{next(ids)}", "text": text}),
            presses=lambda token: posted({**pressed, "token": token}),
            fields=[MessageField(name="after", value=value, spoils=False) for value in ("m7", None)],
            holding=lambda fields: posted({"client_id": f"message-{next(ids)}", "text": "yes", **fields}),
            prove=prove,
            proof=["cookie"],
            covers_body=False,
            window_seconds=(SESSION_SECONDS, 60),
        ),
        platform=None,
        recognises_keys=True,
        answered=answered,
        keeps=keeps,
    )
