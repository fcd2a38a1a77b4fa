"""A vendor's API: settings, the library's errors as ProviderError, and the common part of the providers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from channels import Json
from gateway.config.clear import refuse_clear
from gateway.providers import prices
from gateway.providers.answer_schema import strict_schema
from gateway.providers.base import ProviderConfigurationError, ProviderError, Request
from gateway.providers.lenient import FailedAnswer, where
from gateway.providers.refusals import fields_in, words_of

_UNPAID = re.compile(r"billing|credit|quota|(spend|usage)_limit")
"""Codes of an account without credit.

Some come with 429, and no wait helps (https://platform.openai.com/docs/guides/error-codes,
https://platform.claude.com/docs/en/api/rate-limits).
"""
TRANSIENT = re.compile(r"tool_use_failed|json_validate_failed")
"""Codes of a 400 for the model's own words, worth a retry (https://github.com/pydantic/pydantic-ai/pull/2774)."""
_CODE = re.compile(r"[A-Za-z_]{1,64}")
_TOO_LONG = re.compile(r"context_length_exceeded|exceed_context_size|too_large")
_SAID_TOO_LONG = re.compile(
    r"prompt is too long|context (length|window|size|limit)|too many (input )?tokens", re.IGNORECASE
)
"""The texts of the same error, for servers without a code.

Anthropic reports the error only in the message (https://platform.claude.com/docs/en/build-with-claude/context-windows),
and servers with OpenAI's API have various texts.
"""


_TOKENS = (
    re.compile(r"(?P<sent>\d+) tokens > (?P<taken>\d+) maximum"),
    re.compile(r"exceed context limit: (?P<sent>\d+) \+ \d+ > (?P<taken>\d+)"),
    re.compile(r"maximum context length is (?P<taken>\d+) tokens\D*(?P<sent>\d+) tokens"),
    re.compile(r"maximum context length is (?P<taken>\d+)"),
    re.compile(r"n_prompt_tokens\D+(?P<sent>\d+)\D+n_ctx\D+(?P<taken>\d+)"),
)
"""The texts with the number of sent tokens and the model's limit.

Sources: https://platform.claude.com/docs/en/build-with-claude/context-windows,
https://github.com/docker/docker-agent/issues/569, https://github.com/vercel/ai/issues/428 and
https://github.com/ggml-org/llama.cpp/pull/15780.
"""
_REFUSED = re.compile(r"invalid_prompt|policy")
"""The codes of an answer stopped by the vendor's rules for content.

See `ResponseError` in https://developers.openai.com/api/reference/resources/responses.
"""

_NO_KEY = "none"
"""The key for a server that needs none."""
_INVALID_MEND = "docs/models.md, What a server does not take"
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
    """The library's errors for a timeout."""
    breaks: tuple[type[Exception], ...]
    """The library's errors for a failed connection."""
    answers: type[Exception]
    """The library's error for an error answer.

    The error has a `status_code` and a `response`, except in the middle of a stream.
    """
    others: type[Exception]
    connect: Callable[..., Any]
    """The library's client, made of `api_key`, `base_url` and `max_retries`."""
    without_schemas: re.Pattern[str]
    """The models without enforcement of a schema."""
    details: Callable[[Any], tuple[Sequence[object], object]]
    """A function: error -> the candidates for the code of the error, the best first, and the field at fault."""

    @property
    def key_variable(self) -> str:
        return f"{self.name.upper()}_API_KEY"

    @property
    def url_variable(self) -> str:
        return f"{self.name.upper()}_BASE_URL"

    def settings(self, model: str, environ: Mapping[str, str]) -> tuple[str, str]:
        """Return the URL and the key. A server other than the vendor's own may need no key.

        Raises ProviderConfigurationError, also without a model.
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
        return url, key or _NO_KEY

    @contextmanager
    def errors_mapped(self, request: Request | None = None, secret: str = "") -> Iterator[None]:
        """Map the errors of a call of the library, and of reading an answer, to ProviderError.

        The library's texts are left out: a key or a person's words may be in them. The server's words about a refused
        `request` are kept, cleaned of both. `secret`: the key, also in a form of no vendor.
        """
        try:
            yield
        except self.silences:
            raise ProviderError(self.name, "no answer in time", retryable=True) from None
        except self.breaks:
            raise ProviderError(self.name, "the connection failed or broke off", retryable=True) from None
        except self.answers as error:
            raise self._answered(error, request, secret) from None
        except FailedAnswer as error:
            body = error.body if isinstance(error.body, Mapping) else {"message": str(error.body)}
            code = str(body.get("code") or body.get("type") or "")
            raise self.failed(code, str(body), _without(secret, words_of(body, request))) from None
        except ValidationError as error:
            fault = where(error)
            raise ProviderError(
                self.name, f"the answer is not what the API answers ({fault})", retryable=True, fault=fault
            ) from None
        except (self.others, ValueError, RecursionError):
            raise ProviderError(self.name, "the answer is not what the API answers", retryable=True) from None

    def _answered(self, error: Any, request: Request | None, secret: str) -> ProviderError:
        codes, body = self.codes(error), getattr(error, "body", None)
        words = _without(secret, words_of(body, request))
        about = self.details(error)[1] or next(fields_in(body), "")
        field = f" ({about})" if re.fullmatch(r"[a-z_.\[\]0-9]{1,80}", str(about)) else ""
        code_text = f"{' '.join(codes[:1])}{field}".strip()
        status = getattr(error, "status_code", None)
        if status is None or status < 400:
            return self.failed(" ".join(codes[:1]), str(error), words)
        unpaid = status == 402 or any(map(_UNPAID.search, codes))
        too_long = status in (400, 413, 422) and (
            status == 413 or any(map(_TOO_LONG.search, codes)) or _SAID_TOO_LONG.search(str(error)) is not None
        )
        transient = status == 400 and any(map(TRANSIENT.search, codes))
        invalid = status in (400, 422) and not unpaid and not transient
        said = f"{status} {code_text}".strip()
        if too_long:
            return self._too_long(said, str(body or error))
        if words and status not in (401, 402, 403) and not unpaid:
            said += f', the server says "{words}"'
        return ProviderError(
            self.name,
            ": ".join(filter(None, [said, self._mend(status, unpaid=unpaid, transient=transient)])),
            refusal="invalid" if invalid else None,
            fault=code_text if transient else None,
            retryable=not unpaid and (transient or status in (408, 409, 429) or status >= 500),
            rate_limited=not unpaid and status == 429,
            retry_after_seconds=_retry_after_seconds(error.response.headers),
        )

    def failed(self, code: str | None, text: str | None, words: str = "") -> ProviderError:
        """Return the error of an answer with a late failure, by the vendor's code and text.

        The text is read, but not repeated. `words`: the repeatable part.
        """
        code = code if code and _CODE.fullmatch(code) else ""
        said = f"failed half way {code}".strip() + (f', the server says "{words}"' if words else "")
        if _TOO_LONG.search(code) or _SAID_TOO_LONG.search(text or ""):
            return self._too_long(said, text or "")
        if _UNPAID.search(code):
            return ProviderError(self.name, f"{said}: {self._mend(402, unpaid=True)}", retryable=False)
        refused = _REFUSED.search(code) is not None
        return ProviderError(
            self.name,
            said,
            retryable=not refused,
            rate_limited="rate_limit" in code,
            refusal="invalid" if refused else None,
        )

    def _too_long(self, said: str, text: str) -> ProviderError:
        found = next((found for each in _TOKENS if (found := each.search(text))), None)
        tokens = {name: int(count) for name, count in (found.groupdict() if found else {}).items()}
        return ProviderError(
            self.name,
            f"{said}: {_TOO_LONG_MEND}",
            retryable=False,
            refusal="too_long",
            sent_tokens=tokens.get("sent"),
            taken_tokens=tokens.get("taken"),
        )

    def codes(self, error: Any) -> list[str]:
        """Return the codes of an error in the form of a code."""
        return [str(code) for code in self.details(error)[0] if _CODE.fullmatch(str(code or ""))]

    def _mend(self, status: int, *, unpaid: bool, transient: bool = False) -> str:
        if unpaid:
            return f"the account of {self.key_variable} has no credit left, or is at a spending limit of its own"
        mends = {
            401: f"the key in {self.key_variable} was refused",
            403: f"the key in {self.key_variable} may not use this model",
            404: f"no such model, or {self.url_variable} {self.url_rule}",
            **({} if transient else dict.fromkeys((400, 422), _INVALID_MEND)),
        }
        return mends.get(status, "")


def _without(secret: str, words: str) -> str:
    return words.replace(secret, "…") if secret and secret != _NO_KEY else words


def _retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3); None without a header.

    The header has seconds, or a date relative to the answer's own Date.
    """
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,6}(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - parsedate_to_datetime(headers["date"])).total_seconds())
    except (ValueError, TypeError, KeyError):
        return None


