"""The engine for a bot's own code: ask_channel, decide and notify.

`decide` names an action by id, code or token. The scan of the store only finds candidates. Each candidate is read with
the candidate's own conversation, and an unreadable record hides no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Literal

from channels import Address, Message, Person, Reply
from channels.direct import DirectChannel
from gateway.access.suppression import check_suppression
from gateway.channel_agent import NotAllowed
from gateway.engine.calls import Call, Calls, TurnResult
from gateway.engine.context import EngineContext
from gateway.engine.decisions.lane import Decisions
from gateway.engine.delivery.sender import PartSender
from gateway.engine.event_bodies import event_body, received_body
from gateway.engine.execution.executor import ActionExecutor
from gateway.engine.leases import lease_lane
from gateway.engine.memory.jobs import MemoryRunner
from gateway.engine.memory.records import turn_memories
from gateway.engine.parts import schedule_reply
from gateway.engine.turns.runner import TurnRunner
from gateway.observe.results import AgentResult
from gateway.pending.actions import OutgoingReply
from gateway.pending.index import IndexEntry
from gateway.pending.loading import conversation_of
from gateway.pending.reading import decides, name_of, read_words, reads_as_answer
from gateway.pending.tokens import make_action_id, token_sha256
from gateway.pending.transitions import may_approve, may_refuse
from gateway.privacy.conversations import Conversations
from gateway.store.transaction import Transaction
from gateway.store.types import Incoming, Lease
from gateway.stored import keys
from gateway.stored.events import DecisionRequested, body_of
from gateway.stored.memory_events import conversation_lane, person_lane
from gateway.tools.pending_action import PendingAction
from gateway.wording import FALLBACK

_VISIBLE_LINES = 20
"""Lines at the end of a visible log to search for the bot's newest message."""
_MEMORY_WAIT_SECONDS = 1.0
"""The longest wait for an event on the way to a memory lane."""
_LEAST_WAIT_SECONDS, _MOST_WAIT_SECONDS = 0.01, 0.5
"""First and longest wait of a call for the work of another loop or process."""


