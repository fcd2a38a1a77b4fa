"""What happens when this release is started on a fixture: played once for a store, looked at by many tests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from channels import Json
from gateway.tools.pending_action import PendingAction
from tests.fakes.telegram import Chat, Press, User
from tests.upgrade.books import APPROVERS, Books
from tests.upgrade.loading import Asked, Manifest
from tests.upgrade.world import Phones, World, open_world

__all__ = ["Seen", "Story", "play", "refused_now"]

_AT_ONCE = 32
_SHORT_TTL_SECONDS = 1000.0
"""After so long the questions of 15 minutes have expired."""
_ONE_CLICK = ("SOLO", "TRIO", "PAIR", "AGAIN", "TEAM", "NOTIFY", "UNSENT", "DOWN", "TWICE", "OTHER")
"""Open questions on Telegram whose requester presses a button, or answers in words."""
_PRESSED_AGAIN = ("SOLO", "DONE", "REFUSED", "FAILED", "STOPPED", "LOST", "YES")
_Doing: TypeAlias = tuple[str, Coroutine[Any, Any, None]]
"""The invoice that somebody does something about, and what."""


def refused_now(asked: Asked) -> bool:
    """Whether the answer in the story is no."""
    return asked.plot in ("SOLO", "TEAM", "DESK") and asked.number % 4 == 3


@dataclass(frozen=True, slots=True)
class Seen:
    """How everything stands at one moment."""

    actions: Mapping[str, PendingAction]
    """By invoice."""
    effects: tuple[tuple[str, Mapping[str, Json]], ...]
    texts: Mapping[int, tuple[str, ...]]
    """Chat -> what this release has written there, as it looks now."""
    buttons: Mapping[int, tuple[tuple[str, ...], ...]]
    """Chat -> the tokens under each message that is there, those of before included."""
    asked_twice: tuple[str, ...]
    """Invoices with more than one action."""

    def wrote(self, chat: int, *words: str) -> bool:
        """Whether one message in this chat has all of these words."""
        return any(all(word in text for word in words) for text in self.texts.get(chat, ()))


@dataclass(slots=True, kw_only=True)
class Story:
    """One store's."""

    manifest: Manifest
    started: Seen
    """Nothing was done yet but to start."""
    strangers: Seen
    """People have pressed what is not theirs."""
    answered: Seen
    """Everything open was answered but what is to expire."""
    again: Seen
    """Buttons were pressed that have been pressed before."""
    later: Seen
    """The questions of 15 minutes are over."""
    letters: list[dict[str, Json]]
    at_the_counter: str
    """What `ask_channel` gave in a conversation whose turn had died."""
    presses: dict[str, Press]
    """Of `again`, by invoice."""
    troubles: list[str]
    """What people could not do."""


async def play(manifest: Manifest, directory: Path, *, store: Any = None, secret: str = "") -> Story:
    """Start on a loaded store, answer, and let time pass."""
    books = Books()
    async with Phones() as phones:
        users = _restore(phones, manifest)
        now = manifest.written_at + timedelta(seconds=5)
        async with open_world(directory, books, phones, store=store, secret=secret, now=now) as world:
            player = _Player(world, manifest, users)
            return await player.play()


def _restore(phones: Phones, manifest: Manifest) -> dict[int, User]:
    users = {number: phones.join(User(number, name, language)) for number, name, language in manifest.people}
    for number, title in manifest.groups:
        phones.gather(Chat(number, "supergroup", title))
    for chat, message_id, buttons in manifest.messages:
        phones.remember(chat, message_id, buttons)
    phones.go_on_from(manifest.numbers)
    return users


