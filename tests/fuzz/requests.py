"""Nearly right requests: deliveries of platforms and requests of browsers, with changes.

A request of the same seed and number is the same on each machine. The proof is made at the sending: Slack's holds
for five minutes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

from tests.channels.slack.case import FIXTURES
from tests.channels.twilio.forms import FORMS
from tests.fuzz.mutations import flipped, mutated, odd_text, written

__all__ = ["Request", "made"]

_TELEGRAM = [
    json.loads(path.read_text())
    for path in sorted((Path(__file__).parents[1] / "channels" / "telegram" / "fixtures").glob("*.json"))
]
_NOWHERE = "http://127.0.0.1:1"
_SLACK = json.loads(json.dumps(list(FIXTURES.values())).replace("https://hooks.slack.com", _NOWHERE))
"""The addresses for answers to presses, Slack's in reality, lead nowhere here."""
_METHODS = ["GET", "HEAD", "POST", "PUT", "OPTIONS", "TRACE", "get", "PROPFIND"]
_RANGES = [
    "bytes=0-",
    "bytes=-1",
    "bytes=5-2",
    "bytes=0-0,2-3",
    "bytes=999999999999999999999-",
    "items=1-2",
    "bytes=a-b",
]
_PATHS = [
    "/",
    "/livez",
    "/readyz",
    "/artifacts/",
    "/webhooks/",
    "/webhooks/webchat",
    "/chat",
    "/admin",
    "/metrics",
    "*",
]
TOKEN = "{token}"
"""In a path, the place for a valid link's token, which changes every day."""
_PROVEN = 0.85


@dataclass(frozen=True, kw_only=True)
class Request:
    """`proof`: the platform of the signature. `whole`: the frame is right, so another request may follow."""

    path: str
    method: str = "POST"
    headers: list[tuple[str, str]] = field(default_factory=list)
    """Each character of a value is a byte."""
    body: bytes = b""
    proof: str = ""
    whole: bool = True

    def to_json(self) -> str:
        return json.dumps(vars(self) | {"body": self.body.decode("latin-1")}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Request:
        found = json.loads(text)
        headers = [(name, value) for name, value in found["headers"]]
        return cls(**found | {"body": found["body"].encode("latin-1"), "headers": headers})


def made(number: int, seed: int = 1) -> Request:
    chance = Random(f"{seed}/{number}")
    kind: Callable[[int, Random], Request] = chance.choices([_telegram, _slack, _twilio, _other], [40, 30, 20, 10])[0]
    request = kind(number, chance)
    changes: dict[str, Any] = {}
    if chance.random() < 0.04:
        changes["body"] = flipped(request.body, chance)
    if chance.random() < 0.08 and request.headers:
        headers = list(request.headers)
        place = chance.randrange(len(headers))
        name, value = headers[place]
        odd = flipped(value.encode("latin-1"), chance, lambda byte: byte not in b"\r\n").decode("latin-1")
        headers[place : place + chance.randint(0, 1)] = [(name, odd), (name, value)][: chance.randint(1, 2)]
        changes["headers"] = headers
    if chance.random() < 0.02:
        length = chance.choice(["0", "-1", "1", "99999999999999999999", "262145", "5, 5", "0x10", ""])
        changes |= {"headers": [*request.headers, ("Content-Length", length)], "whole": False}
    return Request(**vars(request) | changes)


def _proof(name: str, chance: Random) -> str:
    return name if chance.random() < _PROVEN else chance.choice(["", "guess"])


def _telegram(number: int, chance: Random) -> Request:
    payload = mutated(_numbered(chance.choice(_TELEGRAM)["update"], number, ("update_id", "message_id")), chance)
    headers = [("Content-Type", chance.choice(["application/json"] * 9 + ["text/plain; charset=utf-7"]))]
    body = written(payload, chance)
    return Request(path="/webhooks/telegram", headers=headers, body=body, proof=_proof("telegram", chance))


def _slack(number: int, chance: Random) -> Request:
    fixture = chance.choice(_SLACK)
    payload = mutated(_numbered(fixture["payload"], number, ("event_id", "trigger_id", "ts", "action_ts")), chance)
    kind = "application/x-www-form-urlencoded"
    match fixture["as"]:
        case "json":
            kind, body = "application/json", written(payload, chance)
        case "payload":
            body = _form({"payload": written(payload, chance)}, chance)
        case _:
            body = _form(payload, chance)
    kind = chance.choice([kind] * 9 + ["application/xml"])
    headers = [("Content-Type", kind)]
    return Request(path="/webhooks/slack", headers=headers, body=body, proof=_proof("slack", chance))


def _twilio(number: int, chance: Random) -> Request:
    form = mutated(_numbered(dict(chance.choice(list(FORMS.values()))), number, ("MessageSid", "SmsSid")), chance)
    path = chance.choice(["/webhooks/twilio"] * 8 + ["/webhooks/twilio/status", "/webhooks/twilio?bodySHA256=0"])
    headers = [("Content-Type", "application/x-www-form-urlencoded")]
    return Request(path=path, headers=headers, body=_form(form, chance), proof=_proof("twilio", chance))


def _other(number: int, chance: Random) -> Request:
    path = chance.choice([*_PATHS, *[f"/artifacts/{TOKEN}"] * 6])
    if chance.random() < 0.5:
        end = chance.choice(["/", "?", "%00", "%2e%2e%2f" * 9, "x" * 7000, "é", ".", "?a=%zz", "//", "#"])
        path = path + end if chance.random() < 0.5 else path[: chance.randint(1, len(path))]
    headers = [("Accept", "*/*")]
    if chance.random() < 0.4:
        headers.append(("Range", chance.choice(_RANGES)))
    if chance.random() < 0.2:
        name = chance.choice(["If-Modified-Since", "If-None-Match", "If-Range", "Cookie", "Upgrade", "Last-Event-ID"])
        headers.append(
            (name, odd_text(chance).encode("utf-8", "replace").decode("latin-1").translate({13: 32, 10: 32}))
        )
    return Request(path=path, method=chance.choice(["GET"] * 4 + _METHODS), headers=headers)


def _numbered(payload: Any, number: int, names: tuple[str, ...]) -> Any:
    """Put the number into the payload's ids: otherwise all payloads except the first would be twins."""
    if isinstance(payload, list):
        return [_numbered(each, number, names) for each in payload]
    if not isinstance(payload, dict):
        return payload
    ours = {name: _numbered(each, number, names) for name, each in payload.items()}
    for name in names:
        match ours.get(name):
            case int():
                ours[name] = 1_000_000 + number
            case str() as old:
                ours[name] = f"{old[:-9]}{number:09d}"
    return ours


def _form(fields: Any, chance: Random) -> bytes:
    if not isinstance(fields, dict):
        return written(fields, chance)
    pairs = [(name, each if isinstance(each, bytes) else _field(each)) for name, each in fields.items()]
    if chance.random() < 0.05:
        pairs.append(chance.choice(pairs) if pairs else ("", b""))
    body = urlencode([(name.encode("utf-8", "surrogatepass"), each) for name, each in pairs]).encode()
    return (
        body + chance.choice([b"", b"&", b"&=", b"&a=%zz", b"&%ff=%ff", b"&a=1&a=2"]) if chance.random() < 0.1 else body
    )


def _field(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "surrogatepass")
