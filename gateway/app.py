"""The Gateway: the assembly of store, channels, bot, engine and web."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from aiohttp import web

from channels import (
    Address,
    AskfirstError,
    Channel,
    Json,
    Parsed,
    SendError,
    WebhookRequest,
    WebhookResponse,
)
from channels.catalogue import load
from channels.direct import DirectChannel
from channels.webchat import WebChatChannel
from gateway.access import AllowList
from gateway.access.approvers import check_approvers, check_channels
from gateway.access.chats import ChatLists
from gateway.access.reached import reached_limits
from gateway.access.sessions import ChatSessions
from gateway.agent import Agent
from gateway.assembly import MEMORY, Storage, assemble, home_of, transcriber_of, utc_now
from gateway.channel_agent import ChannelAgent
from gateway.config.environment import proxied
from gateway.config.options import WrongOption, checked
from gateway.config.settings import Role, ServeWay, Settings
from gateway.engine.clock import Skew, watched
from gateway.engine.delivery.links import follow_link
from gateway.engine.platforms import Platforms
from gateway.logs import pseudonyms
from gateway.observe import Feed
from gateway.observe.event_log import EventLog
from gateway.observe.events import RequestUnstored, ToolListed
from gateway.observe.reader import Reader
from gateway.observe.spans import SpanReader, span_export
from gateway.observe.teller import Teller
from gateway.observe.watchdog import Watchdog
from gateway.operations.base import claim
from gateway.operations.control_server import control, store_file
from gateway.operations.operator import Operator
from gateway.pending.words import CARRIER_WORDS
from gateway.store.base import Store
from gateway.store.errors import NotPrimary, StoreRefused
from gateway.stored import keys
from gateway.tools import permissions
from gateway.web import ASGIApp, Bridge, Ready, RefusalMonitor, Webhooks, asgi, receive, web_app
from gateway.web.chat import ChatPage, add_chat
from gateway.web.chat_theme import Theme
from gateway.web.chat_uploads import uploaded
from gateway.web.chat_visitors import ChatUserHook
from gateway.wording import say, speaking
from gateway.wording.own import typed_words

if TYPE_CHECKING:
    from gateway.observe.otel import SpanExport
    from gateway.web.metrics import Metrics


log = logging.getLogger("askfirst.clock")

_STALL_TOLD_SECONDS = 60.0


class Gateway:
    """A bot with channels, ready to be served.

    ``async with Gateway(bot) as gateway:`` starts the gateway. The application of `aiohttp_app` starts the gateway by
    itself, and `webhook` takes requests from any other server. `chat` adds the page ``/chat``, and `console` the live
    feed beside the page. `chat_user` adds the page too. This async function gets each request of the page for a
    message, a press, a file or a stream, and returns who is logged in; None: an anonymous visitor. `way` is the way the
    platforms' messages come in; by default each channel's settings decide. `metrics_host` is the address of the port
    ``ASKFIRST_METRICS_PORT``, if set.
    """

    @checked
    def __init__(
        self,
        bot: ChannelAgent | Agent,
        settings: Settings | None = None,
        *,
        role: Role = "all",
        way: ServeWay = "auto",
        chat: bool = False,
        chat_user: ChatUserHook | None = None,
        console: bool = False,
        chat_hosts: Sequence[str] = ("localhost", "127.0.0.1", "::1"),
        metrics_host: str = "127.0.0.1",
    ) -> None:
        """Raises MissingSetting for unsafe or incomplete settings and for tools without a possible approver.

        Raises WrongOption for an unknown option, and for a sentence unfit for SMS. With `console`, for trying out a
        bot, missing approvers are only logged.
        """
        self.bot = bot if isinstance(bot, ChannelAgent) else ChannelAgent(bot)
        self.settings = settings or Settings()
        self.role, home = role, self._home()
        self.ways = self.settings.channels_on(way)
        """The way the messages of each channel come in."""
        self.channels: dict[str, Channel] = {
            name: load(name).from_settings(self.settings.channel_settings(name), way=comes)
            for name, comes in self.ways.items()
        }
        self._chat_user, self._theme = chat_user, Theme.of(self.settings)
        self._webchat = self._page_of(home.keys, chat_hosts) if chat or chat_user is not None else None
        allowed = AllowList(self.settings.allow or ())
        self._check(allowed, refuse=not console)
        self.log_key = _derived(home.keys[0], "log")
        """Key of the pseudonyms of people in the log, the same after a restart and in every instance."""
        self.feed = Feed(now=utc_now)
        """The notices for the console of `askfirst dev`."""
        self._console, self.metrics_host = console, metrics_host
        self._metrics = self._make_metrics()
        self._spans = self._span_export()
        readers: list[Reader] = [EventLog(content=self.settings.log_content), self._metrics.events]
        readers += [*([self.feed] if console else []), *([self._span_reader(self._spans)] if self._spans else [])]
        self._events = Teller(readers=readers, observers=self.bot.observers)
        self._draining, self._transcriber = False, transcriber_of(self.settings)
        self.engine = assemble(
            self.bot,
            replace(home, store=self._metrics.timed(home.store)),
            self.channels,
            allowed=allowed,
            events=self._events,
            public_url=self.settings.public_url,
            rules=self.settings,
            transcriber=self._transcriber,
        )
        self._watchdog, self._skew, self._refusals = Watchdog(), Skew(self._trust_clock), RefusalMonitor()
        self._metrics.watch(self.store, self.engine.context.held, self._events, self._watchdog)
        self._platforms, self._webhooks = Platforms(self.channels, self.engine, self.ways), Webhooks(self.channels)
        self._stack: contextlib.AsyncExitStack | None = None
        self._bridge: asyncio.Task[Bridge] | None = None

    def _page_of(self, secrets: Sequence[bytes], hosts: Sequence[str]) -> WebChatChannel:
        """Add the channel of the chat page."""
        derived, origins = [_derived(key, "web chat") for key in secrets], self.settings.chat_origins
        page = self.channels[WebChatChannel.name] = WebChatChannel(keys=derived, hosts=hosts, origins=origins)
        return page

    def _check(self, allowed: AllowList, *, refuse: bool) -> None:
        """Check the tools and the wording of the bot against the channels. Raises MissingSetting and WrongOption."""
        tools = [tool for tool, _ in self.bot.agent.reach.values()]
        check_channels(tools)
        check_carrier_words(self.bot, self.channels)
        check_approvers(tools, self.channels, allowed, refuse=refuse)

    def _span_export(self) -> SpanExport | None:
        headers = self.settings.otel_headers
        secret = headers.get_secret_value() if headers else ""
        return span_export(self.settings.spans_url, headers=secret, service_name=self.bot.name)

    def _span_reader(self, export: SpanExport) -> SpanReader:
        return SpanReader(
            export.emit,
            agent_name=self.bot.name,
            content=self.settings.log_content,
            clock=utc_now,
            pseudonym=pseudonyms(self.log_key, [*self.channels, DirectChannel.name]),
        )

    def _home(self) -> Storage:
        """Return the settings' storage, with the bot's own store if present."""
        url = self.bot.store if isinstance(self.bot.store, str) else None
        home = home_of(self.settings, url)
        if self.bot.store is not None and url is None:
            return Storage(self.bot.store, home.keys, home.artifacts)
        return home

    def _make_metrics(self) -> Metrics:
        from gateway.web.metrics import Metrics  # prometheus-client is loaded only where a bot is served

        names = [*self.channels, DirectChannel.name]
        return Metrics(channels=names, tools=self.bot.agent.reach, token=self.settings.admin_token)

    @property
    def store(self) -> Store:
        return self.engine.context.store

    @property
    def store_file(self) -> Path | None:
        """The file of an embedded store: of the bot's own store, else of the settings'. None for any other store."""
        own = self.bot.store
        url = self.settings.store if own is None else own
        return store_file(url) if isinstance(url, str) and not url.endswith(MEMORY) else None

    async def __aenter__(self) -> Self:
        """Start the gateway. Raises StoreRefused or MissingSetting if the store or a platform prevents the start.

        An unreachable platform does not delay the start: the platform is retried, and `/readyz` reports the failure.
        """
        await self.engine.context.load_languages(None)
        async with contextlib.AsyncExitStack() as stack:
            if self._spans is not None:
                await stack.enter_async_context(self._spans)
            await opened(self.store)
            stack.push_async_callback(self.store.close)
            if self._transcriber is not None:
                stack.push_async_callback(self._transcriber.close)
            await self.engine.context.clock.now()
            await claim(self.store, self.bot.name)
            http = await stack.enter_async_context(_http(self._skew))
            await stack.enter_async_context(self.bot.attached(self.engine.runtime))
            if self._webchat is not None:
                self._webchat.uploaded = partial(uploaded, self.engine.context.artifacts)
            await self._platforms.start(http)
            stack.push_async_callback(self._platforms.close)
            self._doubt_clock()
            if self._console:
                for each in permissions(self.bot.agent.reach.values()):
                    self._events.tell_now(ToolListed, **asdict(each))
            await self._watchdog.start()
            stack.push_async_callback(self._watchdog.stop)
            self.engine.start(self.role)
            stack.push_async_callback(self.engine.stop)
            context = self.engine.context
            operator = Operator(
                context.store,
                context.channels,
                context.keyring,
                bot=self.bot.name,
                artifacts=context.artifacts,
                wording=self.bot.wording,
            )
            await stack.enter_async_context(control(operator, self.store_file))
            if self.settings.metrics_port is not None:
                port = self._metrics.on_port(self.metrics_host, self.settings.metrics_port)
                await stack.enter_async_context(port)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._stack is not None:
            stack, self._stack, self._bridge = self._stack, None, None
            await stack.aclose()

    def _doubt_clock(self) -> None:
        """Warn of a possibly wrong clock. Without a platform for comparison, trust the clock."""
        days = self.store.clock_ahead_seconds / 86_400
        if days and all(isinstance(channel, WebChatChannel) for channel in self.channels.values()):
            self._trust_clock()
        elif days:
            log.warning(
                "this machine's clock is %.0f days ahead of the last moment in the store. Until a platform's clock "
                "agrees with it the store's goes on from there, and nothing expires or is removed by it",
                days,
            )

    def _trust_clock(self) -> None:
        if self.store.clock_ahead_seconds:
            self.store.trust_clock()
            log.info("a platform's clock agrees with this machine's: the store follows it")

    async def drain(self, grace_seconds: float) -> None:
        """Become not ready and begin no new work. Incoming events are still stored.

        Running work has `grace_seconds` to finish.
        """
        self._draining = True
        await self.engine.stop(grace_seconds)

    def aiohttp_app(self) -> web.Application:
        """Return the application. If the gateway is not entered yet, the application enters and leaves the gateway."""
        context = self.engine.context
        app = web_app(
            channels={name: c for name, c in self.channels.items() if name != WebChatChannel.name},
            accept=self.engine.inbox.accept,
            unstored=self._unstored,
            refusals=self._refusals,
            events=self._events,
            answered=self._metrics.store_answered,
            follow=partial(follow_link, context),
            ready=self._ready,
            now=utc_now,
            public_url=self.settings.public_url,
        )
        if self._webchat is not None:
            add_chat(app, self._chat_page(self._webchat))
        if self.settings.metrics_port is None:
            self._metrics.add_to(app)
        if self._stack is None:
            app.cleanup_ctx.append(self._for_app)
        return app

    def _chat_page(self, channel: WebChatChannel) -> ChatPage:
        context = self.engine.context
        return ChatPage(
            channel=channel,
            watch=self._watch,
            accept=self.engine.inbox.accept,
            artifacts=context.artifacts,
            charge=context.files.charge_upload,
            keep_upload=context.files.keep_upload,
            sessions=ChatSessions(context.store, context.rules.limits.sessions, context.reached),
            chats=ChatLists(context.store, context.conversation),
            streams=context.rules.limits.streams,
            reached=partial(context.reached.note, "pages of the web chat", f"streams={context.rules.limits.streams}"),
            now=utc_now,
            title=self.bot.name,
            theme=self._theme,
            chat_user=self._chat_user,
            language=self.bot.language,
            greeting=self.bot.greeting,
            wording=self.bot.wording,
            commands=self.bot.commands.described,
            public_url=self.settings.public_url,
            events=self._events,
            console=self.feed if self._console else None,
        )

    def asgi_app(self, *, prefix: str = "", otherwise: ASGIApp | None = None) -> ASGIApp:
        """Return the ASGI application. If the gateway is not entered yet, the server's lifespan enters the gateway.

        `prefix`: the path of the gateway, like ``/bot``, unless mounted there by a framework. `otherwise`: the
        application for all other paths, without running the application's lifespan. Raises WrongOption for a prefix
        without a leading slash.
        """
        if prefix and not prefix.startswith("/"):
            raise WrongOption("Gateway.asgi_app", {"prefix": f"should begin with /, not {prefix!r}"})
        own = False

        async def begin() -> None:
            nonlocal own
            if self._stack is None:
                await self.__aenter__()
                own = True

        async def end() -> None:
            if own:
                await self.__aexit__()

        return asgi(begin, end, self._bridged, prefix=prefix.rstrip("/"), otherwise=otherwise)

    async def _bridged(self) -> Bridge:
        """Return the bridge to the aiohttp application. Raises AskfirstError while the gateway does not run."""
        if self._stack is None:
            raise AskfirstError(
                "the gateway does not run: enter it with `async with gateway`, or have the server run its lifespan"
            )
        if self._bridge is None:
            bridge = Bridge.to(self.aiohttp_app())
            self._bridge = asyncio.ensure_future(self._stack.enter_async_context(bridge))
        try:
            return await asyncio.shield(self._bridge)
        except OSError as error:  # no socket could be made: the next request retries
            self._bridge = None
            raise AskfirstError(f"no private socket can be made ({error.strerror})") from error

    async def webhook(self, channel: str, request: WebhookRequest) -> WebhookResponse:
        """Handle a platform's request from any server. Answers 404 for a channel not in use, and for the web chat."""
        found = self._webhooks.addressed(channel, request)
        if found is None or found is self._webchat:
            return WebhookResponse(status=404)
        return await receive(
            found,
            request,
            accept=self.engine.inbox.accept,
            now=utc_now(),
            unstored=self._unstored,
            refusals=self._refusals,
            events=self._events,
            answered=self._metrics.store_answered,
        )

    async def _for_app(self, app: web.Application) -> AsyncIterator[None]:
        async with self:
            yield

    async def _ready(self) -> Ready:
        """Return the readiness. Not ready while the store does not answer or the process drains.

        A platform's outage is only reported, because the other platforms' messages must still come in. A reached limit
        and a store refusing new messages are only reported too, because presses and answers must come in.
        """
        reached: Mapping[str, Mapping[str, str]] = {}
        try:
            await self.store.ping()
            reached = await reached_limits(self.store)
            store = True
        except AskfirstError:
            store = False
        checks = {"store": store, "working": not self._draining}
        refused = self.engine.context.refusing.why
        new_messages = "taken" if refused is None else f"refused: {refused}"
        reported: dict[str, Json] = {"new_messages": new_messages, "channels": self._platforms.answering()}
        if deaf := dict(self._refusals.why):
            reported["deaf"] = {**deaf}
        if reached:
            reported["limits_reached"] = {name: {**note} for name, note in reached.items()}
        if (stall := self._watchdog.stalled_within(_STALL_TOLD_SECONDS)) is not None:
            reported["event_loop"] = f"stood still for {stall.seconds:.1f} s within the last minute: see the log"
        if store and (stuck := await self.engine.stuck()) is not None:
            reported["turns"] = stuck
        if self._skew.is_off:
            reported["clock_ahead_seconds"] = round(self._skew.seconds or 0.0)
        return Ready(all(checks.values()), {**checks, **reported})

    def _unstored(self, channel: Channel, parsed: Parsed) -> str:
        self._events.tell_now(RequestUnstored, channel=channel.name)
        person = next((event.person for event in parsed.events if event.person is not None), None)
        with speaking(self.bot.wording):
            return say("not_stored", self.engine.context.language(person))

    def _watch(self, address: Address, after: int) -> AsyncIterator[Any]:
        conversation = self.engine.context.conversation(address)
        return self.store.watch(keys.key(self.store, conversation, keys.visible_log), after=after)


