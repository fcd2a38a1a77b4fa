"""Checks at start: the approvers and channels named by tools must exist."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from channels import MissingSetting, Person
from channels.catalogue import names, settings_of
from channels.direct import DirectChannel
from gateway.access import AllowList
from gateway.tools import Tool
from gateway.tools.approver_places import are_enough, channel_of, place_of

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
        silent = {person: why for person in rule.listed if (why := _why_silent(tool, person, channels, allowed))}
        lines = [f"tool {tool.name}: its approver {person} can never answer: {why}" for person, why in silent.items()]
        left = {*rule.listed} - silent.keys()
        if are_enough(left, rule.need - rule.requester) or not refuse:
            for line in lines:
                log.warning("%s", line)
        else:
            refused += [
                f"{line} ({rule.need} must say yes, and only {len(left) + rule.requester} can)" for line in lines
            ]
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


def _why_silent(tool: Tool, approver: str, channels: Collection[str], allowed: AllowList) -> str | None:
    """Return the reason why this approver could never answer, with the remedy. None: the approver can answer."""
    channel = channel_of(approver)
    if not tool.serves(channel):
        return f"its channels= have no {channel}"
    if channel == DirectChannel.name:
        return None
    if channel not in names():
        return f"there is no channel {channel}, only {', '.join(names())}"
    if channel not in channels:
        wanted = [setting.name for setting in settings_of(channel) if setting.needed_for]
        return f"{channel} is not on: set {' and '.join(wanted)}" if wanted else f"{channel} is not on"
    if place_of(approver) is None and not allowed(Person.parse(approver)):
        return f"ASKFIRST_ALLOW does not let them in: add {approver}"
    return None
