"""Recorded webhook requests and typed lines: the input of ``askfirst replay``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from pydantic import AwareDatetime, BaseModel, ConfigDict, PrivateAttr

from channels import ButtonPress, Event, Message, MessageEdited, WebhookRequest


class RecordedRequest(BaseModel):
    """A recorded webhook request."""

    model_config = ConfigDict(extra="forbid")

    channel: str
    """The channel's name, or the shared webhook name in the URL after ``/webhooks/``, like ``twilio``."""
    body: dict[str, Any] | str
    """The posted JSON, or the text of the body (a form or JSON)."""
    headers: dict[str, str] = {}
    at: AwareDatetime | None = None
    """Time of receipt. None: the time at which the platform says it was sent."""
    bot_name: str | None = None
    """The bot's Telegram name without the @. In a group it decides whether the bot is addressed."""
    _source: str = PrivateAttr("")

    @property
    def source(self) -> str:
        """File and line of the record."""
        return self._source

    @source.setter
    def source(self, source: str) -> None:
        self._source = source

    def request(self) -> WebhookRequest:
        """Return the request in the form that the platform sent."""
        is_json = isinstance(self.body, dict) or self.body.lstrip().startswith("{")
        body = json.dumps(self.body) if isinstance(self.body, dict) else self.body.strip()
        headers = {"content-type": "application/json" if is_json else "application/x-www-form-urlencoded"}
        headers |= {name.lower(): value for name, value in self.headers.items()}
        return WebhookRequest("POST", f"https://replay.invalid/webhooks/{self.channel}", headers, body.encode())


@dataclass(frozen=True, slots=True)
class Line:
    """A message of one person on no particular platform."""

    source: str
    text: str


def described(event: Event, request: WebhookRequest) -> str:
    person = event.person
    name = (person.name or person.user_id) if person is not None else "nobody"
    match event:
        case Message():
            command = f"/{event.command}" if event.command else ""
            words = " ".join(filter(None, [command, event.text, *(f"[{each.kind}]" for each in event.attachments)]))
            return f"{name}: {words}"
        case ButtonPress():
            return f"{name} presses [ {button_label(request, event.token) or 'a button without a label'} ]"
        case MessageEdited():
            return f"{name} changes a message: {event.text}"
        case _:
            return f"{name}: {type(event).__name__}"


def button_label(request: WebhookRequest, token: str) -> str | None:
    """Return the label of the button with this token, as found in the request, or None."""
    try:
        body = json.loads(request.body)
    except ValueError:
        form = dict(parse_qsl(request.body.decode(errors="replace"), keep_blank_values=True))
        try:
            body = json.loads(form["payload"]) if "payload" in form else form
        except ValueError:
            return None
    labels = (
        each.get("text") or each.get("ButtonText")
        for each in _objects(body)
        if token in (value for value in each.values() if isinstance(value, str))
    )
    texts = (label.get("text") if isinstance(label, dict) else label for label in labels)
    return next((label for label in texts if isinstance(label, str)), None)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a JSON value, including nested ones."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(each)
