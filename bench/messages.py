"""Webhook requests of the platforms: an ordinary message each, signed like the platform's, with unique ids."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from urllib.parse import urlencode

__all__ = [
    "ANSWER",
    "CHATS",
    "PATHS",
    "SLACK_SECRET",
    "TELEGRAM_SECRET",
    "TWILIO_ACCOUNT",
    "TWILIO_TOKEN",
    "messages",
    "twilio_url",
]

TELEGRAM_SECRET = "bench-secret-token-0123456789abcdef"
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
TWILIO_ACCOUNT = "AC" + "0123456789abcdef" * 2
TWILIO_TOKEN = "f0e1d2c3b4a5968778695a4b3c2d1e0f"
PATHS = {name: f"/webhooks/{name}" for name in ("telegram", "slack", "twilio")}
CHATS = 500
"""Number of people, writing in turn."""
ANSWER = "Two invoices are open: INV-7 of March and INV-12 of May."
_TEXT = "Could you please tell me which invoices are still open this month? {}"
"""Each text is different: the bot stops answering a person's repeated text."""


def messages(platform: str, port: int, *, first: int = 1, step: int = 1) -> Iterator[bytes]:
    """Yield whole HTTP requests without end: the messages numbered `first`, `first` + `step` and so on."""
    make = {"telegram": _telegram, "slack": _slack, "twilio": _twilio}[platform]
    number = first
    while True:
        body, headers = make(number, port)
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        yield (
            f"POST {PATHS[platform]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: */*\r\nUser-Agent: bench/1.0\r\n"
            f"{head}Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        number += step


def twilio_url(port: int) -> str:
    """Return the URL for Twilio's signature."""
    return f"http://127.0.0.1:{port}{PATHS['twilio']}"


def _telegram(number: int, port: int) -> tuple[bytes, dict[str, str]]:
    chat = 100_000 + number % CHATS
    person = {"id": chat, "is_bot": False, "first_name": "Ana", "last_name": "Prado", "language_code": "en"}
    message = {
        "message_id": number,
        "from": person,
        "chat": {"id": chat, "first_name": "Ana", "last_name": "Prado", "type": "private"},
        "date": int(time.time()),
        "text": _TEXT.format(number),
    }
    body = json.dumps({"update_id": 700_000_000 + number, "message": message}).encode()
    return body, {"Content-Type": "application/json", "X-Telegram-Bot-Api-Secret-Token": TELEGRAM_SECRET}


def _slack(number: int, port: int) -> tuple[bytes, dict[str, str]]:
    now = int(time.time())
    ts = f"{now}.{number:06d}"
    event = {
        "type": "message",
        "client_msg_id": f"5f2e3c1a-7a46-4d0c-9f5e-{number:012d}",
        "user": f"U{number % CHATS:08d}",
        "text": _TEXT.format(number),
        "ts": ts,
        "team": "T0TEAM",
        "channel": f"D{number % CHATS:08d}",
        "event_ts": ts,
        "channel_type": "im",
    }
    callback = {
        "token": "verification",
        "team_id": "T0TEAM",
        "api_app_id": "A0APP",
        "event": event,
        "type": "event_callback",
        "event_id": f"Ev{number:09d}",
        "event_time": now,
        "authorizations": [{"enterprise_id": None, "team_id": "T0TEAM", "user_id": "U0BOT", "is_bot": True}],
        "is_ext_shared_channel": False,
    }
    body = json.dumps(callback).encode()
    signed = hmac.new(SLACK_SECRET.encode(), b"v0:%d:%b" % (now, body), hashlib.sha256).hexdigest()
    return body, {
        "Content-Type": "application/json",
        "X-Slack-Request-Timestamp": str(now),
        "X-Slack-Signature": f"v0={signed}",
    }


def _twilio(number: int, port: int) -> tuple[bytes, dict[str, str]]:
    fields = {
        "ToCountry": "US",
        "ToState": "CA",
        "SmsMessageSid": f"SM{number:032x}",
        "NumMedia": "0",
        "ToCity": "",
        "FromZip": "94105",
        "SmsSid": f"SM{number:032x}",
        "FromState": "CA",
        "SmsStatus": "received",
        "FromCity": "SAN FRANCISCO",
        "Body": _TEXT.format(number),
        "FromCountry": "US",
        "To": "+15550001111",
        "ToZip": "",
        "NumSegments": "1",
        "MessageSid": f"SM{number:032x}",
        "AccountSid": TWILIO_ACCOUNT,
        "From": f"+1415555{number % CHATS:04d}",
        "ApiVersion": "2010-04-01",
    }
    signed = twilio_url(port) + "".join(name + fields[name] for name in sorted(fields))
    signature = base64.b64encode(hmac.new(TWILIO_TOKEN.encode(), signed.encode(), hashlib.sha1).digest()).decode()
    return urlencode(fields).encode(), {
        "Content-Type": "application/x-www-form-urlencoded; charset=UTF-8",
        "X-Twilio-Signature": signature,
    }