class _Client(Protocol):
    @property
    def models(self) -> Any: ...

    async def close(self) -> None: ...


Client = TypeVar("Client", bound=_Client)


class Connections(Generic[Client]):
    """A holder of a vendor's client for the running loop: connections of another loop (see `run_sync`) are dead."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._connecting: tuple[asyncio.AbstractEventLoop, asyncio.Future[Client]] | None = None

    async def client(self) -> Client:
        loop = asyncio.get_running_loop()
        if self._connecting is None or self._connecting[0] is not loop:
            # In a thread, because the vendors' libraries read all certificates of the system.
            self._connecting = loop, asyncio.ensure_future(asyncio.to_thread(self._connect))
        return await asyncio.shield(self._connecting[1])

    async def close(self) -> None:
        """Close the connections. The next call of `client` opens new ones."""
        connecting, self._connecting = self._connecting, None
        if connecting and connecting[0] is asyncio.get_running_loop():
            await (await connecting[1]).close()


class VendorProvider(Generic[Client]):
    """The common part of all vendors' providers. The vendors' libraries do not retry: the agent's loop retries.

    A subclass names the `vendor`, and has `complete` and `stream`.
    """

    vendor: ClassVar[Vendor]
    name: str

    def __init__(
        self,
        model: str,
        *,
        api_key: str,
        base_url: str = "",
        whole_api: bool | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`base_url`: the server; empty: the vendor's own.

        `whole_api`: the server has the vendor's whole API, including the enforcement of an answer's JSON Schema. None:
        True only for the vendor's own server. Raises MissingSetting for a server in clear on another host without
        permission in ASKFIRST_CLEAR.
        """
        self.model = model
        """The model of a request without a model."""
        vendor, self._url, self._clock = self.vendor, base_url or self.vendor.url, clock
        self._secret = api_key
        refuse_clear("models", self._url, vendor.url_variable)
        self._whole_api = self._url.rstrip("/") == vendor.url if whole_api is None else whole_api

        def connect() -> Client:
            prices.load()
            client: Client = vendor.connect(api_key=api_key, base_url=self._url, max_retries=0)
            return client

        self._connections = Connections(connect)

    @classmethod
    def from_environ(cls, model: str, environ: Mapping[str, str]) -> Self:
        """Make the provider from ``{VENDOR}_API_KEY`` and ``{VENDOR}_BASE_URL``. Raises ProviderConfigurationError."""
        base_url, key = cls.vendor.settings(model, environ)
        prices.load()
        return cls(model, api_key=key, base_url=base_url)

    @property
    def identity(self) -> str:
        """The server and the model, for the keys of a cache."""
        return f"{self.name} {self._url} {self.model}"

    def takes_schema(self, schema: Mapping[str, Json], model: str | None) -> bool:
        """Answer as TakesSchemas.takes_schema does."""
        known = self.vendor.without_schemas.search(model or self.model) is None
        return self._whole_api and known and strict_schema(schema) is not None

    async def knows(self, model: str | None = None, *, timeout_seconds: float) -> bool:
        """Look up the model, as KnowsModels.knows does.

        A compatible server without a model list does not know the path, and answers without a vendor's error code.
        """
        models, vendor = (await self._connections.client()).models, self.vendor
        with vendor.errors_mapped():
            try:
                await models.retrieve(model or self.model, timeout=timeout_seconds)
            except vendor.answers as error:
                if getattr(error, "status_code", None) == 404 and not vendor.codes(error):
                    return False
                raise
        return True

    async def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        await self._connections.close()
