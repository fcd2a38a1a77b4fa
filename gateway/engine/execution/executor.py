"""Execution: launch a confirmed action under a fence, run the tool, record the end and notify the person.

`running` is recorded before the effect. If the end of the effect is not known afterwards (a timeout, a cancellation, a
drain, a dead worker), the action is `unknown`: the person is notified, and the effect is never repeated automatically.
An idempotent tool is run again with the same key. A tool with a probe is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from functools import partial

from gateway.agent.interceptors import InterceptorFailed, Veto
from gateway.engine.concurrency import BackgroundTasks, DelayedTask, KeyedLimit
from gateway.engine.context import EngineContext
from gateway.engine.execution.effects import EffectResult, Effects
from gateway.engine.leases import HeldLease, shielded_commit
from gateway.engine.retrying import attempts
from gateway.engine.signs_of_life import SignsOfLife
from gateway.logs import describe_error
from gateway.observe.events import InterceptorVetoed, LeaseLost
from gateway.observe.runs import action_event_id, run_id_of
from gateway.pending import settling
from gateway.pending.actions import ConversationActions
from gateway.pending.loading import conversation_of
from gateway.pending.prompting import edit_prompt
from gateway.pending.transitions import is_stale
from gateway.store.errors import Conflict, Fenced, StoreError
from gateway.store.transaction import Transaction
from gateway.store.types import Key, Lease
from gateway.stored import keys
from gateway.tools import Tool, ToolContext, ToolError, cause_of
from gateway.tools.confirm import LAUNCH_PREVIEW_SECONDS, asked_with, changed
from gateway.tools.pending_action import Detail, PendingAction
from gateway.wording import say

log = logging.getLogger("askfirst.actions")

MOST_OF_A_TOOL = 32
"""Concurrent effects of a tool. As many places are left for other tools while the tool hangs or waits for a lock."""
_AGAIN_SECONDS = 5.0
_ELSEWHERE = "its tool is another here"
_ELSEWHERE_SECONDS = 1.0
"""Interval of offering the action to a process with the tool."""
_SHOWN_AFTER_SECONDS = 0.5
"""A longer effect is shown as running. Most effects end earlier, and cost no call to the platform."""
_CHECKED_WITHIN = timedelta(minutes=1)
"""Time limit for retries of a preview that cannot be made again."""
_CHANNEL_BACK_WITHIN = timedelta(hours=1)
"""Time for a confirmed action to wait for the channel. Later, no person would expect the effect."""


class ActionExecutor:
    """Executes confirmed actions."""

    def __init__(
        self,
        context: EngineContext,
        *,
        effects: Effects | None = None,
        again_seconds: float = _AGAIN_SECONDS,
        shown_after_seconds: float = _SHOWN_AFTER_SECONDS,
        preview_seconds: float = LAUNCH_PREVIEW_SECONDS,
    ) -> None:
        self._context = context
        self._effects = effects or Effects(context)
        self._again_seconds, self._shown_after_seconds = again_seconds, shown_after_seconds
        self._preview_seconds = preview_seconds
        self._running, self._life = KeyedLimit(MOST_OF_A_TOOL), SignsOfLife(context)
        self._queue = ActionBacklog(context, self._running)
        self._going_on: set[str] = set()
        """Actions with a tool still running in a thread after the end of the execution."""
        self.late = BackgroundTasks()
        """Tasks waiting for these threads and recording the late ends."""

    def rehearse(self, instead: Callable[[PendingAction], None]) -> None:
        """Run no tool from now on. `instead` is called with each action, and the action ends as done."""
        self._effects.instead = instead

    @property
    def rehearses(self) -> bool:
        """True if no tool is run."""
        return self._effects.instead is not None

    async def run(self, lease: Lease) -> PendingAction | None:
        """Execute the action of this lease, or settle the action after a worker's death.

        Return the ended action or None.
        """
        launched: PendingAction | None = None
        ended: PendingAction | None = None
        end = EffectResult("unknown", "the worker lost its lease")
        try:
            with HeldLease(self._context, lease):
                found = await self._find(lease)
                if found is None:
                    await self._give_back(lease)
                elif (why := await self._why_not_now(found)) is not None:
                    if not lease.tries:
                        log.warning("action %s waits: %s", lease.lane, why)
                        if why == _ELSEWHERE:
                            await self._ask_for_patience(found)
                    seconds = _ELSEWHERE_SECONDS if why == _ELSEWHERE else self._again_seconds
                    await self._give_back(lease, again=True, after_seconds=seconds)
                elif found.state == "running" and (left := await self._effects.after_a_death(found)) is not None:
                    ended = await self._end(found, left, lease)
                elif found.state == "approved" and self._running.are_taken(found.kind):
                    await self._give_back(lease, again=True)
                    self._queue.add(lease, found.kind)
                    await self._show_progress(found)
                else:
                    with self._queue.one(found.kind):
                        if (launched := await self._launch(lease, found)) is None:
                            await self._give_back(lease, again=await self._is_approved(lease))
                        else:
                            showing = DelayedTask(
                                self._shown_after_seconds, partial(self._show_progress, launched), "progress"
                            )
                            try:
                                async with self._life.typing(launched.address, under=_newest_prompt(launched)):
                                    end = await self._effects.run(launched, partial(self._follow, launched))
                            finally:
                                showing.end()
                            ended = await self._end(launched, end, lease)
        except Fenced:
            log.warning("action %s: somebody else has taken over", lease.lane)
            if launched is not None and lease.lane not in self._going_on:
                ended = await self._finish(launched, end, None)
        except asyncio.CancelledError:
            if launched is not None:
                known = end if end.state != "unknown" else EffectResult("unknown", "stopped while running")
                await shielded_commit(self._finish(launched, known, lease, patient=False))
            raise
        return ended

    async def _find(self, lease: Lease) -> PendingAction | None:
        """Return the action of this lease, or None for an unreadable record. A tampered action is closed."""
        context, key = self._context, Key(lease.partition, keys.action(lease.lane))
        snapshot = lease.prefetched if context.has_prefetch(lease) else await context.store.get([key])
        conversation = conversation_of(snapshot[key].value)
        if conversation is None or context.store.partition(conversation) != lease.partition:
            log.error("action %s cannot be read: it will not run", lease.lane)
            return None
        return (await context.actions(conversation, lease.lane)).get(lease.lane)

    async def _is_approved(self, lease: Lease) -> bool:
        """Return True if the action of this lease still waits to be launched."""
        found = await self._find(lease)
        return found is not None and found.state == "approved"

    # ── before ──

    async def _why_not_now(self, action: PendingAction) -> str | None:
        """Return the reason against a launch now, or None."""
        if is_stale(action, await self._context.store.now()):
            return None  # it never can be: the launch closes it
        if action.state == "approved" and self._context.bot.drifted(action) and not self._context.drifted(action):
            return _ELSEWHERE
        if await self._waits_for_channel(action):
            return "its channel is off here, so nobody would be told"
        if action.state == "approved" and not await self._context.store.has_headroom():
            return "the store has no room to write its end"
        return None

    async def _ask_for_patience(self, action: PendingAction) -> None:
        """Notify the person of a short delay of the action."""
        with contextlib.suppress(StoreError):  # this message may be left out
            actions = await self._context.actions(action.conversation)
            actions.say(say("one_moment", action.language))
            transaction = Transaction(partition=actions.partition)
            await self._write(transaction, actions, action)
            await self._context.commit(transaction)

    def _is_mute(self, action: PendingAction) -> bool:
        """Return True if this process cannot write to the person, because the channel is off here."""
        return action.address is not None and action.address.channel not in self._context.channels

    async def _waits_for_channel(self, action: PendingAction) -> bool:
        """Return True while the action is left for a process with the channel."""
        since = action.launched_at or action.decided_at
        if since is None or not self._is_mute(action):
            return False
        return await self._context.store.now() - since < _CHANNEL_BACK_WITHIN

    async def _launch(self, lease: Lease, found: PendingAction) -> PendingAction | None:
        """Record the launch of the effect, and return the action.

        None: the effect does not run now. Unless a check is retried later, the reason is recorded and the person
        notified.
        """
        context = self._context
        why = await self._checked(found)
        if why == "not_checked" and not self._is_late(found, await context.store.now()):
            return None
        launched: PendingAction | None = None
        for attempt in attempts(patient=True):
            async with attempt:
                actions = await context.actions(found.conversation, lease.lane)
                action = actions.get(lease.lane)
                if action is not None and action.state == "running" and action.fence == lease.fence:
                    return action  # the commit whose answer was lost has recorded it: only this lease can
                transaction = Transaction(partition=lease.partition, lease=lease)
                launched = None
                if why is None or is_stale(found, actions.now):
                    launched = settling.launch(actions, lease.lane, lease.fence, actions.now)
                elif isinstance(why, Veto):
                    settling.close_vetoed(actions, lease.lane, actions.now, why.reason)
                else:
                    settling.close_drifted(actions, lease.lane, actions.now, why)
                await self._write(transaction, actions, found)
                launching = asyncio.ensure_future(context.commit(transaction))
                try:
                    await asyncio.shield(launching)
                except asyncio.CancelledError:
                    await shielded_commit(self._call_off(launching, launched, lease))
                    raise
        return launched

    async def _call_off(self, launching: Awaitable[object], launched: PendingAction | None, lease: Lease) -> None:
        """Record the effect as not run, once the launch is recorded."""
        with contextlib.suppress(StoreError):
            await launching
            if launched is not None:
                await self._finish(launched, EffectResult("failed", "stopped before it began"), lease, patient=False)

    async def _checked(self, action: PendingAction) -> Detail | Veto | None:
        """Return the reason against running the action as shown, or None."""
        tool = self._context.bot.tool_for(action)
        if tool is None or action.state != "approved":
            return None
        if self._is_mute(action):
            return "not_checked"
        tool_context = self._effects.tool_context(action)
        return await check_launch(self._context, action, tool, tool_context, preview_seconds=self._preview_seconds)

    @staticmethod
    def _is_late(action: PendingAction, now: datetime) -> bool:
        """Return True after enough time for retries of the check."""
        return action.decided_at is None or now - action.decided_at > _CHECKED_WITHIN

    async def _show_progress(self, action: PendingAction) -> None:
        """Edit the prompts to show the action as confirmed and running, unless ended."""
        context, action_id = self._context, action.pending_action_id
        with contextlib.suppress(StoreError):  # a Conflict: the action has ended, and its end is told
            actions = await context.actions(action.conversation, action_id)
            now = actions.get(action_id)
            if now is None or now.state not in ("approved", "running"):
                return
            for message_id in now.prompts:
                edit_prompt(actions, message_id, actions.now)
            transaction = Transaction(partition=actions.partition)
            await self._write(transaction, actions, now)
            transaction.expect[keys.action(action_id)] = actions.changes.versions[action_id]
            await context.commit(transaction)

    # ── after ──

    async def _end(self, action: PendingAction, end: EffectResult, lease: Lease) -> PendingAction | None:
        """Record the end, or release the lease for a later check. Return the ended action or None."""
        if end.again:
            await self._give_back(lease, again=True)
            return None
        return await self._finish(action, end, lease)

    def _follow(self, action: PendingAction, coming: Awaitable[EffectResult]) -> None:
        """Record the late end of a tool still running in a thread."""
        self._going_on.add(action.pending_action_id)
        self.late.start(self._settle_late(action, coming), "late effect")

    async def _settle_late(self, action: PendingAction, coming: Awaitable[EffectResult]) -> None:
        try:
            end = await coming
            log.warning("action %s (%s) has ended late: %s", action.pending_action_id, action.kind, end.state)
            ended = await self._finish(action, end, None)
        finally:
            self._going_on.discard(action.pending_action_id)
        if ended is not None:
            await self._context.bot.tell_outcome(ended)

    async def _finish(
        self,
        action: PendingAction,
        end: EffectResult,
        lease: Lease | None,
        *,
        patient: bool = True,
    ) -> PendingAction | None:
        """Record the end and notify the person. Return the action, or None for an end recorded before.

        Without a lease, this is a late end, settling an `unknown` action or a probe's "not done". `patient`: wait for
        an unavailable store.
        """
        context, action_id = self._context, action.pending_action_id
        ended: PendingAction | None = None
        told = perhaps_told = False
        for attempt in attempts(patient=patient):
            async with attempt:
                perhaps_told, told = perhaps_told or (attempt.outcome_unknown and told), False
                actions = await context.actions(action.conversation, action_id)
                if lease is None and end.state == "unknown" and _is_running(actions.get(action_id)):
                    return None  # another worker has the action, and may find out more
                told = settling.finish(
                    actions,
                    action_id,
                    action.fence,
                    end.state,
                    end.outcome,
                    actions.now,
                    text=end.text,
                    media=end.media,
                )
                if not told and lease is None:
                    ended = actions.get(action_id) if perhaps_told else None
                    break
                transaction = Transaction(partition=context.store.partition(action.conversation), lease=lease)
                transaction.finish = "done" if lease is not None else None
                await self._write(transaction, actions, action)
                try:
                    await context.commit(transaction)
                except Fenced as error:
                    if patient and not perhaps_told:  # else this worker's own commit has ended the lease
                        log.warning("action %s: somebody else has taken over", action_id)
                        context.events.tell_now(LeaseLost, kind="action", conversation=action.conversation)
                    lease = None
                    raise Conflict("the lease is gone") from error
                ended = actions.get(action_id) if told else None
        if ended is not None and ended.state == "unknown":
            context.alarms.sound(ended, "unknown")
        if ended is not None and self._is_mute(ended):
            context.alarms.sound(ended, "undeliverable")
        return ended

    async def _write(self, transaction: Transaction, actions: ConversationActions, action: PendingAction) -> None:
        await actions.write(transaction)
        if action.address is not None:
            cause = action_event_id(action.pending_action_id)
            transaction.parts += self._context.parts.render(
                action.conversation,
                action.address,
                actions.says,
                cause=cause,
                language=action.language,
                reader=actions.reader(None),
            )

    async def _give_back(self, lease: Lease, *, again: bool = False, after_seconds: float | None = None) -> None:
        after_seconds = self._again_seconds if after_seconds is None else after_seconds
        due = await self._context.store.now() + timedelta(seconds=after_seconds) if again else None
        transaction = Transaction(partition=lease.partition, lease=lease, finish="failed" if again else "done", due=due)
        await self._context.commit(transaction)


def _is_running(action: PendingAction | None) -> bool:
    return action is not None and action.state == "running"


def _newest_prompt(action: PendingAction) -> str | None:
    return action.prompts[-1] if action.prompts else None


async def check_launch(
    context: EngineContext, action: PendingAction, tool: Tool, tool_context: ToolContext, *, preview_seconds: float
) -> Detail | Veto | None:
    """Return the reason against a launch, or None: the action differs from the prompt, was not checked, or has a veto.

    `preview_seconds` is the time limit of the preview.
    """
    if tool.compares(action):
        try:
            now = await tool.preview(action.args, tool_context, timeout_seconds=preview_seconds)
        except ValueError:
            return "changed"
        except ToolError as error:
            log.warning("the preview of %s could not be made again: %s", action.kind, describe_error(cause_of(error)))
            return "not_checked"
        if changed(asked_with(action), now):
            return "changed"
    if context.bot.interceptors.of_calls and not is_stale(action, await context.store.now()):
        return await _vetoed(context, action, tool_context)
    return None


async def _vetoed(context: EngineContext, action: PendingAction, tool_context: ToolContext) -> Detail | Veto | None:
    """Ask the interceptors about an action. Interceptors cannot change the action: a person has seen the arguments."""
    try:
        veto = await context.bot.interceptors.check_call(tool_context, action.kind, action.args)
    except InterceptorFailed as error:
        log.error("action %s (%s) could not be checked: %s", action.pending_action_id, action.kind, error)
        return "not_checked"
    if veto is not None:
        event_id = action_event_id(action.pending_action_id)
        context.events.tell_now(
            InterceptorVetoed,
            run_id_of(action.conversation, event_id),
            conversation=action.conversation,
            stage="launch",
            interceptor=veto.interceptor,
            tool_name=action.kind,
            event_id=event_id,
        )
    return veto


class ActionBacklog:
    """The actions deferred by this process, by tool, oldest first.

    The store has a retry time for each action, so an action also runs after the end of this process.
    """

    def __init__(self, context: EngineContext, running: KeyedLimit) -> None:
        self._context, self._running = context, running
        self._waiting: dict[str, dict[str, str]] = {}
        """Tool -> action id -> partition."""

    def add(self, lease: Lease, kind: str) -> None:
        """Add the action of a released lease. The action is made ready when the tool has a free place."""
        self._waiting.setdefault(kind, {})[lease.lane] = lease.partition
        if not self._running.are_taken(kind):
            self._next(kind)

    @contextlib.contextmanager
    def one(self, kind: str) -> Iterator[None]:
        """Count a running action of this tool while the block runs. The end makes the next action ready."""
        try:
            with self._running.one(kind):
                yield
        finally:
            self._next(kind)

    def _next(self, kind: str) -> None:
        waiting = self._waiting.get(kind)
        if not waiting:
            return
        action_id = next(iter(waiting))
        partition = waiting.pop(action_id)
        if not waiting:
            del self._waiting[kind]
        ready = Transaction(partition=partition, actions=[action_id])
        self._context.tasks.start(self._context.commit(ready), "wake")
