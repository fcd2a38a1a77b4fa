"""A custom channel in one class: the private chats of LINE (https://developers.line.biz).

Your package declares it as an entry point of the group `askfirst.channels`: line = "line:LineChannel". Set
LINE_CHANNEL_SECRET and LINE_CHANNEL_TOKEN, run `askfirst serve bot.py`, and have LINE call /webhooks/line.
"""

import base64
import hmac
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

import aiohttp
from pydantic_core import from_json

from askfirst import channels as c
from askfirst.formatting import Styled, read_markdown, split, to_plain


class LineChannel:
    name = "line"
    capabilities = c.Capabilities(max_text=5_000, redelivers=True)
    settings = (
        c.Setting(name="LINE_CHANNEL_SECRET", needed_for=c.EVERY_WAY, secret=True, mend="copy it from LINE's console"),
        c.Setting(name="LINE_CHANNEL_TOKEN", needed_for=c.EVERY_WAY, secret=True, mend="issue one in LINE's console"),
        c.Setting(name="LINE_API_URL"),
    )
    limit = aiohttp.ClientTimeout(total=10)

    def __init__(self, settings: Mapping[str, str]) -> None:
        if missing := [each for each in self.settings[:2] if not settings.get(each.name)]:
            raise c.MissingSetting(missing[0].name, missing[0].mend)
        self._secret, self._token = (settings[each.name] for each in self.settings[:2])
        self._api_url = settings.get("LINE_API_URL") or "https://api.line.me"
        self._http: aiohttp.ClientSession | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: c.Way) -> Self:
        return cls(settings)

    async def start(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        await self._call("GET", "/v2/bot/info")

    async def close(self) -> None:
        self._http = None

    def verify(self, request: c.WebhookRequest, now: datetime) -> None:
        signed = base64.b64encode(hmac.digest(self._secret.encode(), request.body, "sha256"))
        if not hmac.compare_digest(request.headers.get("x-line-signature", "").encode("utf-8", "replace"), signed):
            raise c.Forged("line: the signature is missing or wrong")

    def parse(self, request: c.WebhookRequest) -> c.Parsed:
        try:
            found = [self._read(event) for event in from_json(request.body)["events"]]
        except (ValueError, LookupError, TypeError):
            raise c.Malformed("line: no JSON with events") from None
        return c.Parsed(tuple(filter(None, found)), c.WebhookResponse(), not_understood=None in found)

    def _read(self, event: object) -> c.Message | None:
        match event:
            case {
                "webhookEventId": str(event_id),
                "timestamp": int(ms),
                "source": {"type": "user", "userId": str(user)},
                "message": {"type": "text", "id": str(message_id), "text": str(text), **more},
            } if user and 0 <= ms < 10**13:
                return c.Message(
                    event_ids=(event_id,),
                    address=c.Address(channel=self.name, account="bot", place=user),
                    person=c.Person(channel=self.name, account="bot", user_id=user),
                    sent_at=datetime.fromtimestamp(ms / 1000, UTC),
                    message_id=message_id,
                    text=text,
                    reply_to=str(more["quotedMessageId"]) if "quotedMessageId" in more else None,
                )
        return None  # a group, a sticker, or an event type that is newer than this code

    def render(self, address: c.Address, reply: c.Reply) -> Sequence[c.Part]:
        pieces = split(Styled(to_plain(read_markdown(reply.text))), self.capabilities.max_text)
        words = [c.Part(call="push", arguments={"text": text}) for piece in pieces if (text := piece.text.strip())]
        files = [c.Part(call="push", arguments={"text": each.filename[:200]}, media=each) for each in reply.media]
        if reply.buttons and words:  # LINE's buttons hold too little: a question is answered by its code or a quote
            words[-1] = replace(words[-1], buttons=reply.buttons)
        return [*files, *words]

    async def send(self, address: c.Address, part: c.Part, *, key: str) -> c.Receipt:
        text = part.arguments["text"]
        if isinstance(part.media, c.OpenMedia):
            if part.media.link is None:
                raise c.Undeliverable("no_public_url")
            text = f"{text}: {part.media.link}"
        body = {"to": address.place, "messages": [{"type": "text", "text": text}]}
        retry = {"X-Line-Retry-Key": str(uuid.uuid5(uuid.NAMESPACE_OID, key))}  # LINE deduplicates by the key
        answer = await self._call("POST", "/v2/bot/message/push", json=body, headers=retry)
        return c.Receipt(message_id=answer["sentMessages"][0]["id"])

    async def _call(self, method: str, path: str, *, headers: Mapping[str, str] = {}, **more: Any) -> Any:
        if self._http is None:
            raise c.Unavailable("not_started")
        more |= {"headers": {"Authorization": f"Bearer {self._token}", **headers}, "timeout": self.limit}
        try:
            async with self._http.request(method, self._api_url + path, **more) as answer:
                match answer.status:
                    case 200 | 409:  # 409: LINE has accepted this key before
                        return await answer.json()
                    case 401:
                        raise c.Unavailable("unauthorized", mend=c.MissingSetting("LINE_CHANNEL_TOKEN", "issue one"))
                    case 429:
                        raise c.RateLimited("limited", retry_after_seconds=int(answer.headers.get("Retry-After", 60)))
                    case status if status < 500 and answer.content_type == "application/json":
                        raise c.Undeliverable(f"http_{status}")
                raise c.Unavailable(f"http_{answer.status}")
        except aiohttp.ClientConnectorError:
            raise c.Unavailable("no_connection") from None
        except (aiohttp.ClientError, TimeoutError, ValueError, LookupError):
            raise c.Ambiguous("no_answer") from None
