"""The desk of one conversation: its open actions, read once, changed by the rules, written back in one transaction.

Everything that can happen to an action goes through here: it is asked, shown, pressed, answered in words, stopped,
expired, launched and finished. A desk does no I/O between `load` and `write`; who commits repeats both on a Conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, Self, TypeAlias

from channels import Address, Capabilities, Json, Media, Person, Reply
from channels.formatting import drop_dear_accents
from gateway.pending import transitions
from gateway.pending.bare import BareWord
from gateway.pending.changes import KEPT_SECONDS, Changes
from gateway.pending.index import Entry, Index
from gateway.pending.prompt import plain, prompt, settled_note, statement, what_became
from gateway.pending.seal import Keyring, compute_digest
from gateway.pending.tokens import make_token, token_sha256
from gateway.pending.words import INTENTS, Intent, safe_words
from gateway.store.base import Key, Snapshot, Store, Transaction
from gateway.tools.action import PendingAction, Token, canonical_json, check_schema, is_known_schema
from gateway.wording import say

__all__ = ["Answer", "Desk", "Drift", "Say"]

Drift: TypeAlias = Callable[[PendingAction], bool]
"""Whether an action may no longer happen as it was shown: its tool is gone or another, or the policy denies it now."""

_DELIVERED_WITHIN = timedelta(minutes=10)
_RESHOWN_AT_MOST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """A reply to send, and the actions it is the prompt of."""

    reply: Reply
    shows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a decision came to. `text` goes back to the presser alone, at once; in a chat of words it is said there,
    unless the chat has been told already."""

    text: str
    told: bool = False


