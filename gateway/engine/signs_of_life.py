"""Signs of a bot at work: a typing notice during the work, and a single sentence during long work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from channels import Address, CanType, CanTypeUnder, Reply, SendError
from gateway.engine.concurrency import DelayedTask
from gateway.engine.context import EngineContext
from gateway.engine.parts import scheduled_reply
from gateway.store.errors import StoreError
from gateway.wording import say

_TYPING_AFTER_SECONDS, _TYPING_SECONDS = 0.2, 4.0
"""The delay before the first typing notice, and the interval between notices."""
STILL_WORKING_SECONDS = 20.0
"""The delay before the message about a turn still running."""


class SignsOfLife:
    """The signs of life of the turns and effects of one process."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._can_type = {name: channel for name, channel in context.channels.items() if isinstance(channel, CanType)}

    @contextlib.asynccontextmanager
    async def typing(self, address: Address | None, under: str | None = None) -> AsyncIterator[None]:
        """Show the bot as typing during the body, where the platform can. `under`: the message being worked on."""
        channel = self._can_type.get(address.channel) if address is not None else None
        if channel is None or address is None:
            yield
            return
        has_begun = False

        async def keep_typing() -> None:
            nonlocal has_begun
            while True:
                has_begun = True
                with contextlib.suppress(SendError):
                    if under is not None and isinstance(channel, CanTypeUnder):
                        await channel.typing_under(address, under)
                    else:
                        await channel.typing(address)
                await asyncio.sleep(_TYPING_SECONDS)

        task = DelayedTask(_TYPING_AFTER_SECONDS, keep_typing, "typing")
        try:
            yield
        finally:
            await task.ended()
            if has_begun and under is not None and isinstance(channel, CanTypeUnder):
                self._context.tasks.start(self._end_typing(channel, address, under), "end of typing")

    async def _end_typing(self, channel: CanTypeUnder, address: Address, under: str) -> None:
        with contextlib.suppress(SendError):
            await channel.typing_under(address, under, ends=True)

    @contextlib.asynccontextmanager
    async def still_working(
        self,
        conversation: str,
        address: Address,
        language: str,
        run_id: str,
        *,
        is_shown: Callable[[], bool],
        decide: Callable[[str], Awaitable[object]],
    ) -> AsyncIterator[None]:
        """Send the person a single message about the running turn, if the body takes long and no text `is_shown`.

        Another process taking over the turn does not repeat the message. `decide` works the conversation's events.
        """

        async def tell() -> None:
            if is_shown():
                return
            reply, context = Reply(text=say("still_working", language)), self._context
            told = scheduled_reply(context.keyring, conversation, address, reply, event_id=f"still_working/{run_id}")
            with contextlib.suppress(StoreError):  # the answer follows
                await context.store.accept([told])
                await decide(conversation)

        task = DelayedTask(STILL_WORKING_SECONDS, tell, "still working")
        try:
            yield
        finally:
            await task.ended()
