"""One turn of a bot: its input, its result, and the two ways to answer it, by a command or by the model."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from channels import Address, Json, Message, Person, Reply
from gateway.agent import Agent, Ask, Asked, Expenses, Interceptors, Journal, Keep, LoopOutcome, LoopPorts, Verdict
from gateway.agent.full_result import EarlierResults
from gateway.artifacts import media_of
from gateway.memory import RESET, to_entries
from gateway.observe.results import AgentResult, StopReason
from gateway.observe.teller import RunTeller
from gateway.options import WrongOption
from gateway.providers.base import ModelMessage
from gateway.tools import PendingConfirmation, ToolContext
from gateway.tools.escape import link, plain
from gateway.tools.pending_action import PendingAction
from gateway.tools.stashed import StashedTool
from gateway.wording import say

# The confirmation code is half of the package, and only a running bot needs it: it is imported inside functions.
if TYPE_CHECKING:
    from gateway.pending.actions import ConversationActions

__all__ = [
    "BUILT_IN",
    "ActionProposer",
    "BotCommands",
    "CommandHandler",
    "Outcome",
    "Runtime",
    "Turn",
    "answer_with_model",
    "split_command",
    "without_buttons",
]

CommandHandler: TypeAlias = Callable[[ToolContext, str], Awaitable[str | Reply | None]]

BUILT_IN: Final = ("start", "help", "new", "stop", "pending", "usage")
"""Commands of every bot. /stop runs in the decision lane. /whoami and /pair are not listed."""

_EXCUSES: Mapping[str, str] = {
    "answered": "empty_answer",
    "stop_condition": "empty_answer",
    "max_iterations": "max_iterations",
    "loop_detected": "max_iterations",
    "budget": "budget",
    "timeout": "turn_timeout",
}
"""The key of the text for a turn that ended without an answer, by its stop reason."""


class TurnExpenses(Expenses, Protocol):
    """The expenses of a turn, from the budgets of its person and of the bot."""

    async def notice(self, language: str, *, began: bool) -> str | None:
        """Return the text for a turn that one of these budgets has ended; None if none has.

        A person is told once a window in each conversation, and whenever the turn had begun. Else the text is empty.
        """
        ...

    async def report(self, language: str) -> str:
        """Return the answer to /usage, as Markdown."""
        ...


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
    events: RunTeller
    """Tells the events of the turn."""
    expenses: TurnExpenses
    earlier_results: EarlierResults
    """Returns the raw results of a tool that an earlier turn has kept."""
    admit: Callable[[str, str], Awaitable[str]] | None = None
    """Admits the person with this pairing code and returns the answer in this language. None if this person may not
    admit others."""

    @property
    def model_messages(self) -> list[ModelMessage]:
        """The person's messages in the form that the model reads."""
        return [each for message in self.messages for each in (*_group_messages(message), _model_message(message))]

    @property
    def command(self) -> str | None:
        """The command that the person wrote, without its slash."""
        return self.messages[0].command if self.messages else None


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


# ── commands ──


