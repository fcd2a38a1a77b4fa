"""Handling of one webhook request: verify, parse, store, then answer. Independent of the web server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, TypeAlias, cast

from channels import (
    AskfirstError,
    CanAskAgain,
    CanVouch,
    Channel,
    Forged,
    Malformed,
    NotOurs,
    Parsed,
    SharesWebhook,
    Stale,
    WebhookRequest,
    WebhookResponse,
)
from channels.catalogue import settings_of
from gateway.observe.caller import TRACEPARENT
from gateway.observe.events import WebhookHandled, WebhookRejected
from gateway.observe.teller import SILENT, Teller
from gateway.timing.deadlines import Deadline
from gateway.wording import say

Accept: TypeAlias = Callable[[Channel, Parsed], Awaitable[None]]
"""Store the events of a request, durably on return. Raises AskfirstError."""

Answered: TypeAlias = Callable[[], float]
"""Return the time of the store's last answer, by the clock of the event loop."""

Unstored: TypeAlias = Callable[[Channel, Parsed], str]
"""Report an unstored request. Returns the text for the person, if the platform does not deliver the request again."""

ACCEPT_SECONDS = 0.25
"""Silence of the store that counts as a failed attempt. A busy process refuses no event while the store answers.
Platforms wait a few seconds (Slack: 3), and deliver again after a refusal."""

INSIST_SECONDS = 3.0
"""Time for retries of storing when the platform does not deliver again. Then the person is asked to write once more.
Twilio waits 15 seconds (https://www.twilio.com/docs/usage/webhooks/webhooks-connection-overrides)."""
_PAUSE_SECONDS = 0.1


def _text(status: int, text: str, **headers: str) -> WebhookResponse:
    return WebhookResponse(status=status, headers={"Content-Type": "text/plain", **headers}, body=text.encode())


_UNPROVEN = _text(401, "not proven to come from the platform")
_NOT_OURS = _text(401, "not about the configured account and number: see the bot's log")
_UNREADABLE = _text(400, "not in the platform's encoding")
_NOT_STORED = _text(503, "not stored, please deliver again", **{"Retry-After": "5"})


