"""ChannelAgent: an agent in a chat. It runs single turns, and has the calls that an author's code uses."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, Self, TypeAlias

from pydantic import Field

from channels import Address, AskfirstError, Attachment, Json, Media, Message, Person, Reply
from channels.direct import DirectChannel, own_place, shared_place
from gateway.agent import Agent, AgentResult, Ask, Asked, Journal, Keep, LoopOutcome, StopReason, Verdict
from gateway.artifacts import Artifact
from gateway.memory import RESET, to_entries
from gateway.observe import describe_error
from gateway.options import WrongOption, checked
from gateway.providers.base import ModelMessage, Provider
from gateway.tools import PendingConfirmation, Tool, ToolContext, unasked
from gateway.tools.escape import link, plain
from gateway.tools.executor import Factory, check_factory, made_by
from gateway.tools.pending_action import Detail, PendingAction
from gateway.tools.stash import ADAPTER
from gateway.tools.stashed import StashedTool
from gateway.wording import say

# The confirmation code is half of the package, and only a running bot needs it: it is imported inside functions.
if TYPE_CHECKING:
    from gateway.pending.actions import ConversationActions

__all__ = ["ChannelAgent", "LifespanFailed", "NotAllowed", "NotRunning", "Outcome", "Runtime", "Turn"]

log = logging.getLogger("askfirst.bot")

CommandHandler: TypeAlias = Callable[[ToolContext, str], Awaitable[str | Reply | None]]
ActionCallback: TypeAlias = Callable[[PendingAction], Awaitable[None] | None]
Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


class NotAllowed(AskfirstError):
    """The person may not decide this action. The action is unchanged."""


class LifespanFailed(AskfirstError):
    """The bot's own `lifespan` raised `error`, on enter (then the bot does not run) or on exit.

    The message names the place. The text of `error`, which may hold a secret of the bot, is only in `error`.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(f"the bot's lifespan failed: {describe_error(error)}")
        self.error = error


class NotRunning(AskfirstError):
    """The bot was used before it was started by ``async with bot:`` or a Gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Input of a turn."""

    conversation: str
    address: Address
    person: Person
    language: str
    messages: Sequence[Message]
    """Messages of one person, in order. Empty when the turn only continues after an outcome."""
    notes: Sequence[ModelMessage]
    """Events since the previous turn: outcomes of actions, edits."""
    history: Sequence[ModelMessage]
    started: datetime
    context: ToolContext
    journal: Journal
    keep: Keep
    actions: Callable[[], Awaitable[ConversationActions]]
    """Loads the conversation's open actions, anew at each call."""
    publish: Callable[..., None]
    """Publishes to the live feed."""
    admit: Callable[[str, str], Awaitable[str]] | None = None
    """Admits the person with this pairing code and returns the answer in this language. None if this person may not
    admit others."""

    @property
    def heard(self) -> list[ModelMessage]:
        """The messages in the form that the model reads."""
        return [each for message in self.messages for each in (*_before(message), _heard(message))]


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Result of a turn, before it is stored and sent."""

    stop_reason: StopReason
    replies: list[Reply] = field(default_factory=list)
    transcript: list[Json] = field(default_factory=list)
    asked: list[PendingAction] = field(default_factory=list)
    """Actions to show in one prompt. Actions that are not stored yet are new."""
    unrelated: bool = False
    """True if the turn was not about the person's open actions."""
    loop: LoopOutcome | None = None
    """Result of the model's loop. None if the model was not called."""


class Runtime(Protocol):
    """Interface of the engine that runs a bot, as the bot sees it."""

    async def ask(self, address: Address, person: Person, message: Message) -> AgentResult: ...
    async def decide(
        self,
        person: str,
        intent: Literal["confirm", "cancel"],
        *,
        action_id: str | None,
        code: str | None,
        token: str | None,
        conversation: str | None,
    ) -> AgentResult: ...
    async def notify(self, address: Address, reply: Reply, *, after_seconds: float) -> None: ...


