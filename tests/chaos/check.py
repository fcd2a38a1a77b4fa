"""The rules for the end of a run, after any kills."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from gateway.assembly import open_store
from gateway.store.base import Store
from gateway.store.types import Dead, Key
from gateway.tools.pending_action import PendingAction
from tests.chaos.record import Line
from tests.chaos.run import Run
from tests.chaos.story import HOPELESS
from tests.stored import action_of

__all__ = ["take_overs", "violations", "within"]

IN_DOUBT = "it may have been sent"
DEADLY, DEATHS = "its turn killed its worker again and again", 4


@dataclass(frozen=True)
class _Ended:
    """The content of the store at the end."""

    transcripts: list[list[dict[str, Any]]]
    dead: list[Dead]
    actions: list[PendingAction]
    ballots: list[PendingAction]


async def violations(run: Run) -> list[str]:
    """Return the violated rules. Ends the workers first."""
    for worker in run.workers:
        await worker.kill()
    store = open_store(run.job.settings["store"])
    await store.open()
    try:
        ended = await _ended(store, run)
    finally:
        await store.close()
    checks = (
        *(_each_message_once_and_in_order, _dead_letters, _effects, _replies, _sent_again),
        *(_actions, _ballots, _prompts),
    )
    return [violation for check in checks for violation in check(run, ended)]


async def _ended(store: Store, run: Run) -> _Ended:
    transcripts = []
    for person in run.people:
        conversation = f"agent/telegram:{run.telegram.bot.id}:{person.id}"
        entries = await store.read(Key(store.partition(conversation), f"transcript/{conversation}"))
        transcripts.append([cast("dict[str, Any]", entry.value) for entry in entries])
    found = [action_of(record.value) for _, record in await store.scan("action/")]
    actions = [action for action in found if action.ballot_of is None]
    ballots = [action for action in found if action.ballot_of is not None]
    return _Ended(transcripts, await store.dead_letters(), actions, ballots)


def _each_message_once_and_in_order(run: Run, ended: _Ended) -> Iterator[str]:
    """Each acknowledged message is in one committed turn, unless given up."""
    given_up = set(_given_up(ended))
    for told, transcript in zip(run.story.conversations, ended.transcripts, strict=True):
        heard = [line["content"] for line in transcript if line["role"] == "user"]
        wanted = [text for text in told if text not in given_up]
        if heard != wanted:
            yield f"heard {heard}, not {wanted}"


def _dead_letters(run: Run, ended: _Ended) -> Iterator[str]:
    """Each hopeless message is given up once, with a note to the person. Other messages are given up only in a
    conversation with too many deaths of workers; a reply only if its sending is in doubt."""
    said = "\n".join(message.text for message in run.telegram.sent)
    hopeless, given_up = run.story.of(*HOPELESS), Counter(_given_up(ended))
    yield from (f"never given up: {text}" for text in hopeless - set(given_up))
    yield from (f"given up {times} times: {text}" for text, times in given_up.items() if times > 1)
    in_doubt = _in_doubt(ended)
    deaths = {line["conversation"] for line in run.record.lines("leased") if line["tries"] >= DEATHS}
    for letter in ended.dead:
        if letter.incoming is None:
            if letter.reason != IN_DOUBT:
                yield f"a reply was given up: {letter.reason}"
            continue
        text, incident = letter.incoming.body["text"], letter.dead_id.partition("-")[0]
        if incident not in said and not any(incident in body for body in in_doubt):
            yield f"nobody was told of {incident}: {text}; given up: {in_doubt}"
        if text not in hopeless and not (letter.reason == DEADLY and letter.conversation in deaths):
            yield f"given up: {text}: {letter.reason}"


def _given_up(ended: _Ended) -> list[str]:
    return [str(letter.incoming.body["text"]) for letter in ended.dead if letter.incoming is not None]


def _in_doubt(ended: _Ended) -> list[str]:
    """Return the parts kept because their sending is in doubt."""
    return [str(letter.part.body) for letter in ended.dead if letter.part is not None]


def _effects(run: Run, ended: _Ended) -> Iterator[str]:
    """No effect happened twice, and each effect reported as done happened."""
    begun = Counter(line["effect"] for line in run.record.lines("before"))
    done = Counter(line["effect"] for line in run.record.lines("after"))
    yield from (f"{effect} has happened {times} times" for effect, times in begun.items() if times > 1)
    for transcript in ended.transcripts:
        results = [line["content"] for line in transcript if line["role"] == "tool"]
        told = [text.removesuffix(" is done") for text in results if text.endswith(" is done")]
        yield from (f"{effect} is told, and has not happened" for effect in told if done[effect] != 1)


def _replies(run: Run, ended: _Ended) -> Iterator[str]:
    """Each answer was sent, or is kept because its sending is in doubt."""
    in_doubt = _in_doubt(ended)
    for person, transcript in zip(run.people, ended.transcripts, strict=True):
        said = {message.text for message in run.telegram.sent if message.chat.id == person.id}
        answers = [line["content"] for line in transcript if line["role"] == "assistant" and not line.get("tool_calls")]
        for answer in answers:
            if answer not in said and not any(answer in body for body in in_doubt):
                yield f"never sent: {answer}"


def _sent_again(run: Run, ended: _Ended) -> Iterator[str]:
    """A part known to have arrived is not sent again, except the note about a possible repeat."""
    arrived: set[str] = set()
    for line in run.record.lines("sending", "delivered"):
        if line["what"] == "delivered":
            arrived.add(line["part"])
        elif line["part"] in arrived and "/note/" not in line["part"]:
            yield f"{line['part']} was sent though it had arrived"


def _actions(run: Run, ended: _Ended) -> Iterator[str]:
    """Each confirmed action has ended, and the state equals the effects."""
    begun = Counter(line["effect"] for line in run.record.lines("before"))
    done = Counter(line["effect"] for line in run.record.lines("after"))
    for action in ended.actions:
        effect = f"{action.kind} {action.args['name']}"
        if action.state == "done":
            if done[effect] != 1:
                yield f"{effect} is done and has happened {done[effect]} times"
        elif action.state != "unknown":
            yield f"{effect} was confirmed and is {action.state} ({action.reason})"
        elif begun[effect] > 1:
            yield f"{effect} is unknown and has happened {begun[effect]} times"
    asked = {f"{action.kind} {action.args['name']}" for action in ended.actions}
    if asked != (wanted := run.story.of("pay", "wire") - set(_given_up(ended))):
        yield f"asked for {asked}, not {wanted}"


def _ballots(run: Run, ended: _Ended) -> Iterator[str]:
    """Each manager gets one question and the true end once. All but the last also get the count of their yes.

    A part with several workers killed during the sending is kept for an operator, without another attempt.
    """
    by_id = {action.pending_action_id: action for action in ended.actions}
    wires = [action for action in ended.actions if action.kind == "wire"]
    if len(ended.ballots) != len(wires) * len(run.managers):
        yield f"{len(ended.ballots)} ballots of {len(wires)} actions"
    for ballot in ended.ballots:
        action = by_id[ballot.ballot_of.action_id] if ballot.ballot_of is not None else ballot
        if (ballot.state, ballot.decided_by) != (action.state, action.decided_by):
            yield f"{action.args['name']} is {action.state} and a ballot of it is {ballot.state}"
    said: dict[str, tuple[str, str]] = {
        line["part"]: (line["place"], line["text"] or "")
        for line in run.record.lines("sending")
        if line["call"] == "sendMessage" and "/note/" not in line["part"]
    }
    for action in wires:
        name, counted, all_heard = f"“{action.args['name']}”", 0, list[list[str]]()
        in_doubt = [part for part in _in_doubt(ended) if name in part]
        for manager in run.managers:
            heard = [text for place, text in said.values() if place == str(manager.id) and name in text]
            asked = sum("asks for your approval" in text for text in heard)
            counts = sum("Your yes is counted" in text for text in heard)
            counted += counts
            all_heard.append(heard)
            if (asked, len(heard) - asked - counts) != (1, 1) and not in_doubt:
                yield f"{manager.first_name} was told of {name}: {heard}"
        doubted = sum("Your yes is counted" in part for part in in_doubt)
        if not counted <= len(run.managers) - 1 <= counted + doubted:
            yield f"{counted} were told that their yes for {name} counts: {all_heard}, votes {action.votes}"


def _prompts(run: Run, ended: _Ended) -> Iterator[str]:
    """No known prompt has buttons: all questions have ended."""
    shown = {(message.chat.id, str(message.message_id)): message for message in run.telegram.sent}
    for action in (*ended.actions, *ended.ballots):
        assert action.address is not None
        for message_id in action.prompts:
            message = shown[int(action.address.place), message_id]
            if message.buttons:
                yield f"{action.args['name']} is {action.state}, and its prompt has {message.buttons}"


def take_overs(lines: Sequence[Line], lease_seconds: float) -> list[float]:
    """Return the seconds from each signal until another worker goes on with a turn of the hit worker.

    A turn is not counted if another worker died between the two leases before the record of its lease; the number of
    tries shows this. After the lapse of the lease, time without any lease is not counted: all workers were dead, and a
    new worker takes seconds to start. A worker thawed before the lapse goes on with its turns; a later signal begins a
    new time.
    """
    leased = [line["t"] for line in lines if line["what"] == "leased"]
    held: dict[str, Line] = {}
    hit: dict[str, tuple[float, int]] = {}
    took = []
    for line in lines:
        match line["what"]:
            case "leased":
                at, tries = hit.pop(line["conversation"], (None, 0))
                # A turn without a death had ended, and no worker was left to record the end.
                if at is not None and line["died"] and line["tries"] == tries + 1:
                    lapsed = at + lease_seconds
                    alone = max(0.0, leased[bisect.bisect_left(leased, min(lapsed, line["t"]))] - lapsed)
                    took.append(line["t"] - at - alone)
                held[line["conversation"]] = line
            case "ended" if line["conversation"] in held and held[line["conversation"]]["pid"] == line["pid"]:
                del held[line["conversation"]]
                hit.pop(line["conversation"], None)  # it was thawed in time
            case "signal":
                of_it = {each: lease for each, lease in held.items() if lease["pid"] == line["to"]}
                hit = {each: (line["t"], lease["tries"]) for each, lease in of_it.items()} | hit
            case "thawed":
                in_time = {each for each, (at, _) in hit.items() if line["t"] < at + lease_seconds}
                hit = {each: of for each, of in hit.items() if each not in in_time or held[each]["pid"] != line["who"]}
    return took


def within(seconds: Sequence[float], share: float) -> float:
    """Return the number of seconds that covers this share of the values."""
    return sorted(seconds)[math.ceil(share * len(seconds)) - 1]
