"""ChannelAgent: an agent in a chat. Runs single turns, and has the calls for an author's code."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field

from channels import Address, AskfirstError, Attachment, Message, Person, Reply
from channels.direct import DirectChannel, own_place, shared_place
from gateway.agent import Agent, Interceptors, Stage
from gateway.bot.awaiting import hints_await
from gateway.bot.commands import BotCommands, CommandHandler
from gateway.bot.turn import (
    Runtime,
    split_command,
    without_buttons,
)
from gateway.config.options import WrongOption, checked
from gateway.logs import describe_error
from gateway.observe.callbacks import Callbacks
from gateway.observe.observer import AgentObserver
from gateway.observe.results import AgentResult
from gateway.pending.words import is_answer
from gateway.privacy.conversations import Conversations
from gateway.providers.base import Provider, Transcriber
from gateway.tools import Tool, ToolPolicy, unasked
from gateway.tools.pending_action import Detail, PendingAction
from gateway.tools.stash import ADAPTER, Executors, Factory
from gateway.wording import Tone, Wording, speaking
from gateway.wording.own import CANCELLING, CONFIRMING, PLACE, worded

Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


class LifespanFailed(AskfirstError):
    """The bot's own `lifespan` raised `error`, on enter (then the bot does not run) or on exit.

    The message names the place. The text of `error` may contain a secret of the bot, and is only in `error`.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(f"the bot's lifespan failed: {describe_error(error)}")
        self.error = error


@contextlib.asynccontextmanager
async def lived(lifespan: Lifespan) -> AsyncIterator[Any]:
    """Enter and leave a bot's lifespan. Raises LifespanFailed for errors of the lifespan."""
    stack = contextlib.AsyncExitStack()
    try:
        yielded = await stack.enter_async_context(lifespan())
    except Exception as error:
        raise LifespanFailed(error) from error
    try:
        yield yielded
    except BaseException as raised:
        await stack.__aexit__(type(raised), raised, raised.__traceback__)
        raise
    try:
        await stack.aclose()
    except Exception as error:
        raise LifespanFailed(error) from error


log = logging.getLogger("askfirst.bot")

ActionCallback: TypeAlias = Callable[[PendingAction], Awaitable[None] | None]
_CALLBACK_SECONDS = 60.0


class ActionCallbacks:
    """The callbacks of one kind, called in the order of addition. `name` is the name of the kind in the log."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._callbacks: list[ActionCallback] = []

    def add(self, callback: ActionCallback) -> None:
        """Add a callback, sync or async."""
        self._callbacks.append(callback)

    async def call(self, action: PendingAction) -> None:
        """Call the callbacks, sync ones in a thread. Errors are logged, and a hanging callback is timed out."""
        for callback in self._callbacks:
            try:
                async with asyncio.timeout(_CALLBACK_SECONDS):
                    is_async = inspect.iscoroutinefunction(callback)
                    called = callback(action) if is_async else await asyncio.to_thread(callback, action)
                    if called is not None:
                        await called
            except Exception as error:  # noqa: BLE001 - an author's callback must not undo what is done
                log.error("an %s callback failed: %s", self._name, describe_error(error))


_STORE = re.compile(r"sqlite:///.|rediss?://.")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
"""The shape of a BCP 47 tag."""


class NotAllowed(AskfirstError):
    """The person may not decide this action. The action is unchanged."""


class NotRunning(AskfirstError):
    """The bot was used before it was started by ``async with bot:`` or a Gateway."""


def _contrary_labels(wording: Wording) -> dict[str, str]:
    """Return an issue for each button of the author that reads as the contrary answer, by the button's name."""
    from gateway.pending.reading import ANY_VERB, ReplyParser  # loaded only for sentences of an author

    wrong = {}
    for language, own in wording.own.items():
        for names, contrary, means in ((CONFIRMING, "cancel", "no"), (CANCELLING, "confirm", "yes")):
            for name in names:
                label = PLACE.sub("", str(own.get(name, ""))).strip()
                if name in ("button_do", "button_do_code"):
                    continue  # under "Stop the server?", where a no-word is what is done
                if label and ReplyParser().classify(label, language, verb=ANY_VERB) == contrary:
                    wrong[f"wording.{language}.{name}"] = f"reads as a {means}, and the button means the contrary"
    return wrong


