"""Translation of the vendor's errors to the errors of channels."""

from __future__ import annotations

from telegram.error import BadRequest, ChatMigrated, Forbidden, InvalidToken, NetworkError, TelegramError

from channels.channel import (
    Ambiguous,
    MissingSetting,
    RateLimited,
    SendError,
    Unavailable,
    Undeliverable,
    Unreachable,
)
from channels.errors import Portable

__all__ = ["Moved", "NoAnswer", "NotTaken", "Refused", "TooManyRequests", "bad_token", "send_error"]


class NotTaken(Portable, NetworkError):
    """The Bot API certainly did not accept the request: not reached, answered 5xx, or refused by a proxy."""


class Refused(Portable, NetworkError):
    """An answered 4xx for which the library has no error."""


class NoAnswer(Portable, NetworkError):
    """The request may have gone out completely, and no complete answer came back."""


class TooManyRequests(Portable, NetworkError):
    """An answered 429. The library's own error for it cannot be built without a deprecation warning."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__("too_many_requests")
        self.retry_after_seconds = retry_after_seconds


class Moved(Undeliverable):
    """The group has become a supergroup, which is another chat with the id `place`."""

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


def send_error(error: TelegramError) -> SendError:
    """Return the SendError for an error of the library. It carries no text of the platform and no secret."""
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
