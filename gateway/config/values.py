"""The types of individually checked settings. Errors describe valid values, and do not show the wrong value."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, get_args
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr

from channels.keys import keys
from gateway.config.clear import is_loopback

MAKE_ONE = 'Make one: python -c "import secrets; print(secrets.token_urlsafe(32))"'
ALLOW_CHOICES = (
    "write persons, whole channels or everybody: telegram:123456:789 (that one person of that bot), "
    "telegram:* (everybody on Telegram), webchat:site:* (who is logged in on the page), * (everybody), "
    "pairing (who asks gets a code that you confirm); "
    "several with commas between"
)
_PERSONS = re.compile(r"\*|pairing|webchat:(site|local):\*|[a-z][a-z0-9_-]*:(\*|[^\s:*]+:[^\s*]+)")
_TELEGRAM_SECRET = re.compile(r"[A-Za-z0-9_-]{16,256}")
"""Telegram's characters and upper bound: https://core.telegram.org/bots/api#setwebhook."""
_PLACEHOLDER = re.compile(
    r"change.?me|replace.?(me|this)|placeholder|example|your.?(own|secret|token)|\.\.\.|<|>", re.I
)
_FEW_CHARACTERS = 8
_SHORTEST_SECRET = 32


def _split(value: object) -> object:
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


Listed = BeforeValidator(_split)
"""Splits the text of a variable at the commas."""


_Level: TypeAlias = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


def _check_level(value: object) -> str:
    level = str(value).upper()
    if level not in get_args(_Level):
        raise ValueError(f"write one of {', '.join(get_args(_Level))}")
    return level


LogLevel: TypeAlias = Annotated[_Level, BeforeValidator(_check_level)]


def _check_public_url(value: str) -> str:
    url = _url(value)
    if url is None or url.query or url.fragment or not (url.scheme == "https" or is_loopback(url)):
        raise ValueError(
            "write it as the platforms reach you, https:// and a host, for example https://bot.example.com"
        )
    return value.rstrip("/")


PublicUrl: TypeAlias = Annotated[str, AfterValidator(_check_public_url)]


def _check_model_url(value: str) -> str:
    if _url(value) is None:
        raise ValueError("write a URL with https:// (or http://) and a host, or leave it out")
    return value


ModelUrl: TypeAlias = Annotated[str, AfterValidator(_check_model_url)]


def _check_collector_url(value: str) -> str:
    if _url(value) is None:
        raise ValueError("write the URL of the collector, for example http://127.0.0.1:4318, or leave it out")
    return value.rstrip("/")


CollectorUrl: TypeAlias = Annotated[str, AfterValidator(_check_collector_url)]


def _check_api_url(value: str) -> str:
    url = _url(value)
    if url is None or not (url.scheme == "https" or is_loopback(url)):
        raise ValueError(
            "write a URL with https:// and a host, or leave it out: plain http:// would show the token on the way, "
            "and is taken for a server on this machine alone"
        )
    return value


ApiUrl: TypeAlias = Annotated[str, AfterValidator(_check_api_url)]
"""URL of a platform's API. Every call carries the bot's token."""


def _check_store_url(value: str) -> str:
    if not re.match(r"sqlite:///.|rediss?://.", value):
        raise ValueError("write sqlite:///path/to/file.db (four slashes for an absolute path) or redis://host:6379")
    return value


StoreUrl: TypeAlias = Annotated[str, AfterValidator(_check_store_url)]


