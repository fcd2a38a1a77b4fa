"""Ana and her phone: the same person on every platform. Ana writes, reads, confirms twice, and opens files."""

from __future__ import annotations

import abc
import mimetypes
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Self, TypeVar

import aiohttp

from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.fakes.twilio import FakeTwilio

__all__ = ["PHONES", "File", "Phone"]

T = TypeVar("T")

SECRET = "kYq2c8Xv0mWn4Zt6"


class File(NamedTuple):
    filename: str
    mime_type: str
    content: bytes


class Phone(abc.ABC):
    """One platform with Ana. `settings` turn the channel on, `secrets` must be in no log."""

    settings: Mapping[str, str]
    secrets: tuple[str, ...]

    @abc.abstractmethod
    async def __aenter__(self) -> Self: ...
    @abc.abstractmethod
    async def __aexit__(self, *error: object) -> None: ...

    @abc.abstractmethod
    def reached_at(self, url: str) -> None:
        """Move the bot's webhook to this public URL."""

    @abc.abstractmethod
    async def writes(self, text: str) -> None:
        """Write a text. Returns after the delivery by the platform."""

    @abc.abstractmethod
    def screen(self) -> list[str]:
        """Return the bot's messages in the present state, the oldest first."""

    @abc.abstractmethod
    async def confirms(self) -> None:
        """Say yes to the newest prompt. The platform delivers the yes twice."""

    @abc.abstractmethod
    async def file(self) -> File:
        """Wait for a file from the bot, and return the newest."""

    @abc.abstractmethod
    def refusals(self) -> list[int]:
        """Return the webhook's statuses other than 200, for the time with a webhook."""

    @abc.abstractmethod
    async def wait_for(self, condition: Callable[[], T | None]) -> T: ...

    async def reads(self, words: str) -> str:
        """Wait for a message with these words, and return the newest."""
        return await self.wait_for(lambda: next((text for text in reversed(self.screen()) if words in text), None))


class OnTelegram(Phone):
    async def __aenter__(self) -> Self:
        self._telegram = await FakeTelegram().__aenter__()
        self._ana = self._telegram.person("Ana")
        self.settings = self._telegram.settings(SECRET)
        self.secrets = (self._telegram.token.partition(":")[2], SECRET)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._telegram.__aexit__(*error)

    def reached_at(self, url: str) -> None:
        self._telegram.webhook.update(url=f"{url}/webhooks/telegram", secret=SECRET)

    async def writes(self, text: str) -> None:
        await self._telegram.person_says(self._ana, self._ana, text)

    def screen(self) -> list[str]:
        return [message.text for message in self._telegram.sent]

    async def confirms(self) -> None:
        prompt = [message for message in self._telegram.sent if "Confirm" in message.buttons][-1]
        presses = [await self._telegram.press(prompt, "Confirm", by=self._ana) for _ in range(2)]
        for press in presses:
            await self.wait_for(partial(getattr, press, "answered"))

    async def file(self) -> File:
        found = await self.wait_for(lambda: [message.file for message in self._telegram.sent if message.file])
        return File(found[-1].filename, found[-1].mime_type, found[-1].content)

    def refusals(self) -> list[int]:
        return [status for _, status in self._telegram.deliveries if status not in (None, 200)]

    async def wait_for(self, condition: Callable[[], T | None]) -> T:
        return await self._telegram.wait_for(condition)


class OnSlack(Phone):
    async def __aenter__(self) -> Self:
        self._slack = await FakeSlack().__aenter__()
        self._ana = self._slack.person("Ana")
        self._place = self._slack.direct(self._ana)
        self.settings = self._slack.settings
        self.secrets = (self._slack.bot_token, self._slack.signing_secret)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._slack.__aexit__(*error)

    def reached_at(self, url: str) -> None:
        self._slack.webhook = f"{url}/webhooks/slack"

    async def writes(self, text: str) -> None:
        await self._slack.says(self._ana, self._place, text)

    def screen(self) -> list[str]:
        return [message.text for message in self._slack.sent]

    async def confirms(self) -> None:
        prompt = [message for message in self._slack.sent if "Confirm" in message.buttons][-1]
        for _ in range(2):
            await self._slack.press(prompt, "Confirm", by=self._ana)

    async def file(self) -> File:
        found = await self.wait_for(lambda: [file for file in self._slack.files if file.content])
        kind, _ = mimetypes.guess_type(found[-1].name)  # Slack finds it out for itself
        return File(found[-1].name, kind or "", found[-1].content or b"")

    def refusals(self) -> list[int]:
        return [delivery.status for delivery in self._slack.deliveries if delivery.status not in (None, 200)]

    async def wait_for(self, condition: Callable[[], T | None]) -> T:
        return await self._slack.wait_for(condition)


class OnSms(Phone):
    whatsapp = False
    number = "+15557654321"

    async def __aenter__(self) -> Self:
        self._twilio = await FakeTwilio().__aenter__()
        self._answered: list[int] = []
        self.settings = {
            "TWILIO_ACCOUNT_SID": self._twilio.account_sid,
            "TWILIO_AUTH_TOKEN": self._twilio.auth_token,
            "TWILIO_API_URL": self._twilio.url,
            ("TWILIO_WHATSAPP_FROM" if self.whatsapp else "TWILIO_SMS_FROM"): (
                self._twilio.whatsapp if self.whatsapp else self._twilio.sms
            ),
        }
        self.secrets = (self._twilio.auth_token,)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._twilio.__aexit__(*error)

    def reached_at(self, url: str) -> None:
        self._twilio.webhook_url = f"{url}/webhooks/twilio"

    async def writes(self, text: str) -> None:
        answer = await self._twilio.person_says(self.number, text, whatsapp=self.whatsapp)
        self._answered.append(answer.status)

    def screen(self) -> list[str]:
        return [message.body for message in self._twilio.sent]

    async def confirms(self) -> None:
        yes = [found[0] for text in self.screen() if (found := re.search(r"\bOK [A-Z0-9]{4}\b", text))]
        form = self._twilio.form(self.number, yes[-1], whatsapp=self.whatsapp)
        for _ in range(2):
            self._answered.append((await self._twilio.deliver(form)).status)

    async def file(self) -> File:
        """A link in the text: phones show pictures only."""
        link = re.search(r"http\S+/artifacts/\S+", await self.reads("/artifacts/"))
        assert link is not None
        async with aiohttp.ClientSession() as http, http.get(link[0]) as found:
            assert found.content_disposition is not None
            return File(found.content_disposition.filename or "", found.content_type, await found.read())

    def refusals(self) -> list[int]:
        reports = [answered for message in self._twilio.sent for _, answered in message.reports]
        return [status for status in [*self._answered, *reports] if status not in (None, 200)]

    async def wait_for(self, condition: Callable[[], T | None]) -> T:
        return await self._twilio.wait_for(condition)


class OnWhatsApp(OnSms):
    whatsapp = True

    async def file(self) -> File:
        found = await self.wait_for(lambda: [media for message in self._twilio.sent for media in message.media])
        return File(found[-1].filename, found[-1].mime_type, found[-1].content)


PHONES: Mapping[str, type[Phone]] = {
    "telegram": OnTelegram,
    "slack": OnSlack,
    "sms": OnSms,
    "whatsapp": OnWhatsApp,
}
