"""Checks at start: the approvers and channels named by tools must exist."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from channels import MissingSetting, Person
from channels.catalogue import names, settings_of
from channels.direct import DirectChannel
from gateway.access import AllowList
from gateway.tools import Tool

log = logging.getLogger("askfirst.access")


def check_approvers(
    tools: Iterable[Tool], channels: Collection[str], allowed: AllowList, *, refuse: bool = True
) -> None:
    """Check that the channel of every approver is on, and that the allow-list admits the approver.

    Logs a warning for each approver that can never answer. Raises MissingSetting when too few approvers of a tool are
    left to confirm an action, unless `refuse` is False. People named by a function are not checked: they are unknown.
    """
    refused: list[str] = []
    for tool in tools:
        rule = tool.approvers
        if rule is None or rule.listed is None:
            continue
        silent = {
            person: why
            for person in rule.listed
            if (why := _kept_off(tool, Person.parse(person)) or _silent(Person.parse(person), channels, allowed))
        }
        lines = [f"tool {tool.name}: its approver {person} can never answer: {why}" for person, why in silent.items()]
        left = len(rule.listed) - len(silent) + rule.requester
        if left >= rule.need or not refuse:
            for line in lines:
                log.warning("%s", line)
        else:
            refused += [f"{line} ({rule.need} must say yes, and only {left} can)" for line in lines]
    if refused:
        raise MissingSetting("Approvers", "\n- ".join(["some tools could never be confirmed", *refused]))


def check_channels(tools: Iterable[Tool]) -> None:
    """Check the channels named by tools. Raises MissingSetting for an unknown channel."""
    known = {*names(), DirectChannel.name}
    wrong = [
        f"tool {tool.name}: {', '.join(other)}" for tool in tools if (other := sorted((tool.channels or known) - known))
    ]
    if wrong:
        there_are = f"there are no such channels, only {', '.join(sorted(known))}"
        raise MissingSetting("channels= of a tool", "\n- ".join([there_are, *wrong]))


def _kept_off(tool: Tool, person: Person) -> str | None:
    return None if tool.serves(person.channel) else f"its channels= have no {person.channel}"


def _silent(person: Person, channels: Collection[str], allowed: AllowList) -> str | None:
    """Return the reason why this person could never answer, with the remedy. None: the person can answer."""
    if person.channel == DirectChannel.name:
        return None
    if person.channel not in names():
        return f"there is no channel {person.channel}, only {', '.join(names())}"
    if person.channel not in channels:
        wanted = [setting.name for setting in settings_of(person.channel) if setting.needed_for]
        return f"{person.channel} is not on: set {' and '.join(wanted)}" if wanted else f"{person.channel} is not on"
    if not allowed(person):
        return f"ASKFIRST_ALLOW does not let them in: add {person}"
    return None