class BotRuntime:
    """The `Runtime` of `gateway.channel_agent`.

    Each call does the work of the conversation itself, so no running loops are needed.
    """

    def __init__(
        self,
        context: EngineContext,
        decisions: Decisions,
        turns: TurnRunner,
        memory: MemoryRunner,
        actions: ActionExecutor,
        sender: PartSender,
    ) -> None:
        self.context, self._decisions = context, decisions
        self._turns, self._memory, self._actions, self._sender = turns, memory, actions, sender
        self._calls = Calls(context)
        self.conversations = Conversations(context.store, context.keyring, context.bot.name, context.artifacts)

    async def ask(self, address: Address, person: Person, message: Message) -> AgentResult:
        """Run a message of the bot's own code through the engine, and return the result of the turn.

        Raises the error of a failed turn.
        """
        context = self.context
        if message.reply_to is not None:
            action = await find_by_id(context, message.reply_to)
            verb = action.verb if action is not None else None
            asked = action.language if action is not None else FALLBACK
            await context.load_languages(person.language, asked)
            intent = read_words(message.text, (context.language(person, asked), asked), verb, name_of(person))
            needs_code = action is not None and intent == "confirm" and action.filed
            if intent != "unclear" and not needs_code:
                return await self.decide(str(person), intent, action_id=message.reply_to, code=None, token=None)
        message_id = f"app/{make_action_id()}"
        await context.load_languages(person.language)
        language = context.language(person)
        channel = context.channels.get(address.channel)
        numbers = channel is not None and channel.capabilities.numbers
        if numbers or reads_as_answer(
            message.text, language, name_of(person)
        ):  # it answers the message before the call
            message = replace(message, after=await self._newest_message(context.conversation(address)))
        async with self._calls.begin(context.conversation(address)) as call:
            await self._work(call)
            message = replace(message, event_ids=(message_id,), message_id=message_id)
            body = event_body(context.keyring, call.conversation, message, await context.clock.now())
            incoming = Incoming(
                conversation=call.conversation, event_ids=(message_id,), body=body, decides=decides(message, language)
            )
            call.turn_result = call.record = call.error = None
            await context.store.accept([incoming])
            await self._work(call)
            if call.turn_result is None and call.error is None:
                await call.read_posted_result(message_id)
            context.tasks.start(self._work_memory(call.conversation, str(person)), "memory")
            return await call.result()

    async def decide(
        self,
        person: str,
        intent: Literal["confirm", "cancel"],
        *,
        action_id: str | None,
        code: str | None,
        token: str | None,
        conversation: str | None = None,
    ) -> AgentResult:
        """Decide for a person. The caller vouches for the person. Raises NotAllowed, and then changes no action."""
        context = self.context
        person = str(Person.parse(person))
        action = await self._find(person, action_id=action_id, code=code, token=token, conversation=conversation)
        may = may_refuse if intent == "cancel" else may_approve
        if action is None or not may(action, person):
            raise NotAllowed(f"{person} has no such action to decide")
        pressed = action.button(token_sha256(token)) if token is not None else None
        if token is not None and (pressed is None or pressed.intent != intent):
            meant = pressed.intent if pressed is not None else "nothing"
            raise NotAllowed(f"this is the token of a button for {meant}, not for {intent}: nothing is decided")
        async with self._calls.begin(action.conversation) as call:
            event = DecisionRequested(
                event_id=f"decide/{make_action_id()}",
                action_id=action.pending_action_id,
                intent=intent,
                person=person,
                language=action.language,
            )
            body = received_body(context.keyring, call.conversation, body_of(event), await context.clock.now())
            incoming = Incoming(conversation=call.conversation, event_ids=(event.event_id,), body=body, decides=True)
            await context.store.accept([incoming])
            await self._work(call)
            call.turn_result = TurnResult(stop_reason="decided")
            return await call.result()

    async def notify(self, address: Address, reply: Reply, *, after_seconds: float = 0.0) -> None:
        """Queue a reply for an address, now or after some seconds.

        Raises ValueError when the channel of the address is off, OptedOut and Unreachable.
        """
        context = self.context
        if address.channel not in context.channels:
            raise ValueError(f"no channel {address.channel!r} is on: {address}")
        conversation = context.conversation(address)
        await check_suppression(context.store, conversation)
        transaction = Transaction(partition=context.store.partition(conversation))
        if after_seconds:
            due = await context.store.now() + timedelta(seconds=after_seconds)
            transaction.timers = [schedule_reply(context.keyring, conversation, address, reply, due)]
        else:
            replies, language = [OutgoingReply(reply=reply)], await context.language_there(conversation, None)
            transaction.parts = context.parts.render(conversation, address, replies, cause="notify", language=language)
        await context.store.commit(transaction)

    async def work_lane(self, lease: Lease) -> None:
        """Run the turn of a lease, and pass the result to the waiting call.

        Raises the error of a turn without a waiting call.
        """
        call = self._calls.get(lease.lane)
        try:
            outcome = await self._turns.run(lease)
        except Exception as error:
            if call is None:
                raise
            call.error = error
        else:
            if call is not None and outcome is not None:
                call.turn_result = TurnResult.of(outcome)
                call.record = outcome.loop.record if outcome.loop is not None else None

    async def _newest_message(self, conversation: str) -> str | None:
        """Return the id of the bot's newest message in the visible log of a conversation."""
        log = keys.key(self.context.store, conversation, keys.visible_log)
        for entry in reversed(await self.context.store.read(log, last=_VISIBLE_LINES)):
            match entry.value:
                case {"from": "bot", "edits": None, "message_id": message_id}:
                    return message_id if isinstance(message_id, str) else None
        return None

    async def _find(
        self, person: str, *, action_id: str | None, code: str | None, token: str | None, conversation: str | None
    ) -> PendingAction | None:
        if token is not None:
            return await find_by_token(self.context, token, conversation)
        if code is not None:
            return await find_by_code(self.context, person, code.upper(), conversation)
        return await find_by_id(self.context, action_id or "", conversation)

    # ── the work of a call ──

    async def _work(self, call: Call) -> None:
        """Do all work of the call's conversation, until no awaited work is left.

        Loops of this process and other processes may do parts of the work.
        """
        await self.context.store.run_timers()
        wait = _LEAST_WAIT_SECONDS
        while True:
            ran = await self._work_once(call.conversation)
            if not ran:
                if not await self._is_busy(call.conversation):
                    return
                wait = min(2 * wait, _MOST_WAIT_SECONDS)
            if ran or await call.wait_for_line(wait):
                wait = _LEAST_WAIT_SECONDS

    async def _work_once(self, conversation: str) -> bool:
        """Work the free lanes of the conversation: decisions, turn, confirmed actions, outbox.

        Return True if any lane was worked.
        """
        context, ran = self.context, False
        await self._decisions.decide(conversation)
        if (lease := await lease_lane(context, "turn", only=conversation)) is not None:
            ran = True
            await self.work_lane(lease)
        for action_id in await self._confirmed(conversation):
            if (lease := await lease_lane(context, "action", only=action_id)) is not None:
                ran = True
                ended = await self._actions.run(lease)
                if ended is not None and not self._actions.rehearses:
                    await context.bot.tell_outcome(ended)
        if (lease := await lease_lane(context, "out", only=conversation)) is not None:
            ran = True
            await self._sender.run(lease)
        return ran

    async def _work_memory(self, conversation: str, person: str) -> None:
        """Work the free memory lanes of a conversation and of a person."""
        context, agent = self.context, self.context.bot.agent
        lanes = [conversation_lane(conversation)] if turn_memories(agent) else []
        lanes += [person_lane(context.bot.name, person)] if agent.config.knowledge_memory is not None else []
        for lane in lanes:
            lease = await lease_lane(context, "memory", only=lane, wait_seconds=_MEMORY_WAIT_SECONDS)
            if lease is not None:
                await self._memory.run(lease)

    async def _confirmed(self, conversation: str) -> list[str]:
        """Return the ids of the confirmed actions that have not ended and have a channel in this process."""
        context = self.context
        if not (await context.load_index(conversation)).index.going:
            return []
        actions = await context.actions(conversation)
        running = [
            action
            for action in actions.by_id.values()
            if action.state in ("approved", "running") and action.ballot_of is None
        ]
        here = [a for a in running if a.address is None or a.address.channel in context.channels]
        return [action.pending_action_id for action in here]

    async def _is_busy(self, conversation: str) -> bool:
        """Return True if the call has to wait: for another loop or process, or until a lease has lapsed.

        No call waits for the delivery to a platform: the platform may be down for hours.
        """
        context = self.context
        if await self._confirmed(conversation):
            return True
        if not conversation.startswith(f"{context.bot.name}/{DirectChannel.name}:"):
            return False
        if await context.store.has_work(conversation):
            return True
        return any(lane == conversation for _, lane in context.held)


