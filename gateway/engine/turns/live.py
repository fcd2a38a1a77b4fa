"""The text of a running turn, shown in the chat while the model writes.

The shown text is a preview. The outbox sends the answer. The first parts of the answer replace the messages of the
preview (`OutboxItem.finishes`), and the remaining preview messages are deleted. After a call without an answer all
preview messages are deleted, because the call could still change a message over the answer. A sealed record names the
messages. The next attempt at the turn, in any process, continues in the same messages.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

from channels import Address, Ambiguous, AskfirstError, CanStream, RateLimited, StreamHandle
from gateway.bot.turn import Turn
from gateway.engine.context import EngineContext
from gateway.engine.turns.feature import Ending, RunningTurn, TurnFeature
from gateway.logs import describe_error
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Lease
from gateway.stored import keys
from gateway.timing.left_tasks import leave
from gateway.tools.escape import plain

log = logging.getLogger("askfirst.turns")

FIRST_SECONDS: Final = 0.5
"""The wait before the first showing. A shorter answer comes whole."""
PROGRESS_SECONDS: Final = 2.0
"""The least time between two showings with only a new progress of a tool."""
_END_SECONDS: Final = 3.0
"""The longest wait for a call still running at the end."""
_KEPT_SECONDS: Final = 86400.0


class Live(TurnFeature):
    """Shows the unfinished answer, if the channel can stream and the agent's configuration enables it."""

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._channels = {
            name: channel
            for name, channel in context.channels.items()
            if isinstance(channel, CanStream)
            and channel.capabilities.stream
            and context.bot.agent.config.streams_on(name)
        }

    async def begin(self, turn: RunningTurn) -> None:
        channel = self._channels.get(turn.address.channel)
        if channel is not None:
            turn.preview = await streamed_text(self.context, turn.lease, channel, turn.address, turn.events.run_id)

    async def before(self, turn: RunningTurn, asked: Turn) -> None:
        asked.live = turn.preview

    async def after(self, turn: RunningTurn) -> None:
        if turn.preview is not None:
            await turn.preview.ended()

    async def contribute(self, ending: Ending) -> None:
        turn = ending.turn
        if turn.preview is not None:
            ending.streamed, ending.in_place = turn.preview.message_ids, not turn.preview.in_doubt
        elif turn.lease.tries:
            ending.streamed = await begun_messages(self.context, turn.conversation, turn.events.run_id)
        if ending.streamed:
            ending.transaction.deletes.append(keys.streamed(turn.conversation))


