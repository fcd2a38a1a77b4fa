"""Raw results: the unshortened results of tools, readable for later turns for a day."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from gateway.bot.turn import Turn
from gateway.engine.turns.feature import Ending, RunningTurn, TurnFeature
from gateway.store.transaction import Put
from gateway.stored import keys

_TTL_SECONDS: Final = 24 * 3600


class KeptRawResults(TurnFeature):
    """Keeps the raw results of a turn, in place of earlier results of the same tools, for later turns."""

    async def before(self, turn: RunningTurn, asked: Turn) -> None:
        asked.earlier_results = partial(self._earlier, turn.conversation)

    async def _earlier(self, conversation: str, tool_name: str) -> Sequence[str]:
        """Return the raw results of a tool kept by an earlier turn of this conversation, newest first."""
        key = keys.key(self.context.store, conversation, keys.raw_results, tool_name)
        texts = self.context.unsealed(key, (await self.context.store.get([key]))[key], conversation)
        return [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []

    async def contribute(self, ending: Ending) -> None:
        if ending.outcome is None or ending.outcome.loop is None:
            return
        for tool_name, texts in ending.outcome.loop.raw_results.items():
            name = keys.key(self.context.store, ending.turn.conversation, keys.raw_results, tool_name).name
            ending.transaction.puts[name] = Put(self.context.sealed(name, list(texts)), _TTL_SECONDS)
