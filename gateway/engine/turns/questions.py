"""Questions: asked, changed and withdrawn by a turn, and the reminders of open questions beside the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from channels import Reply
from gateway.bot.commands import BUILT_IN
from gateway.bot.turn import Outcome
from gateway.engine.turns.batch import Batch
from gateway.engine.turns.feature import Ending, TurnFeature
from gateway.engine.waiting import hand_to_people
from gateway.pending.actions import ConversationActions, OutgoingReply
from gateway.pending.ballots import ask_ballots
from gateway.pending.deciding import withdraw
from gateway.pending.index import Showing
from gateway.pending.prompting import remind_now_and_then, show_again, show_once_more
from gateway.pending.settling import close_replaced, take_back
from gateway.pending.standing import use
from gateway.tools.pending_action import PendingAction
from gateway.wording import say


class Questions(TurnFeature):
    """Asks and reminds the person, and notes the facts of the turn needed for later bare replies."""

    async def contribute(self, ending: Ending) -> None:
        actions = ending.actions
        if actions is None and ending.outcome is not None:
            actions = await self._changed(ending, ending.outcome)
        elif actions is None and not ending.turn.batch.is_fold:
            actions = await self._noted(ending)
        if actions is None:
            return
        await self.context.files.keep_for_questions(actions)
        await actions.write(ending.transaction)
        ending.says += actions.says

    async def _changed(self, ending: Ending, outcome: Outcome) -> ConversationActions | None:
        """Return the actions as changed by a turn with this outcome; None if no action is concerned."""
        turn, context, person = ending.turn, self.context, str(ending.turn.person)
        if not self._concerns_actions(ending, outcome):
            return None
        asked = [action.pending_action_id for action in outcome.asked]
        actions = await context.actions(turn.conversation, *asked, *outcome.withdrawn)
        note_acted(actions, turn.batch)
        self._note_streamed(actions, ending)
        if outcome.changing is not None:
            actions.index = actions.index.changed_by(person, outcome.changing)
        if outcome.asked or outcome.unrelated or outcome.withdrawn:
            new = self._ask(actions, ending, outcome)
            await hand_to_people(ending.transaction, context, turn.address, new)
        elif ending.says and not _is_built_in(turn.batch):
            remind_now_and_then(actions, person, actions.open_for(person))
        return actions

    async def _noted(self, ending: Ending) -> ConversationActions | None:
        """Return the actions with notes of the person's message and of a text possibly seen; None if no bare reply may
        need a note.

        The turn has no answer. An attempt may have shown a text at any time since the begin of the turn.
        """
        lease, batch, context = ending.turn.lease, ending.turn.batch, self.context
        wrote = bool(batch.messages) and context.message_matters(lease, batch.messages[0].person)
        showed = context.may_stream(lease.lane) and context.reply_matters(lease)
        if not wrote and not showed:
            return None
        actions = await context.actions(lease.lane)
        note_acted(actions, batch)
        if showed:
            note_streamed(actions, batch.taken[0].stamp, actions.now)
        return actions

    def _concerns_actions(self, ending: Ending, outcome: Outcome) -> bool:
        """Return True if the commit must read the conversation's actions."""
        context, turn, lease = self.context, ending.turn, ending.turn.lease
        return bool(
            outcome.asked
            or outcome.unrelated
            or outcome.withdrawn
            or (ending.says and context.may_be_open(lease))
            or (turn.batch.messages and context.message_matters(lease, turn.person))
            or (turn.preview is not None and context.reply_matters(lease))
        )

    def _note_streamed(self, actions: ConversationActions, ending: Ending) -> None:
        """Note the earliest time at which the text of this turn may have been seen. After earlier attempts: since the
        first event."""
        turn = ending.turn
        if turn.preview is None or not actions.index.heeds(actions.now):
            return
        if turn.lease.tries:
            note_streamed(actions, turn.batch.taken[0].stamp, actions.now)
        elif (since := turn.preview.since) is not None:
            note_streamed(actions, since, since)

    def _ask(self, actions: ConversationActions, ending: Ending, outcome: Outcome) -> Sequence[PendingAction]:
        """Open the actions asked by the turn, and return the new actions.

        Earlier open actions are shown again, or withdrawn.
        """
        asked = {action.pending_action_id: action for action in outcome.asked}
        known = [action_id for action_id in asked if actions.get(action_id) is not None]
        mine = [replace(action, run_id=ending.turn.events.run_id) for action in asked.values()]
        fresh = [action for action in mine if action.pending_action_id not in known]
        new = [actions.ask(action) for action in fresh if not self._is_permitted(actions, ending, action)]
        person = str(ending.turn.person)
        changed = [action for action in new if close_replaced(actions, action)]
        changed += take_back(actions, outcome.withdrawn, person, new)
        intro = say("changed_it", changed[0].language, actions.letters) if changed else None
        for action in new:
            ask_ballots(actions, action, actions.now)
        if asked and self._was_stopped(ending):
            withdraw(actions, person, actions.now)
        elif asked:
            others = [action for action in actions.open_for(person) if action.pending_action_id not in asked]
            remind_now_and_then(actions, person, others)  # before the new ones: words and numbers answer the last
            still_open = [found for action_id in known if (found := actions.by_id[action_id]).open]
            show_once_more(actions, still_open, new=new, intro=intro)
        elif self.context.bot.on_unrelated == "drop":
            withdraw(actions, person, actions.now)
            actions.says.insert(0, OutgoingReply(reply=Reply(text=say("dropped", ending.language))))
        else:
            show_again(actions, person)
        return new

    def _is_permitted(self, actions: ConversationActions, ending: Ending, action: PendingAction) -> bool:
        """Decide a new action by a standing permission.

        Returns False if a person has to be asked, as always for a question asked again.
        """
        batch = ending.turn.batch
        heard = batch.at if batch.messages else None
        return batch.again is None and use(actions, action, self.context.bot.tool_for(action), heard=heard)

    def _was_stopped(self, ending: Ending) -> bool:
        """Return True if the person sent /stop after these messages. The turn answers the messages, and asks no
        question."""
        turn = ending.turn
        if turn.signals.stopped:
            return True
        read = self.context.prefetched_index(turn.lease)
        return read is not None and read.index.has_stopped(str(turn.person), turn.batch.at)


def _is_built_in(batch: Batch) -> bool:
    """Return True for a built-in command. Its answer mentions no action."""
    return bool(batch.messages) and batch.messages[0].command in BUILT_IN


def note_acted(actions: ConversationActions, batch: Batch) -> None:
    """Note when the person of this turn last wrote or acted.

    A bare yes counts only as the first message or press after the question.
    """
    if batch.messages:
        actions.note_acted(batch.messages[0].person, max([batch.at, *batch.acted_beside(batch.written)]))


def note_streamed(actions: ConversationActions, since: datetime, until: datetime) -> None:
    """Note that an unfinished text came onto the screen between these times.

    A bare reply during or after this time may be meant for the text, and decides no question above it.
    """
    actions.index = actions.index.showed(Showing(at=until, queued=since))
