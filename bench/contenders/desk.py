"""An ask and a yes by the rules alone: no channel, no turn, no model. Five commits, as in a chat.

No other file of the bench uses modules below the public surface of `gateway.pending`.
"""

from __future__ import annotations

from channels import Address, Person
from gateway.pending import deciding, prompting, settling
from gateway.pending.actions import ConversationActions
from gateway.pending.index import Showing
from gateway.pending.loading import Counters, load_actions
from gateway.pending.propose import ProposalRefused, propose_action
from gateway.pending.seal import Keyring
from gateway.store.base import Store
from gateway.store.transaction import Transaction
from gateway.tools import Preview, Tool
from gateway.tools.pending_action import PendingAction

__all__ = ["Rules"]


class Rules:
    """The rules over an open store, for a single tool."""

    def __init__(self, store: Store, tool: Tool) -> None:
        self._store, self._tool = store, tool
        self._counters = Counters()
        self._keyring = Keyring([b"bench-secret-" + b"0" * 32])

    async def ask_and_yes(self, number: int) -> PendingAction:
        """Ask in a new conversation, show, confirm by the button, launch and finish. Returns the settled action."""
        conversation, action_id = f"bench/telegram:1:{number}", ""
        person = Person(channel="telegram", account="1", user_id=str(number), name="Ana")
        actions = await self._actions(conversation)
        asked = self._propose(actions, person, number)
        action_id = actions.ask(asked).pending_action_id
        prompting.show_prompt(actions, [asked])
        token = actions.says[0].reply.buttons[0].token
        await self._commit(actions)
        actions = await self._actions(conversation)
        shows = frozenset({action_id})
        prompting.note_arrived(
            actions, Showing(at=actions.now, queued=actions.now, shows=shows, alone=True, message_id="7")
        )
        await self._commit(actions)
        actions = await self._actions(conversation)
        deciding.press(actions, action_id, token, person, actions.now)
        await self._commit(actions)
        actions = await self._actions(conversation, action_id)
        settling.launch(actions, action_id, 1, actions.now)
        await self._commit(actions)
        actions = await self._actions(conversation, action_id)
        settling.finish(actions, action_id, 1, "done", "Invoice is deleted.", actions.now)
        await self._commit(actions)
        action = actions.get(action_id)
        if action is None or action.state != "done":
            raise RuntimeError(f"the action is not done: {action}")
        return action

    def _propose(self, actions: ConversationActions, person: Person, number: int) -> PendingAction:
        proposed = propose_action(
            actions,
            self._tool,
            {"invoice_id": f"INV-{number}"},
            Preview(text=f"Delete invoice INV-{number} for good?"),
            person=person,
            address=Address(channel="telegram", account="1", place=str(number)),
            language="en",
            turn_started=actions.now,
            answer_window_seconds=60.0,
        )
        if isinstance(proposed, ProposalRefused):
            raise RuntimeError(proposed.why)
        return proposed

    async def _actions(self, conversation: str, *also: str) -> ConversationActions:
        return await load_actions(
            self._store,
            conversation,
            keyring=self._keyring,
            counters=self._counters,
            drift=lambda _: None,
            also=also,
        )

    async def _commit(self, actions: ConversationActions) -> None:
        transaction = Transaction(partition=actions.partition)
        await actions.write(transaction)
        await self._store.commit(transaction)