def _check_secrets(value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    if not _are_strong(value):
        raise ValueError(
            f"write a random value of at least {_SHORTEST_SECRET} characters (new,old while you change it). {MAKE_ONE}"
        )
    return value


Secrets: TypeAlias = Annotated[tuple[SecretStr, ...], AfterValidator(_check_secrets)]


def _check_admin_token(value: SecretStr) -> SecretStr:
    if not _are_strong([value]):
        raise ValueError(f"write a random value of at least {_SHORTEST_SECRET} characters. {MAKE_ONE}")
    return value


AdminToken: TypeAlias = Annotated[SecretStr, AfterValidator(_check_admin_token)]


def _check_telegram_secret(value: SecretStr) -> SecretStr:
    secrets = [SecretStr(key) for key in keys(value.get_secret_value())]
    if any(not _TELEGRAM_SECRET.fullmatch(one.get_secret_value()) or _is_guessable(one) for one in secrets):
        raise ValueError(
            "write a random value of 16 to 256 characters of A-Z, a-z, 0-9, _ and - (new,old while you change it). "
            + MAKE_ONE
        )
    return value


TelegramSecret: TypeAlias = Annotated[SecretStr, AfterValidator(_check_telegram_secret)]


def _check_persons(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value or not all(_PERSONS.fullmatch(entry) for entry in value):
        raise ValueError(ALLOW_CHOICES)
    return value


Persons: TypeAlias = Annotated[tuple[str, ...], AfterValidator(_check_persons)]


LOGOS: Final = {
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
}
"""The types of a logo's file, by the ending of its name."""
_LARGEST_LOGO: Final = 1_000_000
_ORIGIN: Final = re.compile(
    r"https://[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::(?!443$)[1-9][0-9]{0,4})?"
    r"|http://(?:localhost|127\.0\.0\.1)(?::(?!80$)[1-9][0-9]{0,4})?"
)
_COLOUR: Final = re.compile(r"#(?:[0-9A-Fa-f]{3}|[0-9A-Fa-f]{6})")
_LOGO_URL: Final = re.compile(r"https://[A-Za-z0-9.-]+(?::[0-9]+)?/[A-Za-z0-9._~%/-]*")
_MOST_TITLE: Final = 60


def _check_origins(value: tuple[str, ...]) -> tuple[str, ...]:
    if any("*" in entry for entry in value):
        raise ValueError(
            "name each site that may show the page, for example https://shop.example: with * any site could, and press "
            "its buttons unseen"
        )
    if not all(_ORIGIN.fullmatch(entry) for entry in value):
        raise ValueError(
            "write exact origins as a browser does, with commas between: https:// and a host in lower case, a port "
            "only if it is not the usual one, no path and no slash at the end, for example https://shop.example; "
            "http:// for localhost and 127.0.0.1 alone"
        )
    return value


Origins: TypeAlias = Annotated[tuple[str, ...], AfterValidator(_check_origins)]


def _check_title(value: str) -> str:
    if len(value) > _MOST_TITLE or not value.isprintable():
        raise ValueError(f"write one line of at most {_MOST_TITLE} characters")
    return value


ChatTitle: TypeAlias = Annotated[str, AfterValidator(_check_title)]


def _check_logo(value: str) -> str:
    if "://" in value:
        if not _LOGO_URL.fullmatch(value):
            raise ValueError(
                "write the path of a picture, or a URL with https://, without a query: special characters as %20"
            )
        return value
    path = Path(value)
    if path.suffix.lower() not in LOGOS:
        raise ValueError(f"write the path of a picture ({', '.join(sorted(LOGOS))}), or its https:// URL")
    try:
        size = path.stat().st_size if path.is_file() else 0
    except OSError:
        size = 0
    if not 0 < size <= _LARGEST_LOGO:
        raise ValueError(
            f"there should be a file of at most {_LARGEST_LOGO // 1_000_000} MB there, readable by the server"
        )
    return value


ChatLogo: TypeAlias = Annotated[str, AfterValidator(_check_logo)]


def _check_colour(value: str) -> str:
    if not _COLOUR.fullmatch(value):
        raise ValueError("write a CSS colour in hexadecimal, for example #0b5fff")
    return value.lower()


ChatColour: TypeAlias = Annotated[str, AfterValidator(_check_colour)]


def _url(value: str) -> SplitResult | None:
    try:
        url = urlsplit(value)
        whole = url.scheme in ("http", "https") and url.hostname and url.port != 0 and "@" not in url.netloc
    except ValueError:
        return None
    return url if whole else None


def _are_strong(secrets: Collection[SecretStr]) -> bool:
    return not any(len(secret) < _SHORTEST_SECRET or _is_guessable(secret) for secret in secrets)


def _is_guessable(secret: SecretStr) -> bool:
    value = secret.get_secret_value()
    return len(set(value)) < _FEW_CHARACTERS or _PLACEHOLDER.search(value) is not None
