"""The client of the Bot API: the vendor's library over the process's HTTP session, with translated errors."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, final
from urllib.parse import urlencode

import aiohttp
from telegram import Bot, InputFile
from telegram.error import BadRequest, ChatMigrated, Conflict, Forbidden, InvalidToken, NetworkError, TelegramError
from telegram.request import BaseRequest, RequestData

from channels.channel import (
    Ambiguous,
    MissingSetting,
    PlaceRefused,
    PollingRefused,
    RateLimited,
    SendError,
    Unavailable,
    Undeliverable,
    Unreachable,
)
from channels.errors import Portable
from channels.replies import OpenMedia
from channels.transfer import Upload, read_bounded

UPDATES = ("message", "edited_message", "callback_query", "my_chat_member")
"""The subscribed kinds of update."""
_POLL_SECONDS = 50


class BotApi:
    """The Bot API for one bot."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, token: str) -> None:
        self._http = http
        self._files = f"{api_url}/file/bot{token}"
        self._request = SessionRequest(http, f"{api_url}/bot{token}")
        # The library gets the bot's id in place of its token, so that it cannot log the token.
        self._bot = Bot(
            token.partition(":")[0],
            base_url=lambda _: "",
            base_file_url=lambda _: "",
            request=self._request,
            get_updates_request=self._request,
        )

    async def call(self, method: str, /, **arguments: Any) -> Mapping[str, Any]:
        """Call a method of the Bot API and return the answered object, or an empty object. Raises SendError.

        Arguments with the value None are left out.
        """
        try:
            answer = await self._post(method, arguments)
        except TelegramError as error:
            raise send_error(error) from None
        return answer if isinstance(answer, dict) else {}

    async def set_webhook(self, url: str, secret: str) -> None:
        """Register a webhook. Raises Undeliverable with Telegram's own text about the URL, else SendError."""
        try:
            await self._post("setWebhook", {"url": url, "secret_token": secret, "allowed_updates": UPDATES})
        except BadRequest as error:
            raise Undeliverable(f"Telegram does not take this webhook: {error.message}") from None
        except TelegramError as error:
            raise send_error(error) from None

    async def updates(self, offset: int) -> Sequence[Mapping[str, Any]]:
        """Wait up to 50 seconds for updates from `offset` on, and return these.

        Updates stay dictionaries, so an update unreadable for the library does not hold up the others. Raises
        PollingRefused, else SendError.
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
        """Yield the bytes of a file, at most 20 MB. Raises SendError: Undeliverable (too large, gone) or another."""
        file = await self.call("getFile", file_id=file_id)
        async for piece in download(self._http, f"{self._files}/{file.get('file_path')}"):
            yield piece

    async def _post(self, method: str, arguments: dict[str, Any]) -> Any:
        """Call a method and return the answer. Raises TelegramError or Ambiguous.

        The library's own methods build objects from the whole answer. This takes longer than everything else.
        """
        try:
            # The library drops the underscore. Without it the library would warn that it has a method of that name.
            return await self._bot.do_api_request(f"{method}_", arguments)
        except InvalidToken as error:
            cause = error.__cause__  # tells a refused token from an unknown method
            raise cause if isinstance(cause, InvalidToken) else error from None
        except (LookupError, ValueError):
            # The answer differs from the documentation of the Bot API.
            raise Ambiguous("unreadable_answer") from None


# At DEBUG the library logs the text of each message.
logging.getLogger("telegram").setLevel(logging.INFO)

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_UPLOAD_SECONDS = 120.0
_LONGEST_ANSWER = 16 * 2**20
"""In bytes. An answer holds at most 100 updates, well below this limit."""
_KNOWN_TO_THE_LIBRARY = (400, 401, 403, 404, 409)
_FLOOD_SECONDS = 5.0
"""The wait after a 429 without a time."""


@final
class SessionRequest(BaseRequest):
    """Transport of python-telegram-bot over an aiohttp session.

    The library never gets the bot's token: the token is put into the URL here, and no error or log line of either
    library holds the token.
    """

    __slots__ = ("_http", "_longest_answer", "_root")

    def __init__(self, http: aiohttp.ClientSession, root: str, *, longest_answer: int = _LONGEST_ANSWER) -> None:
        """`root` is the Bot API's URL with the token. The URLs of requests are relative to `root`.

        `longest_answer`: in bytes.
        """
        self._http, self._root, self._longest_answer = http, root, longest_answer

    @property
    def read_timeout(self) -> float | None:
        return _ANSWER_SECONDS

    async def initialize(self) -> None:
        """No-op: the process owns the session."""

    async def shutdown(self) -> None:
        """No-op: the process owns the session."""

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: Any = BaseRequest.DEFAULT_NONE,
        write_timeout: Any = BaseRequest.DEFAULT_NONE,
        connect_timeout: Any = BaseRequest.DEFAULT_NONE,
        pool_timeout: Any = BaseRequest.DEFAULT_NONE,
    ) -> tuple[int, bytes]:
        """Make one HTTP call. Raises NotTaken, NoAnswer, TooManyRequests or Refused."""
        seconds = _UPLOAD_SECONDS if request_data and request_data.contains_files else _ANSWER_SECONDS
        if isinstance(read_timeout, int | float):
            seconds = read_timeout
        timeout = aiohttp.ClientTimeout(total=seconds, connect=_CONNECT_SECONDS)
        body = {} if request_data is None else _body(request_data)
        try:
            async with self._http.request(
                method, self._root + url, timeout=timeout, allow_redirects=False, **body
            ) as response:
                status, payload = response.status, await read_bounded(response, self._longest_answer)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise NotTaken("no_connection") from None
        except (aiohttp.ClientError, OSError):
            raise NoAnswer("no_answer") from None
        if payload is None:
            raise NoAnswer("answer_too_large")
        if status >= 500 or 300 <= status < 400:
            raise NotTaken(f"http_{status}")
        if status == 429:
            raise TooManyRequests(_wait(payload))
        if status == 413:
            raise Refused("too_large")
        if status >= 400 and not _is_telegrams(payload):
            raise NotTaken(f"http_{status}")
        if status >= 400 and status not in _KNOWN_TO_THE_LIBRARY:
            raise Refused(f"http_{status}")
        return status, payload

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """Parse an answer as the library does, but without logging the text. Raises TelegramError."""
        try:
            answer = json.loads(payload)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("parameters", {}), dict):
            raise TelegramError("unreadable answer")
        return answer


def _body(data: RequestData) -> dict[str, Any]:
    """Return the arguments as JSON, or as a form if a file is among the arguments.

    https://core.telegram.org/bots/api#making-requests
    """
    if not data.contains_files:
        return {"json": data.parameters}
    # Telegram shows a file name as it is sent, so percent-encoding would be visible.
    form = aiohttp.FormData(quote_fields=False)
    for name, value in data.json_parameters.items():
        form.add_field(name, value)
    for name, (filename, content, mime_type) in data.multipart_data.items():
        file = content if isinstance(content, bytes) else Upload(content, content_type=mime_type)
        form.add_field(name, file, filename=filename, content_type=mime_type)
    return {"data": form}


def _is_telegrams(payload: bytes) -> bool:
    """Return True if a refusal comes from the Bot API itself, and not from a proxy or a firewall.

    https://core.telegram.org/bots/api#making-requests
    """
    try:
        answer = SessionRequest.parse_json_payload(payload)
    except TelegramError:
        return False
    return answer.get("ok") is False and isinstance(answer.get("description"), str)


def _wait(payload: bytes) -> float:
    """Return the seconds to wait after a 429. https://core.telegram.org/bots/api#responseparameters"""
    try:
        seconds = SessionRequest.parse_json_payload(payload)["parameters"]["retry_after"]
    except (TelegramError, LookupError):
        return _FLOOD_SECONDS
    return float(min(seconds, 10**6)) if isinstance(seconds, int) and seconds >= 0 else _FLOOD_SECONDS