class ChannelAgent:
    """An agent in a chat: keeps a transcript per conversation, asks before irreversible calls and answers commands.

    - `store`: a URL (``sqlite:///path``, ``redis://...``) or a Store. None: in memory, or the Gateway's.
    - `lifespan`: an async context manager, entered once per process. Tools find the value in ``ctx.deps``.
    - `on_unrelated`: after the requester writes about another subject, an open action is kept and shown again, or
      dropped.
    - `language`: BCP 47 tag of the language for every person. None: each person's own.
    - `greeting`: the answer to /start.
    - `tone`: the form of address, in the languages with two. None: the form of each language's file.
    - `wording`: sentences in the place of the gateway's own: language -> name -> sentence, or a TOML file of these.
    - `collect_seconds`: the wait of a turn for more messages of the person. Each message restarts the wait, up to five
      times `collect_seconds` in all. Commands, yes and no never wait.
    - `when_busy`: a message during the person's running turn waits for the end, or interrupts the turn at the next
      step. A running tool is never interrupted.
    - `in_doubt`: a reply with an unknown outcome, on a platform without a way to check, is sent again after a note
      about the doubt, or dropped. A prompt is always sent again.
    - `strict`: refuse data-changing tools with neither a confirmation nor a mark of intent (`askfirst tools` lists
      these).
    - `groups`: the group messages read by the bot. "addressed": a mention, a reply, a command, and messages in a thread
      or topic where the bot was asked within a day. "all": every message.
    - `group_context`: number of preceding other messages included in the next turn, 0 to 100. With 0, none are stored.
    - `max_parts`: the most messages of an answer. A longer answer is sent as the beginning and a file with the whole.
    - `transcriber`: transcribes voice messages. None: the transcriber of ``ASKFIRST_TRANSCRIBE_URL``, else voice
      messages are only named.
    """

    @checked
    def __init__(
        self,
        agent: Agent,
        *,
        store: Any = None,
        lifespan: Lifespan | None = None,
        on_unrelated: Literal["keep", "drop"] = "keep",
        answer_window_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0,
        language: str | None = None,
        greeting: str | None = None,
        tone: Tone | None = None,
        wording: Mapping[str, Any] | str | Path | None = None,
        collect_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0,
        when_busy: Literal["queue", "interrupt"] = "queue",
        in_doubt: Literal["repeat", "drop"] = "repeat",
        strict: bool = False,
        groups: Literal["addressed", "all"] = "addressed",
        group_context: Annotated[int, Field(ge=0, le=100)] = 0,
        transcriber: Transcriber | None = None,
        max_parts: Annotated[int, Field(ge=1, le=100)] = 10,
    ) -> None:
        """Raises WrongOption for an unknown option, a wrong value or sentence, and for tools refused by `strict`."""
        wrong: dict[str, str] = {}
        if isinstance(store, str) and not _STORE.match(store):
            scheme = store.partition(":")[0]  # the rest may hold a password
            wrong["store"] = f"should be sqlite:///path/to/file.db, redis://host:6379 or a Store, not a {scheme!r} URL"
        elif store is not None and not isinstance(store, str) and not hasattr(store, "commit"):
            mend = (
                ": leave it out, or give its URL. The bot keeps its questions itself" if hasattr(store, "stash") else ""
            )
            wrong["store"] = f"should be a URL or a Store, not {type(store).__name__}{mend}"
        if language is not None and not _LANGUAGE.fullmatch(language):
            wrong["language"] = f"should be a language tag such as 'en' or 'pt-BR', not {language!r}"
        if strict and (alone := unasked(agent.reach.values())) is not None:
            wrong["strict=True"] = f"refuses it: {alone}"
        for tool, _ in agent.reach.values():
            verb = tool.confirm.unread_verb if tool.confirm is not None else None
            if verb is not None and is_answer(verb):
                wrong[f"tool {tool.name!r}"] = f"has the verb {verb!r}, which is an answer somewhere: name another"
        self.wording, issues = worded(tone, wording)
        """The sentences of this bot."""
        if wrong := {**wrong, **issues, **_contrary_labels(self.wording)}:
            raise WrongOption("ChannelAgent", wrong)
        self.agent, self.store, self.language, self.greeting = agent, store, language, greeting
        self.on_unrelated, self.answer_window_seconds = on_unrelated, answer_window_seconds
        self.collect_seconds, self.when_busy, self.in_doubt = collect_seconds, when_busy, in_doubt
        self.groups, self.group_context, self.transcriber = groups, group_context, transcriber
        self.max_parts = max_parts
        self.deps: Any = None
        self._lifespan = lifespan
        self.commands = BotCommands()
        self._on_outcome, self._on_doubt = ActionCallbacks("on_outcome"), ActionCallbacks("on_doubt")
        self.executors = Executors()
        """The executors of stashed actions."""
        self._callbacks = Callbacks()
        self.interceptors = Interceptors()
        self._runtime: Runtime | None = None
        self._entered: contextlib.AsyncExitStack | None = None

    # ── for authors ──

    async def __aenter__(self) -> Self:
        """Start the bot without a server. `ask_channel` and `decide` then run the necessary work."""
        # The assembly stands above this module, and takes long to import: only a bot without a Gateway needs it here.
        assembly = await asyncio.to_thread(importlib.import_module, "gateway.assembly")
        stack = contextlib.AsyncExitStack()
        await stack.enter_async_context(assembly.embedded(self))
        self._entered = stack
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._entered is not None:
            stack, self._entered = self._entered, None
            await stack.aclose()

    @hints_await
    async def ask_channel(
        self,
        user_id: str,
        message: str,
        *,
        channel_id: str | None = None,
        conversation_id: str | None = None,
        attachments: Sequence[Attachment] = (),
        reply_to: str | None = None,
    ) -> AgentResult:
        """Send a message to the bot and return the result of the turn.

        `conversation_id`: a conversation shared by all callers with the same id. None: the person's own conversation,
        not reachable by any `conversation_id`. `reply_to`: the id of the answered action. Calls on a conversation run
        one after another.

        Raises ValueError for an empty id, NotRunning, NotAllowed for an answer to another person's action, and
        ProviderError if the model cannot be reached. After a ProviderError, the message is kept and retried with the
        next call. Any other error ending the turn is raised too, and the message becomes a dead letter.
        """
        if not user_id:
            raise ValueError("ask_channel needs a user_id")
        if "" in (channel_id, conversation_id):
            raise ValueError("channel_id and conversation_id must not be empty: leave out what does not apply")
        person = Person(channel=DirectChannel.name, account=channel_id or "-", user_id=user_id)
        address = own_place(person) if conversation_id is None else shared_place(person.account, conversation_id)
        command, text = split_command(message)
        event = Message(
            event_ids=(),
            address=address,
            person=person,
            text=text,
            command=command,
            attachments=tuple(attachments),
            reply_to=reply_to,
        )
        with speaking(self.wording):
            return await self._running().ask(address, person, event)

    @hints_await
    async def decide(
        self,
        person: str,
        intent: Literal["confirm", "cancel"],
        *,
        action_id: str | None = None,
        code: str | None = None,
        token: str | None = None,
        conversation: str | None = None,
    ) -> AgentResult:
        """Decide an open action on behalf of a person, from code that has authenticated the person.

        Exactly one of `action_id`, `code` and `token` names the action, else ValueError. `conversation`, as in an
        action's `conversation`, limits the search. Raises NotAllowed for the wrong person, for an unknown action, for a
        code shared by two of the person's open actions, and for the token of a button with another intent: of Cancel
        for ``"confirm"``, of Change for either. The action is then unchanged.
        """
        if sum(given is not None for given in (action_id, code, token)) != 1:
            raise ValueError("decide needs exactly one of action_id, code and token")
        if intent not in ("confirm", "cancel"):
            raise ValueError(f"intent is 'confirm' or 'cancel', not {intent!r}")
        with speaking(self.wording):
            return await self._running().decide(
                person, intent, action_id=action_id, code=code, token=token, conversation=conversation
            )

    @hints_await
    async def notify(self, address: Address | str, reply: Reply | str, *, after_seconds: float = 0.0) -> None:
        """Send a message on the bot's own initiative, now or after `after_seconds`. Survives restarts.

        On return, the message is in the outbox, or the timer in the store. Raises WrongOption for a reply with buttons:
        presses have no handlers yet. Raises ValueError for a malformed address, a channel that is off, and seconds
        negative or not finite. Raises OptedOut if the person has written STOP on SMS or WhatsApp and not START since.
        Raises Unreachable if the bot was found blocked or removed there within a day and no message has come from there
        since. Both are kinds of Undeliverable.
        """
        destination = Address.parse(address) if isinstance(address, str) else address
        if not 0 <= after_seconds < float("inf"):
            raise ValueError(f"after_seconds must be 0 or a positive number, not {after_seconds!r}")
        with speaking(self.wording):
            await self._running().notify(destination, without_buttons(reply), after_seconds=after_seconds)

    def command(self, name: str, *, description: str = "") -> Callable[[CommandHandler], CommandHandler]:
        """Register the command ``/name``: an async function of a ToolContext and the text after the command.

        The function may return a Reply with files, but not with buttons: presses have no handlers yet. Raises
        ValueError for a taken name, or a name not accepted by every platform.
        """
        self.commands.check_name(name)

        def register(handler: CommandHandler) -> CommandHandler:
            self.commands.register(name, handler, description)
            return handler

        return register

    def on_outcome(self, callback: Callable[[PendingAction], Awaitable[None]]) -> None:
        """Register an async callback, called after an action of this process has ended."""
        self._on_outcome.add(callback)

    def register_executor_factory(self, kind: str, factory: Factory) -> None:
        """Register a factory of executors for the actions of this kind, stored by `stash_pending`.

        Without a factory, only the stashing process can run an action, and only until a restart. Raises ValueError for
        a factory that is async or not a function.
        """
        self.executors.add_factory(kind, factory)

    def on(self, event: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function, sync or async, for an event named like a method of AgentObserver without ``on_``.

        The function gets the arguments of the method. Raises ValueError for an unknown name.
        """
        self._callbacks.check_name(event)

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._callbacks.add(event, function)
            return function

        return register

    def intercept(self, stage: Stage) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a function, sync or async, to stop a message or a tool call by raising Vetoed.

        "message": called with `context` and `message`, before the message reaches the model or an own command.
        "tool_call": called with `context`, `tool_name` and `tool_args`, a dict open to changes, before the arguments
        are validated and shown. Called again before a confirmed action runs, with changes ignored.

        The function returns None. Raises ValueError for an unknown stage, and for a function with other arguments.
        """
        self.interceptors.check_stage(stage)

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.interceptors.add(stage, function)
            return function

        return register

    def on_doubt(self, callback: ActionCallback) -> None:
        """Register a callback, sync or async, for every action of doubtful outcome found by this process.

        The action's `state` is ``unknown`` if the effect may or may not have happened. The `detail` is ``tampered`` if
        the record was changed without the key. In any other case the outcome could not be delivered to the person.
        """
        self._on_doubt.add(callback)

    @property
    def conversations(self) -> Conversations:
        """The conversations of this bot: list, read, search and export. Raises NotRunning."""
        return self._running().conversations

    def _running(self) -> Runtime:
        if self._runtime is None:
            raise NotRunning("the bot is not running: enter it with `async with bot:`, or give it to a Gateway")
        return self._runtime

    # ── for the engine ──

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def observers(self) -> Sequence[AgentObserver]:
        """The observers of the agent, and the callbacks registered by `on`."""
        return (*self.agent.observers, self._callbacks)

    def tool(self, name: str) -> Tool | None:
        """Return a tool of the agent, or of an agent behind a tool."""
        found = self.agent.reach.get(name)
        return found.tool if found is not None else None

    def policy(self, name: str) -> ToolPolicy | None:
        """Return the policy for the calls of a tool. For unknown tools, the outer agent's policy decides."""
        found = self.agent.reach.get(name)
        return found.policy if found is not None else self.agent.policy

    def tool_for(self, action: PendingAction) -> Tool | None:
        """Return the tool run by an action, or the executor stashed with the action. None: this process has neither."""
        if action.tool_version != ADAPTER:
            return self.tool(action.kind)
        return self.executors.tool_of(action)

    def drifted(self, action: PendingAction) -> Detail | None:
        """Return the reason why an action may not run as shown, or None.

        Reasons: another tool, template or approver rule since the prompt, a tool not offered on the channel any more,
        or a policy now denying the call.
        """
        from gateway.pending.propose import asks_more

        tool = self.tool_for(action)
        if tool is None or not tool.matches(action):
            return "other_release"
        if not tool.serves(action.conversation.partition("/")[2].partition(":")[0]):
            return "changed"
        policy = self.policy(tool.name)
        denied = policy is not None and policy.decide(tool.name, action.args)[0] == "deny"
        return "changed" if denied or asks_more(tool.approvers, action) else None

    @contextlib.asynccontextmanager
    async def attached(self, runtime: Runtime) -> AsyncIterator[None]:
        """Attach the bot to a runtime for the length of the block, with the lifespan's value in `deps`.

        Raises ProviderConfigurationError if there is no model to call, and LifespanFailed.
        """
        if self._runtime is not None:
            raise RuntimeError("this bot is running already: one process runs it once")
        async with contextlib.AsyncExitStack() as stack:
            for provider in await asyncio.to_thread(self.agent.providers):  # imports the vendors' packages
                stack.push_async_callback(_close, provider)
            stack.push_async_callback(self.agent.close_sources)
            await self.agent.refresh_tools()
            if self._lifespan is not None:
                self.deps = await stack.enter_async_context(lived(self._lifespan))
            self._runtime = runtime
            try:
                yield
            finally:
                self._runtime = self.deps = None

    async def tell_outcome(self, action: PendingAction) -> None:
        """Call the callbacks of `on_outcome`."""
        self.executors.forget(action.pending_action_id)
        await self._on_outcome.call(action)

    async def tell_doubt(self, action: PendingAction) -> None:
        """Call the callbacks of `on_doubt`."""
        await self._on_doubt.call(action)


async def _close(provider: Provider) -> None:
    """Close a provider. Errors of an author's provider are logged, and the shutdown continues."""
    try:
        await provider.close()
    except Exception as error:  # noqa: BLE001
        log.error("the provider could not be closed: %s", describe_error(error))