class ChannelAgent:
    """An agent in a chat: it keeps a transcript per conversation, asks before irreversible calls and answers commands.

    - `store`: a URL (``sqlite:///path``, ``redis://...``) or a Store. None: in memory, or the Gateway's.
    - `lifespan`: an async context manager, entered once per process. Tools find its value in ``ctx.deps``.
    - `on_unrelated`: an open action whose requester writes about another subject is kept and shown again, or dropped.
    - `language`: BCP 47 tag of the language for every person. None: each person's own.
    - `greeting`: the answer to /start.
    - `collect_seconds`: time that a turn waits for more messages of the person. Each message restarts it, up to five
      times its length in all. Commands, yes and no never wait.
    - `when_busy`: a message of a person whose turn is running waits for its end, or interrupts it at its next step. A
      running tool is never interrupted.
    - `in_doubt`: a reply that may or may not have arrived, on a platform that cannot tell, is sent again after a note
      that says so, or dropped. A prompt is always sent again.
    - `strict`: refuse tools that change data without a confirmation and are not marked as meant so (`askfirst tools`
      lists them).
    - `groups`: messages of a group that the bot reads. "addressed": a mention, a reply, a command, and messages in a
      thread or topic where the bot was asked within a day. "all": every message.
    - `group_context`: number of preceding other messages that the next turn includes, 0 to 100. 0 stores none of them.
    """

    embed: Callable[[ChannelAgent], AbstractAsyncContextManager[Runtime]]
    """Runs a bot on a store of its own when it is entered without a Gateway. Set by the package."""

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
        collect_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0,
        when_busy: Literal["queue", "interrupt"] = "queue",
        in_doubt: Literal["repeat", "drop"] = "repeat",
        strict: bool = False,
        groups: Literal["addressed", "all"] = "addressed",
        group_context: Annotated[int, Field(ge=0, le=100)] = 0,
    ) -> None:
        """Raises WrongOption for an unknown option, a wrong value, and for tools that `strict` refuses."""
        wrong: dict[str, str] = {}
        if isinstance(store, str) and not _STORE.match(store):
            scheme = store.partition(":")[0]  # the rest may hold a password
            wrong["store"] = f"should be sqlite:///path/to/file.db, redis://host:6379 or a Store, not a {scheme!r} URL"
        elif store is not None and not isinstance(store, str) and not hasattr(store, "commit"):
            wrong["store"] = f"should be a URL or a Store, not {type(store).__name__}"
        if language is not None and not _LANGUAGE.fullmatch(language):
            wrong["language"] = f"should be a language tag such as 'en' or 'pt-BR', not {language!r}"
        if strict and (alone := unasked(agent.tools.values(), agent.policy)) is not None:
            wrong["strict=True"] = f"refuses it: {alone}"
        if wrong:
            raise WrongOption("ChannelAgent", wrong)
        self.agent, self.store, self.language, self.greeting = agent, store, language, greeting
        self.on_unrelated, self.answer_window_seconds = on_unrelated, answer_window_seconds
        self.collect_seconds, self.when_busy, self.in_doubt = collect_seconds, when_busy, in_doubt
        self.groups, self.group_context = groups, group_context
        self.deps: Any = None
        self._lifespan = lifespan
        self._commands: dict[str, tuple[CommandHandler, str]] = {}
        self._on_outcome: list[ActionCallback] = []
        self._stashed: OrderedDict[str, StashedTool] = OrderedDict()
        self._factories: dict[str, Factory] = {}
        self._on_doubt: list[ActionCallback] = []
        self._runtime: Runtime | None = None
        self._entered: contextlib.AsyncExitStack | None = None

    # ── for authors ──

    async def __aenter__(self) -> Self:
        """Start the bot without a server. `ask_channel` and `decide` then run the work that they need."""
        stack = contextlib.AsyncExitStack()
        await stack.enter_async_context(type(self).embed(self))
        self._entered = stack
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._entered is not None:
            stack, self._entered = self._entered, None
            await stack.aclose()

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
        """Send one message to the bot and return the result of its turn.

        `conversation_id`: a conversation shared by all callers that name it. None: the person's own conversation, which
        no `conversation_id` can name. `reply_to`: the id of the action that the message answers. Calls on one
        conversation run one after another.

        Raises ValueError for an empty id, NotRunning, NotAllowed for an answer to another person's action, and
        ProviderError when the model cannot be reached; the message is then kept, and retried with the next call. Any
        other error that ends the turn is raised too, and its message becomes a dead letter.
        """
        if not user_id:
            raise ValueError("ask_channel needs a user_id")
        if "" in (channel_id, conversation_id):
            raise ValueError("channel_id and conversation_id must not be empty: leave out what does not apply")
        person = Person(channel=DirectChannel.name, account=channel_id or "-", user_id=user_id)
        address = own_place(person) if conversation_id is None else shared_place(person.account, conversation_id)
        command, text = _command(message)
        event = Message(
            event_ids=(),
            address=address,
            person=person,
            text=text,
            command=command,
            attachments=tuple(attachments),
            reply_to=reply_to,
        )
        return await self._running().ask(address, person, event)

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
        action's `conversation`, limits the search. Raises NotAllowed for the wrong person, for an unknown action, and
        for a code that two of the person's open actions share. The action is then unchanged.
        """
        if sum(given is not None for given in (action_id, code, token)) != 1:
            raise ValueError("decide needs exactly one of action_id, code and token")
        if intent not in ("confirm", "cancel"):
            raise ValueError(f"intent is 'confirm' or 'cancel', not {intent!r}")
        return await self._running().decide(
            person, intent, action_id=action_id, code=code, token=token, conversation=conversation
        )

    async def notify(self, address: Address | str, reply: Reply | str, *, after_seconds: float = 0.0) -> None:
        """Send a message that the bot starts itself, now or after `after_seconds`. It survives restarts.

        When this returns, the message is in the outbox, or its timer in the store. Raises WrongOption for a reply with
        buttons, which have no handlers yet. Raises ValueError for a malformed address, a channel that is off, and
        seconds that are negative or not finite. Raises OptedOut when the person has written STOP on SMS or WhatsApp and
        not START since, and Unreachable when the bot was found blocked or removed there within a day and no message has
        come from there since. Both are kinds of Undeliverable.
        """
        where = Address.parse(address) if isinstance(address, str) else address
        if not 0 <= after_seconds < float("inf"):
            raise ValueError(f"after_seconds must be 0 or a positive number, not {after_seconds!r}")
        said = _without_buttons(reply)
        await self._running().notify(where, said, after_seconds=after_seconds)

    def command(self, name: str, *, description: str = "") -> Callable[[CommandHandler], CommandHandler]:
        """Register the command ``/name``: an async function of a ToolContext and the text after the command.

        It may return a Reply with files, but not with buttons, which have no handlers yet. Raises ValueError for a name
        that is taken or that a platform could not show.
        """
        if not name.isidentifier() or name != name.lower() or len(name) > 32:
            raise ValueError(f"a command is up to 32 small letters, digits and _, not {name!r}")
        if name in self._commands or name in BUILT_IN:
            raise ValueError(f"there is a /{name} already")

        def register(handler: CommandHandler) -> CommandHandler:
            self._commands[name] = (handler, description or inspect.cleandoc(handler.__doc__ or name))
            return handler

        return register

    def on_outcome(self, callback: Callable[[PendingAction], Awaitable[None]]) -> None:
        """Register an async callback for every action that this process has executed, called after its end."""
        self._on_outcome.append(callback)

    def register_executor_factory(self, kind: str, factory: Factory) -> None:
        """Register a factory of executors for the actions of this kind that `stash_pending` stored.

        Without a factory, only the process that stashed an action can run it, and only until it restarts. Raises
        ValueError for a factory that is async or not a function.
        """
        check_factory(kind, factory)
        self._factories[kind] = factory

    def on_doubt(self, callback: ActionCallback) -> None:
        """Register a callback, sync or async, for every action of doubtful outcome that this process finds.

        The action's `state` is ``unknown`` when its effect may or may not have happened. Its `detail` is ``tampered``
        when its record was changed without the key. In any other case its outcome could not be delivered to its person.
        """
        self._on_doubt.append(callback)

    def _running(self) -> Runtime:
        if self._runtime is None:
            raise NotRunning("the bot is not running: enter it with `async with bot:`, or give it to a Gateway")
        return self._runtime

    # ── for the engine ──

    @property
    def name(self) -> str:
        return self.agent.name

    def tool(self, name: str) -> Tool | None:
        return self.agent.tools.get(name)

    def tool_for(self, action: PendingAction) -> Tool | None:
        """Return the tool that an action runs, or the executor stashed with it. None if this process has neither."""
        if action.tool_version != ADAPTER:
            return self.tool(action.kind)
        if (factory := self._factories.get(action.kind)) is not None:
            return StashedTool(action, made_by(factory, action))
        stashed = self._stashed.get(action.pending_action_id)
        return stashed if stashed is not None and stashed.runs else None

    def keep_stashed(self, action_id: str, tool: StashedTool) -> None:
        """Keep the executor of an action until it has ended. Beyond _STASHED, the oldest is dropped."""
        self._stashed[action_id] = tool
        while len(self._stashed) > _STASHED:
            self._stashed.popitem(last=False)

    def drifted(self, action: PendingAction) -> Detail | None:
        """Return the reason why an action may not run as it was shown, or None.

        Reasons: another tool, template or approver rule since the prompt, or a policy that now denies the call.
        """
        from gateway.pending.propose import asks_more

        tool = self.tool_for(action)
        if tool is None or not tool.matches(action):
            return "other_release"
        if not tool.serves(action.conversation.partition("/")[2].partition(":")[0]):
            return "changed"
        policy = self.agent.policy
        denied = policy is not None and policy.decide(tool.name, action.args)[0] == "deny"
        return "changed" if denied or asks_more(tool, action) else None

    def commands(self, language: str) -> dict[str, str]:
        """Return every command with its description, in display order."""
        own = {name: description for name, (_, description) in self._commands.items()}
        return {name: say(f"cmd_{name}", language) for name in BUILT_IN} | own

    @contextlib.asynccontextmanager
    async def attached(self, runtime: Runtime) -> AsyncIterator[None]:
        """Attach the bot to a runtime for the length of the block, with the lifespan's value in `deps`.

        Raises ProviderConfigurationError when there is no model to call, and LifespanFailed.
        """
        if self._runtime is not None:
            raise RuntimeError("this bot is running already: one process runs it once")
        async with contextlib.AsyncExitStack() as stack:
            provider = await asyncio.to_thread(getattr, self.agent, "provider")  # imports the vendor's package
            stack.push_async_callback(_close, provider)
            if self._lifespan is not None:
                self.deps = await stack.enter_async_context(_lived(self._lifespan))
            self._runtime = runtime
            try:
                yield
            finally:
                self._runtime = self.deps = None

    def help(self, language: str) -> str:
        """Return the answer to /help, as Markdown."""
        listed = [f"/{name} – {plain(what)}" for name, what in self.commands(language).items()]
        return say("help", language, commands="\n".join(listed))

    async def tell_outcome(self, action: PendingAction) -> None:
        """Call the callbacks of `on_outcome`."""
        self._stashed.pop(action.pending_action_id, None)
        await self._call(self._on_outcome, "on_outcome", action)

    async def tell_doubt(self, action: PendingAction) -> None:
        """Call the callbacks of `on_doubt`."""
        await self._call(self._on_doubt, "on_doubt", action)

    async def _call(self, callbacks: Sequence[ActionCallback], name: str, action: PendingAction) -> None:
        """Call an author's callbacks, sync ones in a thread. Errors are logged, and a callback that hangs is timed
        out."""
        for callback in callbacks:
            try:
                async with asyncio.timeout(_CALLBACK_SECONDS):
                    is_async = inspect.iscoroutinefunction(callback)
                    called = callback(action) if is_async else await asyncio.to_thread(callback, action)
                    if called is not None:
                        await called
            except Exception as error:  # noqa: BLE001 - an author's callback must not undo what is done
                log.error("an %s callback failed: %s", name, describe_error(error))

    async def turn(self, turn: Turn) -> Outcome:
        """Run a turn: a command, or the model. Answers to open actions are handled before this.

        Raises ProviderError when the model cannot be reached.
        """
        command = turn.messages[0].command if turn.messages else None
        unlisted = command == "whoami" or (command == "pair" and turn.admit is not None)
        if unlisted or command in BUILT_IN or command in self._commands:
            return await self._command(turn, command or "")
        return await self._model(turn)

    # ── the turn ──

    async def _command(self, turn: Turn, command: str) -> Outcome:
        outcome = Outcome(stop_reason="command", transcript=to_entries(turn.notes))
        match command:
            case "start":
                outcome.replies = [Reply(text=self.greeting or say("greeting", turn.language))]
            case "help":
                outcome.replies = [Reply(text=self.help(turn.language))]
            case "new":
                outcome.replies, outcome.transcript = [Reply(text=say("new_done", turn.language))], [RESET]
            case "pending":
                outcome.replies = [Reply(text=self._pending(turn, await turn.actions()), exact=True)]
            case "whoami" if command not in self._commands:
                outcome.replies = [Reply(text=say("whoami", turn.language, person=f"`{turn.person}`"))]
            case "pair" if command not in self._commands and turn.admit is not None:
                outcome.replies = [Reply(text=await turn.admit(turn.messages[0].text, turn.language))]
            case _:
                answer = await self._commands[command][0](turn.context, turn.messages[0].text)
                if answer is not None:
                    outcome.replies = [_without_buttons(answer)]
        return outcome

    def _pending(self, turn: Turn, actions: ConversationActions) -> str:
        from gateway.pending.prompt import brief

        waiting = actions.open_for(str(turn.person))
        if not waiting:
            return say("pending_none", turn.language)
        lines = [f"- {brief(action.preview)} ({action.code})" for action in waiting]
        return "\n".join([say("pending_list", turn.language), "", *lines])

    async def _model(self, turn: Turn) -> Outcome:
        waiting = (await turn.actions()).open_for(str(turn.person))
        told = [ModelMessage(role="event", content=_waiting_note(waiting))] if waiting else []
        done = await self.agent.turn(
            [*turn.history, *turn.notes, *told, *turn.heard],
            context=turn.context,
            on_confirm=_Asking(self, turn),
            journal=turn.journal,
            keep=turn.keep,
            on_event=lambda name, fields: turn.publish(name, conversation=turn.conversation, **fields),
        )
        outcome = Outcome(
            stop_reason=done.stop_reason,
            transcript=to_entries([*turn.notes, *turn.heard, *done.messages]),
            asked=[_asked(turn, asked.action) for asked in done.asked],
            unrelated=bool(waiting and turn.messages),
            loop=done,
        )
        silent = outcome.asked or done.stop_reason == "cancelled"
        text = "" if silent else done.content or _excuse(done.stop_reason, turn.language)
        links = [link(item.filename, item.url) for item in done.artifacts if item.url]
        if text or links:
            outcome.replies.append(Reply(text="\n\n".join(filter(None, [text, *links]))))
        outcome.replies += [Reply(media=(media_of(item),)) for item in done.artifacts if item.url is None]
        return outcome


async def _close(provider: Provider) -> None:
    """Close a provider. An error of an author's provider is logged, so that the rest of the shutdown continues."""
    try:
        await provider.close()
    except Exception as error:  # noqa: BLE001
        log.error("the provider could not be closed: %s", describe_error(error))