class Desk:
    """The actions of one conversation, in one language."""

    def __init__(
        self,
        *,
        conversation: str,
        partition: str,
        index: Index,
        index_version: int,
        actions: Mapping[str, tuple[PendingAction, int]],
        keyring: Keyring,
        now: datetime,
        language: str,
        drift: Drift,
        capabilities: Capabilities | None = None,
    ) -> None:
        self.conversation, self.partition, self.language, self.now = conversation, partition, language, now
        self._buttons = capabilities is None or capabilities.buttons > 0
        cheap = capabilities is not None and not capabilities.accents
        self._letters: Callable[[str], str] = drop_dear_accents if cheap else str
        self.index, self._drift = index, drift
        self._actions: dict[str, PendingAction] = {}
        self._changes = Changes(
            conversation=conversation,
            keyring=keyring,
            versions={action_id: version for action_id, (_, version) in actions.items()},
            index_read=index,
            index_version=index_version,
        )
        self.says: list[Say] = []
        self.refused: bool = False
        """Somebody tried who may not: what is written is a line of the audit and nothing else."""
        for action_id, (action, _) in actions.items():
            if not keyring.holds(action):
                self._refuse_forged(action)
            elif action.conversation == conversation:
                self._actions[action_id] = action

    @classmethod
    async def load(
        cls,
        store: Store,
        conversation: str,
        *,
        keyring: Keyring,
        language: str,
        drift: Drift,
        also: Iterable[str] = (),
        capabilities: Capabilities | None = None,
        seen: Snapshot | None = None,
    ) -> Self:
        """Read the conversation's index, its open and lately settled actions, and `also` these.

        `capabilities` are those of the channel it is on, for prompts; None: it shows buttons. `seen` has the index when
        it was read already.

        Raises NewerForm when one of them is of a newer schema: whoever does not see all that is open decides nothing. A
        record that cannot be read at all has been changed by somebody, and ends like every forged one.
        """
        partition = store.partition(conversation)
        index_key = Key(partition, f"open/{conversation}")
        snapshot = seen or await store.get([index_key])
        record = snapshot[index_key]
        index = Index.from_json(record.value)
        entries = {entry.action_id: entry for entry in index.entries}
        keys = {name: Key(partition, f"action/{name}") for name in sorted({*entries, *also})}
        snapshot = await store.get(list(keys.values())) if keys else snapshot
        actions: dict[str, tuple[PendingAction, int]] = {}
        for action_id, key in keys.items():
            found = snapshot[key]
            check_schema(found.value)
            if not is_known_schema(found.value):
                continue
            try:
                actions[action_id] = (PendingAction.from_json(found.value), found.version)
            except ValueError:
                if action_id in entries:
                    actions[action_id] = (_unreadable(entries[action_id], conversation), found.version)
        return cls(
            conversation=conversation,
            partition=partition,
            index=index,
            index_version=record.version,
            actions=actions,
            keyring=keyring,
            now=snapshot.now,
            language=language,
            drift=drift,
            capabilities=capabilities,
        )

    # ── what is here ──

    def action(self, action_id: str) -> PendingAction | None:
        return self._actions.get(action_id)

    @property
    def open(self) -> list[PendingAction]:
        """The open actions, in the order they were asked."""
        found = [self._actions.get(entry.action_id) for entry in self.index.open]
        return [action for action in found if action is not None and action.open]

    def open_for(self, person: str) -> list[PendingAction]:
        """The open actions that this person may decide."""
        return [action for action in self.open if transitions.may_refuse(action, person)]

    def refused_since(self, since: datetime, kind: str, args: Mapping[str, Json], requester: str) -> bool:
        """Whether exactly this was refused to this person since then."""
        return any(
            action.reason == "refused"
            and action.finished_at is not None
            and action.finished_at >= since
            and (action.kind, action.requester) == (kind, requester)
            and canonical_json(dict(action.args)) == canonical_json(dict(args))
            for action in self._actions.values()
        )

    # ── asking and showing ──

    def ask(self, action: PendingAction) -> PendingAction:
        """Write down a new action: from here on it is open."""
        self._put(action, "asked", action.requester, self.now)
        self.index = self.index.asked(action)
        self._changes.due("undelivered", action, self.now + _DELIVERED_WITHIN)
        return self._actions[action.pending_action_id]

    def show_prompt(self, actions: Sequence[PendingAction], *, intro: str | None = None) -> None:
        """Say the prompt of these open actions, with new tokens; those of earlier showings stay good."""
        if not actions:
            return
        shows = tuple(action.pending_action_id for action in actions)
        self.says.append(Say(reply=self._question(actions, intro=intro, now=self.now), shows=shows))

    def _question(self, actions: Sequence[PendingAction], *, intro: str | None, now: datetime) -> Reply:
        actions = _in_order(actions)
        minted = [self._mint(self._actions[action.pending_action_id]) for action in actions if self._buttons]
        return prompt(actions, minted, intro=intro, now=now, letters=self._letters)

    def _mint(self, action: PendingAction) -> tuple[str, str]:
        """The tokens of a confirm and a cancel button; only their hashes are kept."""
        pair = (make_token(self.partition), make_token(self.partition))
        tokens = tuple(
            Token(sha256=token_sha256(token), intent=intent) for token, intent in zip(pair, INTENTS, strict=True)
        )
        self._change(replace(action, tokens=(*action.tokens, *tokens)))
        for token in tokens:
            self._changes.tokens[token.sha256] = (action.pending_action_id, action.ttl_seconds + KEPT_SECONDS)
        return pair

    def show_again(self, person: str) -> None:
        """Under a reply to something else: the prompts of this person that still wait, twice at most."""
        actions = [action for action in self.open_for(person) if action.reshown < _RESHOWN_AT_MOST]
        if actions:
            for action in actions:
                self._change(replace(action, reshown=action.reshown + 1))
            self.show_prompt(
                [self._actions[action.pending_action_id] for action in actions],
                intro=say("still_waiting", self.language, self._letters),
            )

    def shown(self, action_ids: Sequence[str], message_id: str | None, at: datetime) -> None:
        """A prompt has arrived: the windows start. What was settled meanwhile is edited at once."""
        settled = False
        for action_id in action_ids:
            action = self._actions.get(action_id)
            if action is None:
                continue
            first = action.open and action.shown_at is None
            action = transitions.show(action, at, message_id)
            self._put(action, "shown", None, at) if first else self._change(action)
            self.index = self.index.changed(action, at)
            if first:
                self._changes.no_longer_due(action, "undelivered")
                self._changes.due("expiry", action, action.expires_at or at)
            settled = settled or action.settled
        if settled and message_id is not None:
            self._edit(message_id, at)

    def moved(self, address: Address, at: datetime) -> None:
        """The conversation has another address now: what is not settled goes on there, what is open is asked anew."""
        for action in list(self._actions.values()):
            if not action.settled:
                self._put(replace(action, address=address, prompts=()), "moved", None, at)
        self.index = self.index.moved()
        for action in self.open:
            self.show_prompt([action])

    # ── deciding ──

    def press(self, action_id: str, token: str, person: Person | None, at: datetime) -> Answer:
        """A button was pressed. Whatever comes of it, the presser hears the truth, and nobody else does."""
        action = self._actions.get(action_id)
        shown = action.tokens if action is not None else ()
        intent = next((known.intent for known in shown if known.sha256 == token_sha256(token)), None)
        if action is None or intent is None:
            return Answer(say("unknown_button", self.language))
        if not self._eligible(action, intent, person, at):
            return Answer(say("not_yours", self.language))
        self.note_press(person, at)
        return self._decide(action, intent, person, at)

    def code(self, code: str, intent: Intent, person: Person | None, at: datetime) -> bool:
        """A whole message of word and code. False when it names no action of this conversation."""
        entry = self.index.by_code(code)
        return entry is not None and self._answered([entry], intent, person, at)

    def reply(
        self, message_id: str, intent: Intent, person: Person | None, at: datetime, *, in_thread: bool = False
    ) -> bool:
        """A yes or no in reply to a prompt of ours. False when that message asked nothing.

        `in_thread`: not to the prompt itself, but somewhere beneath it, where something else may have been asked since:
        a yes is then no answer yet, but a word like any other.
        """
        entries = self.index.by_prompt(message_id)
        if len(entries) > 1:
            return self._which([entry for entry in entries if self._may_refuse(entry, person)])
        if in_thread and intent == "confirm" and any(entry in self.index.open for entry in entries):
            return False
        return bool(entries) and self._answered(entries, intent, person, at)

    def word(self, intent: Intent, person: Person, word: BareWord) -> bool:
        """A bare yes or no in a one-to-one chat. False when it is an ordinary word here."""
        mine = self.open_for(str(person))
        if not mine:
            return self._late_word(intent, person, word)
        if len(mine) > 1:
            return self._which([entry for entry in self.index.open if self._may_refuse(entry, person)])
        action = mine[0]
        pressed = self.index.pressed.get(str(person))
        if word.decides(intent, action, person, pressed=pressed) or transitions.expired(action, word.at):
            self._heard(action, self._decide(action, intent, person, word.at))
        else:
            intro = say("say_code", self.language, self._letters, code=action.code)
            self.show_prompt([action], intro=intro)
        return True

    def decide(self, action_id: str, intent: Intent, person: Person, at: datetime) -> Answer:
        """A decision that names its action outright and comes from a trusted caller, not from a chat.

        Raises PermissionError for the wrong person and KeyError for an action that is not here.
        """
        action = self._actions[action_id]
        if not self._eligible(action, intent, person, at):
            raise PermissionError(str(person))
        return self._decide(action, intent, person, at)

    def withdraw(
        self, person: str | None, at: datetime, *, action_id: str | None = None, by: str | None = None
    ) -> list[PendingAction]:
        """Close what has not been launched: all of a requester (a stop, an opt-out), or one action by hand.

        `by` names whose hand that was; only then the person is told here: a stop has an answer of its own.
        """
        withdrawn = [
            action
            for action in self._actions.values()
            if action.state in ("pending", "approved")
            and (action.requester == person if action_id is None else action.pending_action_id == action_id)
        ]
        for action in withdrawn:
            self._close(action, "withdrawn", at, by=by, tell="cancelled" if by else None)
        return withdrawn

    def expire(self, action_id: str, at: datetime) -> None:
        """Its deadline has come."""
        action = self._actions.get(action_id)
        if action is None or not action.open or action.expires_at is None or at < action.expires_at:
            return
        if not self._drifted(action, at):
            self._close(action, "expired", at, tell="expired")

    def undelivered(self, action_id: str, at: datetime) -> None:
        """Its prompt never arrived."""
        action = self._actions.get(action_id)
        if action is not None and action.open and action.shown_at is None and not self._drifted(action, at):
            self._close(action, "undelivered", at)

    def not_arrived(self, message_id: str, action_ids: Iterable[str], at: datetime) -> bool:
        """A message that the platform took, in which these were asked, did not arrive after all.

        What was shown nowhere else was never asked, unless it is decided already. False when nothing comes of it.
        """
        found = False
        for action_id in dict.fromkeys((*action_ids, *(entry.action_id for entry in self.index.by_prompt(message_id)))):
            action = self._actions.get(action_id)
            if action is None or not action.open or self._drifted(action, at):
                continue
            found = True
            others = tuple(prompt_id for prompt_id in action.prompts if prompt_id != message_id)
            # A message in front of the prompt itself belongs to one showing; of several nobody knows to which.
            whole = others if message_id in action.prompts else others[1:]
            if whole:
                self._change(replace(action, prompts=others))
            else:
                self._close(replace(action, prompts=others), "undelivered", at)
        return found

    # ── executing ──

    def launch(self, action_id: str, fence: int, at: datetime) -> PendingAction | None:
        """The effect may run now, under this fence. None: it may not, and that has been settled and told."""
        action = self._actions.get(action_id)
        if action is None or self._drifted(action, at):
            return None
        try:
            launched = transitions.launch(action, fence, at)
        except transitions.WrongState:
            return None
        self._put(launched, "launched", None, at)
        return self._actions[action_id]

    def drifted(self, action_id: str, at: datetime) -> None:
        """What it would act on is no longer as it was shown."""
        action = self._actions.get(action_id)
        if action is not None and action.state in ("pending", "approved"):
            self._close(action, "drifted", at, tell="drifted")

    def finish(
        self,
        action_id: str,
        fence: int,
        state: Literal["done", "failed", "unknown"],
        outcome: str | None,
        at: datetime,
        *,
        text: str | None = None,
        media: Sequence[Media] = (),
    ) -> bool:
        """The effect has ended, as far as anybody knows; `text` is said instead of our own sentence.

        False when this fence has nothing more to say about it.
        """
        action = self._actions.get(action_id)
        if action is None:
            return False
        try:
            ended = transitions.finish(action, fence, state, outcome, at)
        except transitions.WrongState:
            return False
        own = say(state, action.language, preview=statement(action.preview))
        self._settle(ended, "finished", None, at, text=text or own, media=media)
        return True

    def settle(self, action_id: str, state: Literal["done", "failed"], by: str, at: datetime) -> bool:
        """An operator or a probe found out what became of an unknown one. False when it is not unknown."""
        action = self._actions.get(action_id)
        if action is None or action.state != "unknown":
            return False
        own = say(state, action.language, preview=statement(action.preview))
        self._settle(transitions.settle(action, state, f"settled by {by}", at), "settled", by, at, text=own)
        return True

    # ── writing ──

    def write(self, transaction: Transaction) -> None:
        """Add every change to a transaction of this partition. The says are the caller's to queue."""
        self._changes.write(transaction, self.index)

    # ── rules in common ──

    def _eligible(self, action: PendingAction, intent: Intent, person: Person | None, at: datetime) -> bool:
        may = transitions.may_refuse if intent == "cancel" else transitions.may_approve
        if person is not None and not person.is_bot and may(action, str(person)):
            return True
        self.refused = True
        self._put(action, "not_allowed", str(person) if person is not None else None, at)
        return False

    def _decide(self, action: PendingAction, intent: Intent, person: Person | None, at: datetime) -> Answer:
        """By somebody eligible, of exactly this action."""
        if action.settled or (action.state != "pending" and intent == "confirm") or action.state == "running":
            return Answer(what_became(action, at))
        if self._drifted(action, at) or (action.open and transitions.expired(action, at)):
            self.expire(action.pending_action_id, at)
            return Answer(what_became(self._actions[action.pending_action_id], at), told=True)
        who, name = (str(person), person.name) if person is not None else ("", None)
        if intent == "cancel":
            self._close(action, "refused", at, by=who, name=name, tell="cancelled")
            return Answer(say("pressed_no", self.language), told=True)
        decided = transitions.approve(action, who, name, at)
        self._put(decided, "decided" if decided.state == "approved" else "voted", who, at)
        self.index = self.index.changed(decided, at)
        if decided.state != "approved":
            return Answer(say("pressed_vote", self.language, count=len(decided.votes), need=decided.need))
        self._changes.no_longer_due(action, "expiry", "undelivered")
        self._changes.approved.append(action.pending_action_id)
        return Answer(say("pressed_ok", self.language), told=True)

    def _answered(self, entries: Sequence[Entry], intent: Intent, person: Person | None, at: datetime) -> bool:
        action = self._actions.get(entries[0].action_id)
        if action is None:
            return False
        if self._eligible(action, intent, person, at):
            self.note_press(person, at)
            self._heard(action, self._decide(action, intent, person, at))
        return True

    def _heard(self, action: PendingAction, answer: Answer) -> None:
        """Words are answered in the chat; an approval speaks for itself once it has run."""
        if not answer.told:
            self.says.append(Say(reply=Reply(text=f"{plain(answer.text)}\n\n{statement(action.preview)}")))

    def _late_word(self, intent: Intent, person: Person, word: BareWord) -> bool:
        theirs = [entry for entry in reversed(self.index.lately) if self._may_refuse(entry, person)]
        entry = word.meant_of([entry for entry in theirs if entry.action_id in self._actions])
        if entry is None:
            return False
        action = self._actions[entry.action_id]
        self._heard(action, self._decide(action, intent, person, word.at))
        return True

    def _which(self, entries: Sequence[Entry]) -> bool:
        """Which of those that this person may answer do they mean?"""
        found = [action for entry in entries if (action := self._actions.get(entry.action_id)) is not None]
        waiting = [action for action in found if action.open]
        if waiting:
            yes_word, _ = map(self._letters, safe_words(self.language))
            lines = [f"{number}. {plain(action.preview)} ({action.code})" for number, action in enumerate(waiting, 1)]
            code = waiting[0].code
            question = say("several_open", self.language, self._letters, yes_word=yes_word, code=code)
            self.says.append(Say(reply=Reply(text="\n".join([question, "", *lines]))))
        elif found:
            self.says.append(Say(reply=Reply(text=what_became(found[0], self.now))))
        return True

    def _may_refuse(self, entry: Entry, person: Person | None) -> bool:
        return person is not None and (str(person) == entry.requester or str(person) in entry.approvers)

    def _drifted(self, action: PendingAction, at: datetime) -> bool:
        """Tool and policy are looked at before anything comes of an action; when they no longer hold it ends here."""
        if action.state not in ("pending", "approved") or not self._drift(action):
            return False
        self._close(action, "drifted", at, tell="drifted")
        return True

    def _refuse_forged(self, action: PendingAction) -> None:
        """Somebody without the key has changed the record: whatever it says, it will not happen.

        Of one that was running nobody can say any more whether it has.
        """
        if action.state in ("pending", "approved", "running"):
            launched = action.state == "running"
            ended = replace(
                action,
                state="unknown" if launched else "closed",
                reason=None if launched else "drifted",
                finished_at=self.now,
                conversation=self.conversation,
                args={},
                precondition=None,
                prompts=(),
            )
            ended = replace(ended, digest=compute_digest(ended))
            told = say("unknown" if launched else "drifted", self.language, preview=statement(ended.preview))
            self._settle(ended, "forged", None, self.now, text=told)

    def _close(
        self,
        action: PendingAction,
        reason: Literal["refused", "withdrawn", "expired", "undelivered", "drifted"],
        at: datetime,
        *,
        by: str | None = None,
        name: str | None = None,
        tell: str | None = None,
    ) -> None:
        text = say(tell, self.language, preview=statement(action.preview)) if tell else None
        self._settle(transitions.close(action, reason, at, by=by, name=name), reason, by, at, text=text)

    def _settle(
        self,
        action: PendingAction,
        what: str,
        person: str | None,
        at: datetime,
        *,
        text: str | None = None,
        media: Sequence[Media] = (),
    ) -> None:
        self._put(action, what, person, at)
        self.index = self.index.changed(action, at)
        self._changes.no_longer_due(action, "expiry", "undelivered")
        self._changes.settled.append(action)
        if text:
            self.says.append(Say(reply=Reply(text=text)))
        self.says += [Say(reply=Reply(media=(item,))) for item in media]
        for message_id in action.prompts:
            self._edit(message_id, at)

    def _edit(self, message_id: str, at: datetime) -> None:
        """Have a prompt say what became of what it asked, and go on asking what is still open."""
        self.says = [said for said in self.says if said.reply.edits != message_id]
        asked = [action for action in self._actions.values() if message_id in action.prompts]
        if any(action.open for action in asked):
            reply = self._question(asked, intro=None, now=at)
        else:
            reply = Reply(text="\n\n".join(settled_note(action, at) for action in _in_order(asked)))
        self.says.append(Say(reply=replace(reply, edits=message_id)))

    def note_press(self, person: Person | None, at: datetime) -> None:
        """A person pressed a button or answered by code or reply: a bare word of theirs that follows is not clear."""
        if person is not None:
            self.index = self.index.press(str(person), at)

    def _put(self, action: PendingAction, what: str, person: str | None, at: datetime) -> None:
        """Change a record and add a line to its audit chain."""
        self._change(self._changes.audited(action, what, person, at))

    def _change(self, action: PendingAction) -> None:
        self._actions[action.pending_action_id] = self._changes.actions[action.pending_action_id] = action


def _in_order(actions: Iterable[PendingAction]) -> list[PendingAction]:
    """As they were asked: the same in every showing, so no button ever stands where another one stood."""
    return sorted(actions, key=lambda action: (action.requested_at, action.pending_action_id))


def _unreadable(entry: Entry, conversation: str) -> PendingAction:
    """What stands for a record that is none any more: enough to end it and to name it by its code."""
    return PendingAction(
        pending_action_id=entry.action_id,
        kind="",
        preview=entry.code,
        code=entry.code,
        requester=entry.requester,
        approvers=entry.approvers,
        conversation=conversation,
        requested_at=entry.at,
    )