class NotTaken(Portable, NetworkError):
    """The Bot API certainly did not accept the request: not reached, answered 5xx, or refused by a proxy."""


class Refused(Portable, NetworkError):
    """An answered 4xx without an error of the library."""


class NoAnswer(Portable, NetworkError):
    """The request may have gone out completely, and no complete answer came back."""


class TooManyRequests(Portable, NetworkError):
    """An answered 429. The library's own error cannot be built without a deprecation warning."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__("too_many_requests")
        self.retry_after_seconds = retry_after_seconds


class Moved(Undeliverable):
    """The group has become a supergroup: another chat with the id `place`."""

    def __init__(self, place: str) -> None:
        super().__init__("migrated")
        self.place = place


# Descriptions of the Bot API server (github.com/tdlib/telegram-bot-api, telegram-bot-api/Client.cpp, and Telegram's own
# upper-case ones), in lower case -> the code of our error. A code stands for it, as a description may quote a person.
_CODES = (
    ("bot was blocked by the user", "blocked"),
    ("user is deactivated", "deactivated"),
    ("bot was kicked", "kicked"),
    ("bot is not a member", "not_a_member"),
    ("can't initiate conversation", "not_started"),
    ("can't send messages to bots", "is_a_bot"),
    ("chat not found", "chat_not_found"),
    ("message thread not found", "thread_not_found"),
    ("topic_closed", "topic_closed"),
    ("topic_deleted", "topic_deleted"),
    ("topic_id_invalid", "thread_not_found"),
    ("chat_write_forbidden", "no_rights"),
    ("chat_restricted", "no_rights"),
    ("chat_send_", "no_rights"),
    ("not enough rights", "no_rights"),
    ("have no rights", "no_rights"),
    ("is too long", "too_long"),
    ("text is empty", "empty"),
    ("can't parse entities", "entities"),
    ("entity_", "entities"),
    ("message is not modified", "not_modified"),
    ("message to edit not found", "message_not_found"),
    ("message to delete not found", "message_not_found"),
    ("message can't be edited", "not_editable"),
    ("message can't be deleted", "not_deletable"),
    ("no text in the message to edit", "not_editable"),
    ("button_data_invalid", "button_refused"),
    ("photo_", "photo_refused"),
    ("image_process_failed", "photo_refused"),
    ("query is too old", "query_expired"),
    ("file is too big", "file_too_large"),
    ("file_id", "file_unknown"),
)


_OF_THE_THREAD = frozenset({"thread_not_found", "topic_closed", "topic_deleted"})


def send_error(error: TelegramError) -> SendError:
    """Return the SendError for an error of the library, without text of the platform and without a secret."""
    match error:
        case TooManyRequests():
            return RateLimited(error.message, retry_after_seconds=error.retry_after_seconds)
        case ChatMigrated():
            return Moved(str(error.new_chat_id))
        case NotTaken():
            return Unavailable(error.message)
        case Refused():
            return Undeliverable(error.message)
        case Forbidden():
            return Unreachable(_code(error, "forbidden"))
        case BadRequest():
            code = _code(error, "bad_request")
            if code == "no_rights" or code in _OF_THE_THREAD:
                return PlaceRefused(code, thread=code in _OF_THE_THREAD)
            return Unreachable(code) if code == "chat_not_found" else Undeliverable(code)
        case InvalidToken():
            # 401: the token is not valid, or no longer. 404: the server does not know the method.
            if "not found" in error.message.lower():
                return Undeliverable("unknown_method")
            return Unavailable("unauthorized", mend=bad_token("unauthorized"))
        case _:
            return Ambiguous("no_answer")


def bad_token(code: str) -> MissingSetting:
    """Return the error with the mend of a token that Telegram refuses with this code."""
    return MissingSetting("TELEGRAM_BOT_TOKEN", f"Telegram does not know it ({code}): copy it again from @BotFather")


def _code(error: TelegramError, otherwise: str) -> str:
    description = error.message.lower()
    return next((code for part, code in _CODES if part in description), otherwise)


LARGEST_DOWNLOAD = 20_000_000
"""In bytes. https://core.telegram.org/bots/api#getfile."""
_SECONDS = 120.0
_CONTROLS = re.compile(r'[\x00-\x1f\x7f"\\/]')


def open_upload(media: OpenMedia) -> InputFile:
    """Open a kept file for streaming from disk. The sender closes the file. Opening may block: call this in a thread.

    Raises OSError when the file is gone.
    """
    filename = _CONTROLS.sub("_", media.filename) or "file"
    upload = InputFile(media.path.open("rb"), filename=filename, read_file_handle=False)
    upload.mimetype = media.mime_type
    return upload


async def download(http: aiohttp.ClientSession, url: str) -> AsyncIterator[bytes]:
    """Yield the bytes of a file. Raises Undeliverable past 20 MB and for a missing file, else Unavailable.

    The URL holds the bot's token and therefore appears in no error.
    """
    left = LARGEST_DOWNLOAD
    try:
        async with http.get(
            url, timeout=aiohttp.ClientTimeout(total=_SECONDS, connect=10), allow_redirects=False
        ) as response:
            if response.status in (400, 403, 404, 410):
                raise Undeliverable("file_unknown")
            if response.status != 200:
                raise Unavailable(f"http_{response.status}")
            async for piece in response.content.iter_any():
                left -= len(piece)
                if left < 0:
                    raise Undeliverable("file_too_large")
                yield piece
    except (aiohttp.ClientError, OSError):
        raise Unavailable("no_connection") from None
