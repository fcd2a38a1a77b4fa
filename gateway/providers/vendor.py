"""A vendor's API: its settings, and the mapping of its library's errors to ProviderError."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from gateway.providers.base import ProviderConfigurationError, ProviderError

__all__ = ["Vendor"]

_UNPAID = re.compile(r"billing|credit|quota|(spend|usage)_limit")
"""Codes of an account without credit.

Some come with 429, and no wait helps (https://platform.openai.com/docs/guides/error-codes,
https://platform.claude.com/docs/en/api/rate-limits).
"""
_TOO_LONG = re.compile(r"context_length_exceeded|exceed_context_size|too_large")
_SAID_TOO_LONG = re.compile(r"prompt is too long|context (length|window|size)|too many (input )?tokens", re.IGNORECASE)
"""The texts of the same error, for servers without a code for it.

Anthropic reports it only in its message (https://platform.claude.com/docs/en/build-with-claude/context-windows), and
servers that speak OpenAI's API have various texts.
"""


_TOO_LONG_MEND = "the conversation is longer than the model takes: /new begins another"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """One vendor's API."""

    name: str
    url: str
    """The URL of the vendor's own server."""
    url_rule: str
    """The possible mistake in ``{VENDOR}_BASE_URL`` when the server does not know a path."""
    example: str
    """The name of a model, for error texts."""
    silences: tuple[type[Exception], ...]
    """The errors that the library raises on a timeout."""
    breaks: tuple[type[Exception], ...]
    """The errors that the library raises when the connection fails."""
    answers: type[Exception]
    """The error that the library raises for an error answer.

    It has a `status_code` and a `response`, unless it comes in the middle of a stream.
    """
    others: type[Exception]
    details: Callable[[Any], tuple[Sequence[object], object]]
    """A function that returns the candidates for the code of an error, the best first, and the field at fault."""

    @property
    def key_variable(self) -> str:
        return f"{self.name.upper()}_API_KEY"

    @property
    def url_variable(self) -> str:
        return f"{self.name.upper()}_BASE_URL"

    def settings(self, model: str, environ: Mapping[str, str]) -> tuple[str, str]:
        """Return the URL and the key. A server that is not the vendor's own may need no key.

        Raises ProviderConfigurationError, also when no model is named.
        """
        if not model:
            raise ProviderConfigurationError(self.name, f"say which model, for example {self.name}:{self.example}")
        url = environ.get(self.url_variable, "").strip() or self.url
        key = environ.get(self.key_variable, "").strip()
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            wrong = f"{self.url_variable} is not an http or https URL"
            raise ProviderConfigurationError(self.name, wrong, env_var=self.url_variable)
        if not key and parts.hostname == urlsplit(self.url).hostname:
            missing = f"{self.key_variable} is not set; set it, or use the offline provider: demo"
            raise ProviderConfigurationError(self.name, missing, env_var=self.key_variable)
        return url, key or "none"

    async def knows(self, lookup: Awaitable[object]) -> bool:
        """Return the result of a model lookup, as `KnowsModels.knows`.

        A compatible server without a model list does not know the path, and reports that without a code of the vendor.
        """
        with self.errors_mapped():
            try:
                await lookup
            except self.answers as error:
                if getattr(error, "status_code", None) == 404 and not self._codes(error):
                    return False
                raise
        return True

    @contextmanager
    def errors_mapped(self) -> Iterator[None]:
        """Map the errors of a call of the library, and of reading an answer, to ProviderError.

        The library's texts are left out: they may contain a key or a person's words.
        """
        try:
            yield
        except self.silences:
            raise ProviderError(self.name, "no answer in time", retryable=True) from None
        except self.breaks:
            raise ProviderError(self.name, "the connection failed or broke off", retryable=True) from None
        except self.answers as error:
            raise self._answered(error) from None
        except (self.others, ValueError):
            raise ProviderError(self.name, "the answer is not what the API answers", retryable=True) from None

    def _answered(self, error: Any) -> ProviderError:
        codes, about = self._codes(error), self.details(error)[1]
        field = f" ({about})" if re.fullmatch(r"[a-z_.\[\]0-9]{1,80}", str(about or "")) else ""
        code_text = f"{' '.join(codes[:1])}{field}".strip()
        status = getattr(error, "status_code", None)
        if status is None or status < 400:
            return ProviderError(self.name, f"failed half way {code_text}".strip(), retryable=True)
        unpaid = status == 402 or any(map(_UNPAID.search, codes))
        too_long = status in (400, 413, 422) and (
            status == 413 or any(map(_TOO_LONG.search, codes)) or _SAID_TOO_LONG.search(str(error)) is not None
        )
        invalid = status in (400, 422) and not unpaid
        mend = _TOO_LONG_MEND if too_long else self._mend(status, unpaid=unpaid)
        return ProviderError(
            self.name,
            ": ".join(filter(None, [f"{status} {code_text}".strip(), mend])),
            refusal="too_long" if too_long else "invalid" if invalid else None,
            retryable=not unpaid and (status in (408, 409, 429) or status >= 500),
            rate_limited=not unpaid and status == 429,
            retry_after_seconds=_retry_after_seconds(error.response.headers),
        )

    def _codes(self, error: Any) -> list[str]:
        """Return the codes of an error that have the form of a code."""
        return [str(code) for code in self.details(error)[0] if re.fullmatch(r"[A-Za-z_]{1,64}", str(code or ""))]

    def _mend(self, status: int, *, unpaid: bool) -> str:
        if unpaid:
            return f"the account of {self.key_variable} has no credit left, or is at a spending limit of its own"
        mends = {
            401: f"the key in {self.key_variable} was refused",
            403: f"the key in {self.key_variable} may not use this model",
            404: f"no such model, or {self.url_variable} {self.url_rule}",
        }
        return mends.get(status, "")


def _retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3); None without one.

    The header has seconds or a date, which is counted from the answer's own Date.
    """
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,6}(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(headers["date"])).total_seconds())
    except (ValueError, TypeError, KeyError):
        return None
