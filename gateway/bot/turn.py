"""A turn of a bot: the input, the result, and the answer by a command or by the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from channels import Address, Attachment, Json, Media, Message, Person, Reply
from gateway.agent import (
    Agent,
    Ask,
    Asked,
    Expenses,
    Interceptors,
    Journal,
    Keep,
    LiveText,
    LoopOutcome,
    LoopPorts,
    ReadFile,
    Verdict,
    is_shown,
)
from gateway.agent.compress import EarlierResults
from gateway.agent.withdrawing import WITHDRAW_QUESTION
from gateway.artifacts import media_of
from gateway.config.options import WrongOption
from gateway.memory import Remembered, to_entries
from gateway.observe.results import AgentResult, StopReason
from gateway.observe.teller import RunTeller
from gateway.providers.base import ModelMessage
from gateway.tools import PendingConfirmation, ToolContext
from gateway.tools.confirm import Approvers, NoApprovers
from gateway.tools.context import ReceivedAttachment
from gateway.tools.escape import link, plain
from gateway.tools.pending_action import Ballot, PendingAction
from gateway.tools.stash import StashedTool
from gateway.wording import say

if TYPE_CHECKING:
    from gateway.pending.actions import ConversationActions
    from gateway.privacy.conversations import Conversations


# The confirmation code is half of the package, and only a running bot needs it: it is imported inside functions.


_EXCUSES: Mapping[str, str] = {
    "answered": "empty_answer",
    "stop_condition": "empty_answer",
    "max_iterations": "max_iterations",
    "loop_detected": "max_iterations",
    "budget": "budget",
    "timeout": "turn_timeout",
}
"""The key of the text for a turn without an answer, by stop reason."""


class TurnExpenses(Expenses, Protocol):
    """The expenses of a turn, from the budgets of the person and of the bot."""

    async def notice(self, language: str, *, began: bool) -> str | None:
        """Return the text for a turn ended by one of these budgets; None for any other turn.

        The person is notified once a window in each conversation, and always if the turn had begun. Otherwise the text
        is empty.
        """
        ...

    async def report(self, language: str) -> str:
        """Return the answer to /usage, as Markdown."""
        ...


class PersonalData(Protocol):
    """The data of the person of a turn. A command first replies with a code, and runs when the text is this code."""

    async def export(self, said: str, language: str) -> Reply:
        """Return the answer to /export with the text after the command."""
        ...

    async def forget(self, said: str, language: str) -> Reply:
        """Return the answer to /forget with the text after the command."""
        ...


@dataclass(slots=True, kw_only=True)
class Turn:
    """Input of a turn. The features of turns change the input before the bot runs."""

    conversation: str
    address: Address
    person: Person
    language: str
    messages: Sequence[Message]
    """Messages of one person, in order. Empty for a turn that only continues after an outcome."""
    notes: Sequence[ModelMessage]
    """Events since the previous turn: outcomes of actions, edits."""
    history: Sequence[ModelMessage]
    started: datetime
    context: ToolContext
    journal: Journal
    keep: Keep
    actions: Callable[[], Awaitable[ConversationActions]]
    """Loads the conversation's open actions, anew at each call."""
    settled: Callable[[], Awaitable[ConversationActions]]
    """Loads the conversation's open actions and the recently ended actions."""
    elsewhere: Callable[[], Awaitable[Sequence[PendingAction]]]
    """Loads the open questions waiting for the person in groups. Empty for a turn in a group."""
    events: RunTeller
    """Emits the events of the turn."""
    expenses: TurnExpenses
    own_data: PersonalData = field(init=False)
    """The data of the person, for /export and /forget."""
    find_ballots: Callable[[Sequence[str]], Awaitable[Mapping[str, Ballot]]]
    """Returns the ballot of each of these people, in the private chat. The ballot of an unreachable person is lost."""
    may_ask: Callable[[int], Awaitable[bool]]
    """Returns True if the person may be asked this many questions now. The questions are then counted."""
    earlier_results: EarlierResults = field(init=False)
    """Returns the raw results of a tool, kept by an earlier turn."""
    remembered: Remembered = field(default_factory=Remembered)
    """The memories of the conversation and of the person, for the model."""
    read_file: ReadFile | None = None
    """Returns the bytes of a file of the conversation."""
    live: LiveText | None = None
    """Shows the answer during writing. None without support by the channel or the agent."""
    admit: Callable[[str, str], Awaitable[str]] | None = None
    """Admits the person with this pairing code and returns the answer in this language. None: may not admit others."""

    @property
    def model_messages(self) -> list[ModelMessage]:
        """The person's messages in the form for the model."""
        return said_messages(self.messages, self.context.attachments)

    @property
    def command(self) -> str | None:
        """The command written by the person, without the slash. None for a forwarded command."""
        return self.messages[0].command if self.messages and not self.messages[0].forwarded else None