class Webhooks:
    """Webhook names, as in ``/webhooks/{name}``, and the channels behind them."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._own = channels
        self._shared: dict[str, list[SharesWebhook]] = {}
        for channel in channels.values():
            if isinstance(channel, SharesWebhook):
                for name in channel.webhooks:
                    self._shared.setdefault(name, []).append(channel)

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys([*self._own, *self._shared]))

    def addressed(self, name: str, request: WebhookRequest) -> Channel | None:
        """Return the channel of this request, or None. Channels with a shared URL decide by the request itself."""
        if name in self._own:
            return self._own[name]
        return next((cast("Channel", one) for one in self._shared.get(name, ()) if one.takes(request)), None)


def in_english(channel: Channel, parsed: Parsed) -> str:
    """Return the "not stored" text in English, for requests without a known language."""
    return say("not_stored", "en")


async def receive(
    channel: Channel,
    request: WebhookRequest,
    *,
    accept: Accept,
    now: datetime,
    unstored: Unstored = in_english,
    refusals: RefusalMonitor | None = None,
    events: Teller = SILENT,
    answered: Answered | None = None,
) -> WebhookResponse:
    """Verify, parse and store a request, and emit the result; see `_receive`. Raises no error for any bytes.

    The status is 2xx only when the events are durable, with two exceptions. The first is an event left out by the inbox
    on purpose: messages of a group not meant for the bot, events above a rate, messages and presses of strangers,
    events without an author or a reader, payloads not understood by the channel. The second is a store failure of a
    platform with a single delivery (Twilio): the answer asks the person to send the message again.
    """
    began = time.monotonic()
    earlier = TRACEPARENT.set(request.headers.get("traceparent", ""))
    try:
        response = await _receive(
            channel,
            request,
            accept=accept,
            now=now,
            unstored=unstored,
            refusals=refusals,
            events=events,
            answered=answered,
        )
    finally:
        TRACEPARENT.reset(earlier)
    took = (time.monotonic() - began) * 1000
    events.tell_now(WebhookHandled, channel=channel.name, status=response.status, duration_ms=took)
    return response


async def _receive(
    channel: Channel,
    request: WebhookRequest,
    *,
    accept: Accept,
    now: datetime,
    unstored: Unstored,
    refusals: RefusalMonitor | None,
    events: Teller,
    answered: Answered | None,
) -> WebhookResponse:
    """Verify, parse and store a request.

    Answers 401 for a forged or stale request, 400 for an unreadable request, 503 for a request not stored in time. An
    exception outside the channel's contract counts as a refused request: unverified events are never stored.
    """
    try:
        channel.verify(request, now)
    except (Forged, Stale) as error:
        if refusals is not None:
            refusals.refused(channel.name, error)
        return _rejected(events, channel, _NOT_OURS if isinstance(error, NotOurs) else _UNPROVEN, error)
    except Exception as error:  # noqa: BLE001 - verify broke its contract
        return _rejected(events, channel, _UNPROVEN, error)
    if refusals is not None:
        refusals.accepted(channel.name)

    try:
        parsed = channel.parse(request)
    except Malformed:
        return _rejected(events, channel, _UNREADABLE, Malformed())  # without the text, which may quote the request
    except Exception as error:  # noqa: BLE001 - parse broke its contract
        return _rejected(events, channel, _UNREADABLE, error)
    if parsed.not_understood:
        parsed = replace(parsed, payload=request.body)
    try:
        if parsed.doubt and parsed.events:
            parsed = await cast("CanVouch", channel).vouch(request, parsed)
        try:
            with Deadline(ACCEPT_SECONDS, answered=answered):
                await accept(channel, parsed)
        except (AskfirstError, TimeoutError):
            if not (_says(parsed) and isinstance(channel, CanAskAgain)):
                raise
            await _insist(channel, parsed, accept, answered)
    except Forged as error:
        return _rejected(events, channel, _UNPROVEN, error, signed=True)
    except Exception as error:  # noqa: BLE001 - whatever it was, the platform is to deliver it again
        text = unstored(channel, parsed)
        again = channel.ask_again(text) if _says(parsed) and isinstance(channel, CanAskAgain) else _NOT_STORED
        return _rejected(events, channel, again, error)
    return parsed.response


def _rejected(
    events: Teller, channel: Channel, response: WebhookResponse, error: Exception, *, signed: bool = False
) -> WebhookResponse:
    events.tell_now(
        WebhookRejected,
        channel=channel.name,
        status=response.status,
        reason=type(error).__name__,
        why=str(error) if isinstance(error, AskfirstError) else "",
        error=None if isinstance(error, AskfirstError | TimeoutError) else error,
        signed=signed,
    )
    return response


async def _insist(channel: Channel, parsed: Parsed, accept: Accept, answered: Answered | None) -> None:
    """Retry storing for INSIST_SECONDS. A repeat of a stored request is recognised by its event ids."""
    loop = asyncio.get_running_loop()
    until = loop.time() + INSIST_SECONDS
    while True:
        await asyncio.sleep(_PAUSE_SECONDS)
        try:
            with Deadline(ACCEPT_SECONDS, answered=answered):
                return await accept(channel, parsed)
        except (AskfirstError, TimeoutError):
            if loop.time() >= until:
                raise


def _says(parsed: Parsed) -> bool:
    """Return True if an event has a person, able to send the message again."""
    return any(event.person is not None for event in parsed.events)


log = logging.getLogger("askfirst.web")

_MINUTE: Final = 60.0
_REFUSED: Final = 3
"""Number of refusals within a minute that is reported, if the channel also accepted no request for ten minutes."""
_ACCEPTED_WITHIN: Final = 600.0
_SAID_SECONDS: Final = 3600.0


class RefusalMonitor:
    """Counts the requests refused by each channel as unproven, and finds the channels that refuse every request.

    `now` is a monotonic clock in seconds. Refused requests can come from anybody, so a channel with accepted requests
    is never reported.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._refused: dict[str, deque[tuple[float, Exception]]] = {}
        """Times and errors of the last refusals, by channel."""
        self._accepted: dict[str, float] = {}
        self._said: dict[str, float] = {}

    def accepted(self, channel: str) -> None:
        """Record an accepted request, and reset the count of refusals."""
        self._accepted[channel] = self._now()
        self._refused.pop(channel, None)

    def refused(self, channel: str, error: Exception) -> None:
        """Record a refusal. Log a warning, at most once an hour, when the channel refuses everything."""
        now = self._now()
        refused = self._refused.setdefault(channel, deque(maxlen=_REFUSED))
        refused.append((now, error))
        why = self._why(channel)
        if why is not None and now >= self._said.get(channel, -1.0):
            self._said[channel] = now + _SAID_SECONDS
            log.warning("%s: every request of the last minute was refused. %s", channel, why)

    @property
    def why(self) -> Mapping[str, str]:
        """Return the channels that refuse every request, each with the remedy."""
        return {channel: why for channel in self._refused if (why := self._why(channel)) is not None}

    def _why(self, channel: str) -> str | None:
        now, refused = self._now(), self._refused.get(channel, ())
        recent = [error for at, error in refused if now - at < _MINUTE]
        if len(recent) < _REFUSED or now - self._accepted.get(channel, -_ACCEPTED_WITHIN) < _ACCEPTED_WITHIN:
            return None
        if all(isinstance(error, NotOurs) for error in recent):
            return str(recent[-1])
        if all(isinstance(error, Stale) for error in recent):
            return "Their signatures are too old: set this machine's clock by NTP"
        secrets = [
            setting.name for setting in settings_of(channel) if setting.secret and "webhook" in setting.needed_for
        ]
        return f"See whether {' or '.join(secrets) or 'its secret'} is what the platform has"