class _Player:
    def __init__(self, world: World, manifest: Manifest, users: Mapping[int, User]) -> None:
        self.world, self.manifest, self.users = world, manifest, users
        self.remembered = len(world.phones.sent)
        self.troubles: list[str] = []
        self.presses: dict[str, Press] = {}

    async def play(self) -> Story:
        world = self.world
        await world.drained()
        started, letters = await self._seen(), await world.letters()
        await self._all(self._strangers())
        strangers = await self._seen()
        await self._all(self._answers(started))
        at_the_counter = await world.bot.ask_channel("clerk22", "and now?", conversation_id="desk-22")
        answered = await self._seen()
        await self._all((asked.invoice, self._press_again(asked)) for asked in self.manifest.of(*_PRESSED_AGAIN))
        again = await self._seen()
        await world.later(_SHORT_TTL_SECONDS)
        return Story(
            manifest=self.manifest,
            started=started,
            strangers=strangers,
            answered=answered,
            again=again,
            later=await self._seen(),
            letters=letters,
            at_the_counter=at_the_counter.content,
            presses=self.presses,
            troubles=self.troubles,
        )

    # ── what people do ──

    def _strangers(self) -> Iterator[_Doing]:
        """Others press, and those who asked where others decide."""
        for asked in self.manifest.of("REFUND", "CLOSE"):
            yield asked.invoice, self._press(asked, asked.user)
        for asked in self.manifest.of("TEAM"):
            if asked.number % 3 == 0:
                yield asked.invoice, self._press(asked, APPROVERS[0].id)

    def _answers(self, started: Seen) -> Iterator[_Doing]:
        for asked in self.manifest.of(*_ONE_CLICK):
            yield asked.invoice, self._answer(asked)
        for asked in self.manifest.of("REFUND"):
            yield asked.invoice, self._press(asked, APPROVERS[asked.number % 2].id)
        for asked in self.manifest.of("CLOSE"):
            yield asked.invoice, self._vote(asked)
        for asked in self.manifest.of("DESK", "OWN"):
            yield asked.invoice, self._decide(asked)
        for asked in self.manifest.of("WORDYES", "WORDNO"):
            if started.actions[asked.invoice].state == "pending":
                yield asked.invoice, self._press(asked, asked.user)
        for asked in self.manifest.of("ELDER"):
            if asked.state == "pending":
                yield asked.invoice, self._press(asked, asked.user)
        for invoice in ("LATER-0", "LATER-1", *self.manifest.in_checkpoints):
            yield invoice, self._press_new(invoice, started)

    async def _answer(self, asked: Asked) -> None:
        """By a press, a code or a reply."""
        user, no = self.users[asked.user], refused_now(asked)
        if asked.plot == "SOLO" and asked.number % 7 == 1:
            await self.world.says(user, user, f"{'NO' if no else 'OK'} {asked.code}")
        elif asked.plot == "SOLO" and asked.number % 7 == 2:
            message, _ = self.world.phones.bearing(asked.tokens[0][0])
            await self.world.says(user, user, "no" if no else "yes", reply_to=message)
        else:
            await self._press(asked, asked.user)

    async def _press(self, asked: Asked, by: int) -> None:
        confirm, cancel = asked.tokens[0]
        no = refused_now(asked) or asked.plot == "WORDNO"
        await self.world.presses(cancel if no else confirm, self.users[by])

    async def _press_again(self, asked: Asked) -> None:
        if asked.tokens and asked.chat and asked.number < 4:
            self.presses[asked.invoice] = await self.world.presses(asked.tokens[0][0], self.users[asked.user])

    async def _vote(self, asked: Asked) -> None:
        for user in APPROVERS:
            await self._press(asked, user.id)

    async def _decide(self, asked: Asked) -> None:
        bot, (confirm, cancel), no = self.world.bot, asked.tokens[0], refused_now(asked)
        if asked.plot == "OWN" and asked.number == 0 and asked.app is not None:
            user, conversation = asked.app
            await bot.ask_channel(user, f"OK {asked.code}", conversation_id=conversation)
            return
        named = {"action_id": asked.id}, {"code": asked.code}, {"token": cancel if no else confirm}
        await bot.decide(asked.person, "cancel" if no else "confirm", **named[asked.number % 3])

    async def _press_new(self, invoice: str, started: Seen) -> None:
        """What was shown by this release for the first time: the first button, of several that with its code."""
        action = started.actions[invoice]
        user = self.users[int(action.requester.rpartition(":")[2])]
        message = next(m for m in reversed(self.world.phones.sent) if m.chat.id == user.id and m.buttons)
        own = [label for label in message.buttons if action.code in label] or message.buttons
        await self.world.phones.press(message, own[0], user)

    async def _all(self, doings: Iterable[_Doing]) -> None:
        """So many of them at once; what one of them cannot do is noted, and holds up no other."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def in_a_slot(invoice: str, doing: Coroutine[Any, Any, None]) -> None:
            async with slots:
                try:
                    await doing
                except Exception as error:  # noqa: BLE001 - a test says so
                    self.troubles.append(f"{invoice}: {error!r}")

        await asyncio.gather(*(in_a_slot(*doing) for doing in doings))
        await self.world.idle()

    # ── what is seen ──

    async def _seen(self) -> Seen:
        found = list((await self.world.actions()).values())
        known = {asked.id: asked.invoice for asked in self.manifest.actions.values()}
        invoices = [known.get(each.pending_action_id) or str(each.args.get("invoice_id")) for each in found]
        texts: dict[int, list[str]] = {}
        buttons: dict[int, list[tuple[str, ...]]] = {}
        for number, message in enumerate(self.world.phones.sent):
            if number >= self.remembered or message.edits:
                texts.setdefault(message.chat.id, []).append(message.text)
            shown = tuple(button["callback_data"] for row in message.keyboard for button in row)
            buttons.setdefault(message.chat.id, []).append(shown)
        return Seen(
            actions=dict(zip(invoices, found, strict=True)),
            effects=tuple(self.world.books.effects),
            texts={chat: tuple(lines) for chat, lines in texts.items()},
            buttons={chat: tuple(shown) for chat, shown in buttons.items()},
            asked_twice=tuple(invoice for invoice, count in Counter(invoices).items() if count > 1),
        )