@dataclass(slots=True, kw_only=True)
class Outcome:
    """Result of a turn, before storing and sending."""

    stop_reason: StopReason
    replies: list[Reply] = field(default_factory=list)
    transcript: list[Json] = field(default_factory=list)
    asked: list[PendingAction] = field(default_factory=list)
    """Actions to show in one prompt. Actions not stored yet are new."""
    changing: str | None = None
    """The id of the open action being changed by the person."""
    withdrawn: tuple[str, ...] = ()
    """The ids of the actions taken back by the model."""
    unrelated: bool = False
    """True if the turn was not about the person's open actions."""
    loop: LoopOutcome | None = None
    """Result of the model's loop. None if the model was not called."""


class Runtime(Protocol):
    """Interface of the engine for a bot."""

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
    @property
    def conversations(self) -> Conversations: ...


# ── the model ──


async def answer_with_model(turn: Turn, agent: Agent, proposer: ActionProposer, interceptors: Interceptors) -> Outcome:
    """Run the model's loop over the turn. Raises ProviderError if the model cannot be reached."""
    actions = await turn.actions()
    waiting = actions.open_for(str(turn.person))
    changing = proposer.changing = _changing(turn, actions)
    names = _names(waiting, str(turn.person))
    reminders = [ModelMessage(role="event", content=_waiting_note(waiting, names, changing))] if waiting else []
    done = await agent.answer(
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
            live=turn.live,
            read_file=turn.read_file,
            remembered=turn.remembered,
            withdrawable={name: action_id for action_id, name in names.items()},
        ),
    )
    outcome = Outcome(
        stop_reason=done.stop_reason,
        transcript=to_entries([*turn.notes, *_said(turn, done), *done.messages]),
        asked=[_taken_over(turn, asked.action) for asked in done.asked],
        changing=changing.pending_action_id if changing is not None else None,
        withdrawn=done.withdrawn,
        unrelated=bool(waiting and turn.messages),
        loop=done,
    )
    silent = outcome.asked or done.stop_reason == "cancelled"
    text = "" if silent else await _text(turn, done)
    links = [link(item.filename, item.url) for item in done.artifacts if item.url]
    answer = replace(done.reply or Reply(), text="\n\n".join(filter(None, [text, *links])))
    if answer.text or answer.media:
        outcome.replies.append(answer)
    outcome.replies += [Reply(media=(media_of(item),)) for item in done.artifacts if item.url is None]
    outcome.replies += [Reply(text=_unreached(name, turn.language), exact=True) for name in proposer.unreached]
    outcome.replies[:0] = [
        Reply(text=say("heard", turn.language, text=plain(each.transcript)))
        for each in turn.context.attachments
        if each.transcript
    ]
    outcome.replies += [
        Reply(text=say("file_not_read", turn.language, name=plain(each.filename or each.kind)))
        for each in turn.context.attachments
        if each.fault
    ]
    return outcome


def _said(turn: Turn, done: LoopOutcome) -> Sequence[ModelMessage]:
    """Return the person's messages after the guards."""
    said = turn.model_messages
    return said if done.guarded is None or not said else done.guarded[-len(said) :]


async def _text(turn: Turn, done: LoopOutcome) -> str:
    """Return the text of the answer."""
    if done.stop_reason == "budget":
        notice = await turn.expenses.notice(turn.language, began=done.iterations > 0)
        if notice is not None:
            return "\n\n".join(filter(None, [done.content, notice]))
    if done.stop_reason in ("answered", "stop_condition") and (done.content or done.artifacts):
        return done.content
    # Text beside the last calls, such as "Let me look.", is no answer: the person also reads why the turn ended.
    return "\n\n".join(filter(None, [done.content, _excuse(done.stop_reason, turn.language)]))


_ASKED_OFTEN = "Not asked: this person was asked too often in the last minutes. Tell them, and ask again later."