class BotCommands:
    """The commands of one bot: the built-in ones, and those that its author registered."""

    def __init__(self) -> None:
        self._own: dict[str, tuple[CommandHandler, str]] = {}

    def register(self, name: str, handler: CommandHandler, description: str) -> None:
        """Add a command of the author. Without a description, its handler's docstring is shown."""
        self._own[name] = (handler, description or inspect.cleandoc(handler.__doc__ or name))

    def check_name(self, name: str) -> None:
        """Raises ValueError for a name that is taken or that a platform could not show."""
        if not name.isidentifier() or name != name.lower() or len(name) > 32:
            raise ValueError(f"a command is up to 32 small letters, digits and _, not {name!r}")
        if name in self._own or name in BUILT_IN:
            raise ValueError(f"there is a /{name} already")

    def described(self, language: str) -> dict[str, str]:
        """Return every command with its description, in display order."""
        own = {name: description for name, (_, description) in self._own.items()}
        return {name: say(f"cmd_{name}", language) for name in BUILT_IN} | own

    def help(self, language: str) -> str:
        """Return the answer to /help, as Markdown."""
        listed = [f"/{name} – {plain(description)}" for name, description in self.described(language).items()]
        return say("help", language, commands="\n".join(listed))

    def are_meant(self, turn: Turn) -> bool:
        """Return True if the turn is answered by a command."""
        command = turn.command
        unlisted = command == "whoami" or (command == "pair" and turn.admit is not None)
        return unlisted or command in BUILT_IN or command in self._own

    def are_built_in(self, turn: Turn) -> bool:
        """Return True if the turn is answered by a command of the gateway's own."""
        return self.are_meant(turn) and turn.command not in self._own

    async def answer(self, turn: Turn, *, greeting: str | None) -> Outcome:
        """Run the command of the turn. `greeting` is the answer to /start; None: the gateway's own."""
        command = turn.command or ""
        outcome = Outcome(stop_reason="command", transcript=to_entries(turn.notes))
        match command:
            case "start":
                outcome.replies = [Reply(text=greeting or say("greeting", turn.language))]
            case "help":
                outcome.replies = [Reply(text=self.help(turn.language))]
            case "new":
                outcome.replies, outcome.transcript = [Reply(text=say("new_done", turn.language))], [RESET]
            case "pending":
                outcome.replies = [Reply(text=_open_actions(turn, await turn.actions()), exact=True)]
            case "usage":
                outcome.replies = [Reply(text=await turn.expenses.report(turn.language), exact=True)]
            case "whoami" if command not in self._own:
                outcome.replies = [Reply(text=say("whoami", turn.language, person=f"`{turn.person}`"))]
            case "pair" if command not in self._own and turn.admit is not None:
                outcome.replies = [Reply(text=await turn.admit(turn.messages[0].text, turn.language))]
            case _:
                answer = await self._own[command][0](turn.context, turn.messages[0].text)
                if answer is not None:
                    outcome.replies = [without_buttons(answer)]
        return outcome


def _open_actions(turn: Turn, actions: ConversationActions) -> str:
    from gateway.pending.prompt import brief

    waiting = actions.open_for(str(turn.person))
    if not waiting:
        return say("pending_none", turn.language)
    lines = [f"- {brief(action.preview)} ({action.code})" for action in waiting]
    return "\n".join([say("pending_list", turn.language), "", *lines])


# ── the model ──


async def answer_with_model(turn: Turn, agent: Agent, proposer: ActionProposer, interceptors: Interceptors) -> Outcome:
    """Run the model's loop over the turn. Raises ProviderError when the model cannot be reached."""
    waiting = (await turn.actions()).open_for(str(turn.person))
    reminders = [ModelMessage(role="event", content=_waiting_note(waiting))] if waiting else []
    done = await agent.turn(
        [*turn.history, *turn.notes, *reminders, *turn.model_messages],
        context=turn.context,
        on_confirm=proposer,
        ports=LoopPorts(
            journal=turn.journal,
            keep=turn.keep,
            events=turn.events,
            expenses=turn.expenses,
            earlier_results=turn.earlier_results,
            interceptors=interceptors,
        ),
    )
    outcome = Outcome(
        stop_reason=done.stop_reason,
        transcript=to_entries([*turn.notes, *_said(turn, done), *done.messages]),
        asked=[_taken_over(turn, asked.action) for asked in done.asked],
        unrelated=bool(waiting and turn.messages),
        loop=done,
    )
    silent = outcome.asked or done.stop_reason == "cancelled"
    text = "" if silent else await _text(turn, done)
    links = [link(item.filename, item.url) for item in done.artifacts if item.url]
    if text or links:
        outcome.replies.append(Reply(text="\n\n".join(filter(None, [text, *links]))))
    outcome.replies += [Reply(media=(media_of(item),)) for item in done.artifacts if item.url is None]
    return outcome