@contextlib.asynccontextmanager
async def _lived(lifespan: Lifespan) -> AsyncIterator[Any]:
    """Enter and leave a bot's lifespan. Raises LifespanFailed for errors that the lifespan raises itself."""
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


class _Asking:
    """Confirmation callback of the loop: turns each call into an action, or into an error for the model."""

    def __init__(self, bot: ChannelAgent, turn: Turn) -> None:
        self._bot, self._turn = bot, turn
        self._proposed: list[PendingAction] = []

    async def __call__(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        actions = await self._turn.actions()
        return [self._verdict(actions, ask) for ask in asks]

    def _verdict(self, actions: ConversationActions, ask: Ask) -> Verdict:
        from gateway.pending.asked import as_asked
        from gateway.pending.propose import ProposalRefused, propose_action
        from gateway.pending.seal import compute_digest

        turn = self._turn
        proposed = propose_action(
            actions,
            ask.tool,
            dict(ask.args),
            ask.preview,
            person=turn.person,
            address=turn.address,
            language=turn.language,
            turn_started=turn.started,
            answer_window_seconds=self._bot.answer_window_seconds,
            proposed=self._proposed,
        )
        if isinstance(proposed, ProposalRefused):
            return proposed.why
        if isinstance(ask.tool, StashedTool):
            proposed = replace(proposed, pending_action_id=ask.tool.action.pending_action_id)
            proposed = replace(proposed, digest=compute_digest(proposed))
            self._bot.keep_stashed(proposed.pending_action_id, ask.tool)
        self._proposed.append(proposed)
        told = PendingConfirmation(
            action=ask.tool.name,
            preview=ask.preview.text,
            user_prompt=say("prompt_shown", turn.language),
        )
        return Asked(confirmation=told, action=as_asked(proposed))


def _asked(turn: Turn, action: PendingAction) -> PendingAction:
    """Take over an action that the loop proposed, possibly in an earlier attempt at this turn. Raises NotAsked."""
    from gateway.pending.asked import taken_over

    return taken_over(action, conversation=turn.conversation, requester=str(turn.person))


BUILT_IN = ("start", "help", "new", "stop", "pending")
"""Commands of every bot. /stop runs in the decision lane. /whoami and /pair are not listed."""

_STORE = re.compile(r"sqlite:///.|rediss?://.")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
"""The shape of a BCP 47 tag."""
_CALLBACK_SECONDS = 60.0
_STASHED = 5000
"""Maximum number of executors kept for stashed actions that have not ended."""

_EXCUSES: Mapping[str, str] = {
    "answered": "empty_answer",
    "max_iterations": "max_iterations",
    "loop_detected": "max_iterations",
    "budget": "budget",
    "timeout": "turn_timeout",
}


def media_of(artifact: Artifact) -> Media:
    """Return a kept file as a reply's media."""
    return Media(
        sha256=artifact.sha256 or "",
        mime_type=artifact.mime_type or "application/octet-stream",
        filename=artifact.filename or "file",
        size=artifact.size or 0,
        role=artifact.role,
    )


def _without_buttons(reply: Reply | str) -> Reply:
    """Return a callback's answer as a Reply. Raises WrongOption for buttons, whose presses have no handler."""
    if isinstance(reply, str):
        return Reply(text=reply)
    if reply.buttons:
        raise WrongOption(
            "Reply",
            {
                "buttons": "cannot be of your own: there are no handlers for them yet. Leave them out, and let the "
                "person write the answer. A tool with confirm= gets its Confirm and Cancel from the gateway"
            },
        )
    return reply


def _excuse(stop_reason: StopReason, language: str) -> str:
    """Return the text for a turn that ended without an answer."""
    key = _EXCUSES.get(stop_reason)
    return say(key, language) if key is not None else ""


def _command(message: str) -> tuple[str | None, str]:
    word, _, rest = message.strip().partition(" ")
    if word.startswith("/") and word[1:].isidentifier():
        return word[1:].lower(), rest.strip()
    return None, message


def _heard(message: Message) -> ModelMessage:
    """Return a person's message in the form that the model reads."""
    text = f"/{message.command} {message.text}".rstrip() if message.command else message.text
    files = [f"[{item.kind}: {item.filename or item.mime_type or 'no name'}]" for item in message.attachments]
    speaker = None
    if message.address.group and message.person is not None:
        speaker = message.person.name or message.person.user_id
    return ModelMessage(role="user", content="\n".join([text, *files]).strip(), speaker=speaker)


def _before(message: Message) -> list[ModelMessage]:
    """Return the group's preceding messages to others as one note for the model. Empty when none were kept."""
    if not message.before:
        return []
    lines = ["Written in the group before this message, not to you:", *message.before]
    return [ModelMessage(role="event", content="\n".join(lines))]


def _waiting_note(actions: Sequence[PendingAction]) -> str:
    lines = [f"- {action.kind}: {action.preview}" for action in actions]
    return "\n".join(["Waiting for the person's confirmation, NOT done yet:", *lines])