class ActionProposer:
    """Confirmation callback of the loop: turns each call into an action, or into an error for the model."""

    def __init__(
        self, turn: Turn, *, answer_window_seconds: float, keep_stashed: Callable[[str, StashedTool], None]
    ) -> None:
        """`keep_stashed` stores the executor of an action stashed by a tool, under the action's id."""
        self._turn, self._answer_window_seconds, self._keep_stashed = turn, answer_window_seconds, keep_stashed
        self._proposed: list[PendingAction] = []
        self.changing: PendingAction | None = None
        """The open action to be changed at the person's wish."""
        self.unreached: dict[str | None, None] = {}
        """Names of unreachable approvers: their calls were not asked. None for approvers without a name."""

    async def __call__(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        from gateway.pending.propose import asked_elsewhere
        from gateway.pending.tokens import make_action_id
        from gateway.pending.words.plan import MOST_ITEMS

        turn = self._turn
        if len(asks) > MOST_ITEMS:
            return [f"Not asked: at most {MOST_ITEMS} calls are confirmed at once. Split them."] * len(asks)
        rules = await _rules(asks)
        named = [rule for rule in rules.values() if isinstance(rule, Approvers)]
        elsewhere = [person for rule in named for person in asked_elsewhere(rule, str(turn.person), turn.address)]
        ballots = await turn.find_ballots(elsewhere) if elsewhere else {}
        actions = await turn.actions()
        plan = make_action_id() if len(asks) > 1 else None
        changing = self.changing
        proposed = [self._child(actions, ask, rules[ask.tool.name], ballots, plan) for ask in asks]
        verdicts = await self._within_quota(actions, asks, proposed)
        if not any(isinstance(verdict, Asked) and verdict.action.replaces is not None for verdict in verdicts):
            self.changing = changing  # the child was refused, so its question is still being changed
        return verdicts

    async def _within_quota(
        self, actions: ConversationActions, asks: Sequence[Ask], verdicts: Sequence[Verdict]
    ) -> Sequence[Verdict]:
        """Return these verdicts, with refusals of new questions if the person was asked too often lately."""
        from gateway.pending.standing import is_covered

        def is_counted(ask: Ask, verdict: Verdict) -> bool:
            if not isinstance(verdict, Asked) or actions.get(verdict.action.pending_action_id) is not None:
                return False
            return not is_covered(actions, verdict.action, ask.tool)

        counted = [is_counted(ask, verdict) for ask, verdict in zip(asks, verdicts, strict=True)]
        if not any(counted) or await self._turn.may_ask(sum(counted)):
            return verdicts
        allowed = [_ASKED_OFTEN if counts else verdict for verdict, counts in zip(verdicts, counted, strict=True)]
        ids = {verdict.action.pending_action_id for verdict in allowed if isinstance(verdict, Asked)}
        self._proposed = [action for action in self._proposed if action.pending_action_id in ids]
        return allowed

    def _child(
        self,
        actions: ConversationActions,
        ask: Ask,
        rule: Approvers | NoApprovers | None,
        ballots: Mapping[str, Ballot],
        plan: str | None,
    ) -> Verdict:
        """Propose a call. The first new call of the changed action's tool replaces the action's question."""
        if isinstance(rule, NoApprovers):
            return str(rule)
        verdict = self._verdict(actions, ask, rule, ballots, plan, changing=self.changing)
        if isinstance(verdict, Asked) and verdict.action.replaces is not None:
            self.changing = None
        return verdict

    def _verdict(
        self,
        actions: ConversationActions,
        ask: Ask,
        rule: Approvers | None,
        ballots: Mapping[str, Ballot],
        plan: str | None,
        *,
        changing: PendingAction | None = None,
    ) -> Verdict:
        from gateway.pending.propose import ProposalRefused, as_asked, propose_action
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
            ballots=ballots,
            plan=plan,
            changing=changing,
            approvers=rule,
        )
        if isinstance(proposed, ProposalRefused):
            if proposed.unreached:
                self.unreached[rule.name_in(turn.language) if rule is not None else None] = None
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


async def _rules(asks: Sequence[Ask]) -> Mapping[str, Approvers | NoApprovers | None]:
    """Return tool name -> the tool's rule with the people named now, or the error of the author's function."""
    found: dict[str, Approvers | NoApprovers | None] = {}
    for name, tool in {ask.tool.name: ask.tool for ask in asks}.items():
        try:
            found[name] = await tool.named_approvers()
        except NoApprovers as error:
            found[name] = error
    return found


def _taken_over(turn: Turn, action: PendingAction) -> PendingAction:
    """Take over an action proposed by the loop, possibly in an earlier attempt at this turn. Raises NotAsked."""
    from gateway.pending.propose import taken_over

    return taken_over(action, conversation=turn.conversation, requester=str(turn.person))


def _unreached(name: str | None, language: str) -> str:
    """Return the text about unreachable approvers, with the author's name for the group."""
    from gateway.pending.prompt import deciders

    return say("approvers_unreached", language, people=deciders(name, language))