def _said(turn: Turn, done: LoopOutcome) -> Sequence[ModelMessage]:
    """Return the person's messages as the guards let them through."""
    said = turn.model_messages
    return said if done.guarded is None or not said else done.guarded[-len(said) :]


async def _text(turn: Turn, done: LoopOutcome) -> str:
    """Return the text that answers the person."""
    if done.stop_reason == "budget":
        notice = await turn.expenses.notice(turn.language, began=done.iterations > 0)
        if notice is not None:
            return "\n\n".join(filter(None, [done.content, notice]))
    if done.stop_reason in ("answered", "stop_condition") and done.content:
        return done.content
    # Text beside the last calls, such as "Let me look.", is no answer: the person also reads why the turn ended.
    return "\n\n".join(filter(None, [done.content, _excuse(done.stop_reason, turn.language)]))


class ActionProposer:
    """Confirmation callback of the loop: turns each call into an action, or into an error for the model."""

    def __init__(
        self, turn: Turn, *, answer_window_seconds: float, keep_stashed: Callable[[str, StashedTool], None]
    ) -> None:
        """`keep_stashed` keeps the executor of an action that a tool stashed, by the action's id."""
        self._turn, self._answer_window_seconds, self._keep_stashed = turn, answer_window_seconds, keep_stashed
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
            answer_window_seconds=self._answer_window_seconds,
            proposed=self._proposed,
        )
        if isinstance(proposed, ProposalRefused):
            return proposed.why
        if isinstance(ask.tool, StashedTool):
            proposed = replace(proposed, pending_action_id=ask.tool.action.pending_action_id)
            proposed = replace(proposed, digest=compute_digest(proposed))
            self._keep_stashed(proposed.pending_action_id, ask.tool)
        self._proposed.append(proposed)
        confirmation = PendingConfirmation(
            action=ask.tool.name,
            preview=ask.preview.text,
            user_prompt=say("prompt_shown", turn.language),
        )
        return Asked(confirmation=confirmation, action=as_asked(proposed))


def _taken_over(turn: Turn, action: PendingAction) -> PendingAction:
    """Take over an action that the loop proposed, possibly in an earlier attempt at this turn. Raises NotAsked."""
    from gateway.pending.asked import taken_over

    return taken_over(action, conversation=turn.conversation, requester=str(turn.person))


def _excuse(stop_reason: StopReason, language: str) -> str:
    """Return the text for a turn that ended without an answer."""
    key = _EXCUSES.get(stop_reason)
    return say(key, language) if key is not None else ""


def _waiting_note(actions: Sequence[PendingAction]) -> str:
    lines = [f"- {action.kind}: {action.preview}" for action in actions]
    return "\n".join(["Waiting for the person's confirmation, NOT done yet:", *lines])


# ── messages and replies ──


def split_command(message: str) -> tuple[str | None, str]:
    """Return the command of a message without its slash, and the text after it. None: the message is no command."""
    word, _, rest = message.strip().partition(" ")
    if word.startswith("/") and word[1:].isidentifier():
        return word[1:].lower(), rest.strip()
    return None, message


def _model_message(message: Message) -> ModelMessage:
    """Return a person's message in the form that the model reads."""
    text = f"/{message.command} {message.text}".rstrip() if message.command else message.text
    files = [f"[{item.kind}: {item.filename or item.mime_type or 'no name'}]" for item in message.attachments]
    speaker = None
    if message.address.group and message.person is not None:
        speaker = message.person.name or message.person.user_id
    return ModelMessage(role="user", content="\n".join([text, *files]).strip(), speaker=speaker)


def _group_messages(message: Message) -> list[ModelMessage]:
    """Return the group's preceding messages to others as one note for the model. Empty when none were kept."""
    if not message.before:
        return []
    lines = ["Written in the group before this message, not to you:", *message.before]
    return [ModelMessage(role="event", content="\n".join(lines))]


def without_buttons(reply: Reply | str) -> Reply:
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