class StreamedText:
    """The text of an attempt at a turn."""

    def __init__(
        self,
        channel: CanStream,
        address: Address,
        *,
        message_ids: Sequence[str],
        wait: Callable[[], Awaitable[float]],
        record: Callable[[Sequence[str]], Awaitable[None]],
        now: Callable[[], datetime],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`message_ids`: the ids of an earlier attempt. `record` makes the ids of new messages durable.

        `wait` counts a call and returns 0, or returns the seconds until a call is allowed. `now` is the store's clock.
        """
        self._channel, self._address = channel, address
        self._wait, self._record, self._now, self._pause = wait, record, now, pause
        self.message_ids: Sequence[str] = tuple(message_ids)
        """The ids of the messages with the text."""
        self.in_doubt = False
        """True after a call without an answer: the platform may still show the call's text, also over an answer."""
        self.since: datetime | None = None
        """The earliest time at which this attempt's text may have been seen; None before."""
        self._pieces: list[str] = []
        self._is_old = False
        self._progress = ""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_calling = self._has_ended = self._has_shown = False

    def add(self, piece: str) -> None:
        """Add a piece of the model's reply."""
        if self._is_old:
            self._pieces.clear()
            self._is_old = False
        self._pieces.append(piece)
        self._progress = ""
        self._show()

    @property
    def words(self) -> str:
        """The words of the reply so far; before the first word of a reply, those of the reply before."""
        return "".join(self._pieces).strip()

    @property
    def is_whole(self) -> bool:
        """True if `words` are a whole reply, before the first word of the next one."""
        return self._is_old

    def restart(self) -> None:
        """Begin a reply. The text of the earlier reply stays until the new text replaces it."""
        self._is_old = True

    def progress(self, text: str) -> None:
        """Show the progress of a tool under the text."""
        self._progress = text
        self._show()

    def is_shown(self) -> bool:
        """Return True if a part of the text has been shown."""
        return self._has_shown

    async def ended(self) -> None:
        """End the showing, after the running call. Otherwise the call could show old text over the answer."""
        self._has_ended = True
        if self._task is None:
            return
        if not self._is_calling:
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=_END_SECONDS)
        if not self._task.done():
            self.in_doubt = True
            leave(self._task)

    def _show(self) -> None:
        self._changed.set()
        if self._task is None and not self._has_ended:
            self._task = asyncio.create_task(self._keep_showing(), name="streamed text")

    async def _keep_showing(self) -> None:
        try:
            await self._pause(FIRST_SECONDS)
            await self._show_changes(await self._channel.stream(self._address, message_ids=self.message_ids))
        except Ambiguous as error:
            self.in_doubt = True
            log.info("an answer is not shown while it is written: %s", error)
        except AskfirstError as error:  # the outbox sends the answer all the same
            log.info("an answer is not shown while it is written: %s", error)
        except Exception as error:  # noqa: BLE001 - a channel that breaks must not break the turn
            log.error("channel %s cannot show a growing answer: %s", self._address.channel, describe_error(error))

    async def _show_changes(self, handle: StreamHandle) -> None:
        words = ""
        shown = ""
        while not self._has_ended:
            await self._changed.wait()
            self._changed.clear()
            before, words = words, "".join(self._pieces)
            text = f"{words}\n\n{plain(self._progress)}".strip()
            if not text or text == shown:
                continue
            if seconds := await self._wait():
                self._changed.set()
                await self._pause(seconds)
                continue
            shown, seconds = text, handle.interval_seconds
            try:
                await self._update(handle, text)
            except RateLimited as limited:
                seconds, shown = max(seconds, limited.retry_after_seconds), ""
                self._changed.set()
            if self._has_ended:
                return
            await self._pause(seconds if words != before else max(seconds, PROGRESS_SECONDS))

    async def _update(self, handle: StreamHandle, text: str) -> None:
        self._is_calling = True
        since = self.since
        self.since = since or self._now()
        try:
            await handle.update(text)
            self._has_shown = True
        except RateLimited:
            self.since = since
            raise
        finally:
            known, self.message_ids = self.message_ids, tuple(handle.message_ids)
            if self.message_ids != known:
                await self._record(self.message_ids)
            self._is_calling = False


async def streamed_text(
    context: EngineContext, lease: Lease, channel: CanStream, address: Address, run_id: str
) -> StreamedText:
    """Return the text of an attempt at this turn, continued in the messages of the earlier attempt."""
    known, held = context.channels[address.channel], context.held.get((lease.kind, lease.lane))

    async def wait() -> float:
        # A process that stood still may have lost the turn, and must not write over the answer of another one.
        if held is not None:
            await held.make_sure()
        return await context.pacing.take_spare(known, address)

    async def record(message_ids: Sequence[str]) -> None:
        name = keys.streamed(lease.lane)
        put = Put(context.keyring.seal(name, json.dumps([run_id, *message_ids])), _KEPT_SECONDS)
        await context.commit(Transaction(partition=lease.partition, lease=lease, puts={name: put}))

    return StreamedText(
        channel,
        address,
        message_ids=await begun_messages(context, lease.lane, run_id) if lease.tries else (),
        wait=wait,
        record=record,
        now=context.clock.guess,
    )


async def begun_messages(context: EngineContext, conversation: str, run_id: str) -> tuple[str, ...]:
    """Return the ids of the messages with the text of this turn, by the record of the last attempt."""
    key = keys.key(context.store, conversation, keys.streamed)
    sealed = context.keyring.open(key.name, (await context.store.get([key]))[key].value)
    run, *message_ids = json.loads(sealed.text) if sealed is not None else [""]
    return tuple(message_ids) if run == run_id else ()
