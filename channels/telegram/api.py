"""The Bot API as we call it: the vendor's library over our session, its errors translated."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import aiohttp
from telegram import Bot
from telegram.error import BadRequest, Conflict, InvalidToken, TelegramError

from channels.channel import Ambiguous, Undeliverable
from channels.telegram.errors import PollingRefused, send_error
from channels.telegram.media import download
from channels.telegram.transport import SessionRequest

__all__ = ["UPDATES", "BotApi"]

UPDATES = ("message", "edited_message", "callback_query", "my_chat_member")
"""The kinds of update that we ask for."""
_POLL_SECONDS = 50


class BotApi:
    """One bot's side of the Bot API."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, token: str) -> None:
        self._http = http
        self._files = f"{api_url}/file/bot{token}"
        self._request = SessionRequest(http, f"{api_url}/bot{token}")
        # The library is told the bot's id in place of its token: what it does not know it cannot log.
        self._bot = Bot(
            token.partition(":")[0],
            base_url=lambda _: "",
            base_file_url=lambda _: "",
            request=self._request,
            get_updates_request=self._request,
        )

    async def call(self, method: str, /, **arguments: Any) -> Mapping[str, Any]:
        """The object that a method of the Bot API answers, empty for what is none. Raises SendError.

        An argument that is None is left out.
        """
        try:
            answer = await self._post(method, arguments)
        except TelegramError as error:
            raise send_error(error) from None
        return answer if isinstance(answer, dict) else {}

    async def set_webhook(self, url: str, secret: str) -> None:
        """Raises Undeliverable with Telegram's own words, which are about the URL; else SendError."""
        try:
            await self._post("setWebhook", {"url": url, "secret_token": secret, "allowed_updates": UPDATES})
        except BadRequest as error:
            raise Undeliverable(f"Telegram does not take this webhook: {error.message}") from None
        except TelegramError as error:
            raise send_error(error) from None

    async def updates(self, offset: int) -> Sequence[Mapping[str, Any]]:
        """Wait for updates from `offset` on, as they are: one that the library cannot read holds no other back.

        Raises PollingRefused, else SendError.
        """
        query = {"offset": offset, "timeout": _POLL_SECONDS, "allowed_updates": json.dumps(UPDATES)}
        try:
            answer: Any = await self._request.post(f"/getUpdates?{urlencode(query)}", read_timeout=_POLL_SECONDS + 10.0)
        except Conflict as error:
            raise PollingRefused(
                "a webhook is set, so nothing can be polled: remove it (askfirst webhooks delete)"
                if "webhook" in error.message
                else "another program polls with this token: stop it, or make a second bot at @BotFather"
            ) from None
        except InvalidToken:
            raise PollingRefused("TELEGRAM_BOT_TOKEN: Telegram does not know it (any more)") from None
        except TelegramError as error:
            raise send_error(error) from None
        except LookupError:
            raise Ambiguous("unreadable_answer") from None
        listed = answer if isinstance(answer, list) else []
        return [update for update in listed if isinstance(update, dict) and isinstance(update.get("update_id"), int)]

    async def file(self, file_id: str) -> AsyncIterator[bytes]:
        """A file's bytes, at most 20 MB. Raises Undeliverable or Unavailable."""
        file = await self.call("getFile", file_id=file_id)
        async for piece in download(self._http, f"{self._files}/{file.get('file_path')}"):
            yield piece

    async def _post(self, method: str, arguments: dict[str, Any]) -> Any:
        """What a method answers. Raises TelegramError, or Ambiguous.

        The library's own methods make objects of the whole answer, which takes longer than all else.
        """
        try:
            # With the underscore, which it drops, the library does not warn that it has a method of that name.
            return await self._bot.do_api_request(f"{method}_", arguments)
        except InvalidToken as error:
            told = error.__cause__  # which of two it is: Telegram refuses the token, or knows no such method
            raise told if isinstance(told, InvalidToken) else error from None
        except (LookupError, ValueError):
            # An answer that is not what the Bot API documents.
            raise Ambiguous("unreadable_answer") from None