def _excuse(stop_reason: StopReason, language: str) -> str:
    """Return the text for a turn without an answer."""
    key = _EXCUSES.get(stop_reason)
    return say(key, language) if key is not None else ""


def _names(waiting: Sequence[PendingAction], person: str) -> Mapping[str, str]:
    """Return the names of the person's own open questions, by action id."""
    mine = [action for action in waiting if action.requester == person and action.ballot_of is None]
    return {action.pending_action_id: f"q{number}" for number, action in enumerate(mine, start=1)}


def _waiting_note(waiting: Sequence[PendingAction], names: Mapping[str, str], changing: PendingAction | None) -> str:
    lines = ["Waiting for the person's confirmation, NOT done yet:"]
    for action in waiting:
        name = names.get(action.pending_action_id)
        lines.append(f"- {f'{name}, ' if name is not None else ''}{action.kind}: {action.preview}")
    if names:
        lines.append(f"What the person no longer wants, take back with {WITHDRAW_QUESTION}.")
    if changing is not None:
        lines.append(
            f"The person's message says how to change this one: {changing.kind} ({changing.preview}). Call the tool "
            "with the changed arguments: the new question replaces it."
        )
    return "\n".join(lines)


def _changing(turn: Turn, actions: ConversationActions) -> PendingAction | None:
    """Return the open action to be changed, or None.

    The person pressed Change, or answered the only open question with a yes and another wish: "yes, but INV-7".
    """
    from gateway.pending.reading import continues, name_of

    if not turn.messages:  # the turn goes on after an outcome, and no wish of the person is in it
        return None
    if (changing := actions.changed_by(str(turn.person))) is not None:
        return changing
    mine = [action for action in actions.open if action.requester == str(turn.person) and action.ballot_of is None]
    if len(mine) != 1:
        return None
    languages, name = (turn.language, mine[0].language), name_of(turn.person)
    said = {continues(message.text, languages, name) for message in turn.messages if not message.forwarded}
    return mine[0] if "change" in said and "add" not in said else None


# ── messages and replies ──


def split_command(message: str) -> tuple[str | None, str]:
    """Return the command of a message without the slash, and the text after the command. None: no command."""
    word, _, rest = message.strip().partition(" ")
    if word.startswith("/") and word[1:].isidentifier():
        return word[1:].lower(), rest.strip()
    return None, message


def without_buttons(reply: Reply | str) -> Reply:
    """Return a callback's answer as a Reply. Raises WrongOption for buttons: presses have no handler."""
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


def said_messages(messages: Sequence[Message], attachments: Sequence[ReceivedAttachment]) -> list[ModelMessage]:
    """Return these messages for the model, with the words and files of the `attachments`."""
    received = {each.ref: each for each in attachments}
    return [each for message in messages for each in (*_group_messages(message), _model_message(message, received))]


def _model_message(message: Message, received: Mapping[str, ReceivedAttachment]) -> ModelMessage:
    """Return a person's message in the form for the model: pictures and PDFs as files, others by name."""
    text = message.written
    if message.forwarded and text:
        text = _quoted(text)
    lines = [_quoted(each) for each in message.shared]
    files: list[Media] = []
    for item in message.attachments:
        found = received.get(item.ref)
        if found is not None and found.media is not None and is_shown(found.media):
            files.append(found.media)
        elif found is not None and found.transcript is not None:
            lines.append(f"[voice message, as a machine heard it:] {found.transcript}")
        else:
            lines.append(_file_line(item if found is None else found))
    speaker = None
    if message.address.group and message.person is not None:
        speaker = message.person.name or message.person.user_id
    said = "\n".join([text, *lines]).strip()
    return ModelMessage(role="user", content=said, speaker=speaker, files=tuple(files))


def _quoted(text: str) -> str:
    """Return words forwarded by the person, as quoted data: each line begins with a mark."""
    return "\n".join(["[forwarded by the person, not their own words:]", *(f"> {line}" for line in text.splitlines())])


def _file_line(item: Attachment) -> str:
    fault = f", not read: {item.fault}" if isinstance(item, ReceivedAttachment) and item.fault else ""
    scheme, _, value = item.ref.partition(":")
    place = value if (item.kind, scheme) in (("location", "geo"), ("contact", "tel")) else ""
    named = ", ".join(filter(None, [item.filename, place])) or item.mime_type or "no name"
    return f"[{item.kind}: {named}{fault}]"


def _group_messages(message: Message) -> list[ModelMessage]:
    """Return the group's preceding messages to others as a note for the model. Empty without kept messages."""
    if not message.before:
        return []
    lines = ["Written in the group before this message, not to you:", *message.before]
    return [ModelMessage(role="event", content="\n".join(lines))]