REPLICA_SECONDS = 60.0
"""The longest wait for a replica at the start: another primary may be chosen in the meantime."""
REPLICA_PAUSE_SECONDS = 5.0


async def opened(store: Store) -> None:
    """Open the store. Raises StoreUnavailable and StoreRefused, also for a replica after REPLICA_SECONDS."""
    clock = asyncio.get_running_loop().time
    began = clock()
    while True:
        try:
            return await store.open()
        except NotPrimary as error:
            if clock() - began >= REPLICA_SECONDS:
                raise StoreRefused(f"{error}. It has been one for {REPLICA_SECONDS:.0f} seconds") from error
            logging.getLogger("askfirst.store").warning("%s. It is looked at again", error)
        await asyncio.sleep(REPLICA_PAUSE_SECONDS)


def check_carrier_words(bot: ChannelAgent, channels: Collection[str]) -> None:
    """Check the author's own sentences around a question for words that a person must not write by SMS.

    Carriers act on the words. Raises WrongOption.
    """
    told: dict[str, list[str]] = {}
    for name, word in typed_words(bot.wording) if "sms" in channels else ():
        if word.casefold() in CARRIER_WORDS:
            told.setdefault(name, []).append(word)
    if told:
        mend = "carriers act on it, and the answer never arrives: by SMS let people write {yes_word} or {no_word}"
        raise WrongOption("ChannelAgent", {name: f"says {' and '.join(each)}: {mend}" for name, each in told.items()})


def _http(skew: Skew) -> aiohttp.ClientSession:
    """Return the HTTP session for calls to platforms, without a connection limit and without cookies.

    Each platform's workers limit the calls, so one platform cannot block another. Cookies are off because several bots
    may use one session. The Date headers of responses are compared with the local clock.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=proxied(),  # HTTPS_PROXY, NO_PROXY
        trace_configs=[watched(skew)],
    )


async def started(channel: Channel, http: aiohttp.ClientSession) -> None:
    """Start a channel. Raises MissingSetting, and AskfirstError if the platform is unreachable."""
    try:
        await channel.start(http)
    except SendError as error:
        raise AskfirstError(f"{channel.name} cannot be reached ({error.code}): try again, or switch it off") from error


def _derived(key: bytes, purpose: str) -> bytes:
    return hmac.new(key, purpose.encode(), hashlib.sha256).hexdigest().encode()