async def find_by_id(context: EngineContext, action_id: str, conversation: str | None = None) -> PendingAction | None:
    """Return the action of this id, in this conversation or in any."""
    if conversation is not None:
        return await _action(context, conversation, action_id)
    name = keys.action(action_id)
    for key, record in await context.store.scan(name):
        where = conversation_of(record.value)
        if key.name == name and where is not None:
            return await _action(context, where, action_id)
    return None


async def find_by_token(context: EngineContext, token: str, conversation: str | None = None) -> PendingAction | None:
    """Return the action of the button with this token."""
    name = keys.token(token_sha256(token))
    for key, record in await context.store.scan(name):
        match record.value:
            case {"conversation": str(where), "action_id": str(action_id)} if key.name == name:
                return await _action(context, where, action_id) if conversation in (None, where) else None
    return None


async def find_by_code(
    context: EngineContext, person: str, code: str, conversation: str | None = None
) -> PendingAction | None:
    """Return the open action with this code for this person to answer, else the last ended action.

    Raises NotAllowed for several open actions: codes are unique within a conversation only.
    """
    found: list[tuple[IndexEntry, PendingAction]] = []
    for where, entries in (await _indexes(context, conversation)).items():
        for entry in entries:
            if entry.code == code and person in (entry.requester, *entry.approvers):
                action = await _action(context, where, entry.action_id)
                if action is None or (action.ballot_of is not None and conversation is None):
                    continue  # the action itself is found where it was asked
                if action.code == code and may_refuse(action, person):
                    found.append((entry, action))
    waiting = [action for _, action in found if action.open]
    if len(waiting) > 1:
        raise NotAllowed(
            f"{len(waiting)} open actions of {person} have the code {code}: say which with conversation= or action_id="
        )
    if waiting:
        return waiting[0]
    return max(found, key=lambda each: each[0].at)[1] if found else None


async def _indexes(context: EngineContext, conversation: str | None) -> dict[str, Sequence[IndexEntry]]:
    """Return the entries of the indexes by conversation: of this conversation, or of all."""
    found: dict[str, Sequence[IndexEntry]] = {}
    if conversation is not None:
        found[conversation] = (await context.load_index(conversation)).index.entries
        return found
    prefix = keys.index("")
    for key, record in await context.store.scan(prefix):
        where = key.name.removeprefix(prefix)
        found[where] = context.read_index(where, record).index.entries
    return found


async def _action(context: EngineContext, conversation: str, action_id: str) -> PendingAction | None:
    """Return the action from the records of the conversation, or None."""
    return (await context.actions(conversation, action_id)).get(action_id)
