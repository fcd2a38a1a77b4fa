"""The chats of approvers, for asking each approver there: private chats, and groups that approve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from channels import Address, CanOpen, OptedOut, Person, SendError, Unreachable
from channels.direct import DirectChannel, own_place
from gateway.access.suppression import check_suppression
from gateway.engine.context import EngineContext
from gateway.tools.approver_places import place_of
from gateway.tools.pending_action import Ballot

log = logging.getLogger("askfirst.approvers")

_OPEN_SECONDS = 10.0
"""Time limit for a platform to open a private chat."""


async def find_ballots(context: EngineContext, people: Iterable[str]) -> dict[str, Ballot]:
    """Return the ballot of each of these people; ``lost``, with a line in the log, for a person out of reach."""
    wanted = list(dict.fromkeys(people))
    found = await asyncio.gather(*(_find(context, person) for person in wanted))
    return dict(zip(wanted, found, strict=True))


async def _find(context: EngineContext, person: str) -> Ballot:
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            address = await _chat(context, person)
        conversation = context.conversation(address)
        await check_suppression(context.store, conversation)
    except (OptedOut, Unreachable) as refusal:
        why = refusal.code
    except SendError as error:
        why = f"the platform refused: {error.code}"
    except (LookupError, TimeoutError) as error:
        why = str(error) or "the platform did not answer"
    else:
        return Ballot(person=person, conversation=conversation, address=address)
    log.warning("approver %s cannot be reached: %s", person, why)
    return Ballot(person=person, state="lost")


async def _chat(context: EngineContext, approver: str) -> Address:
    """Return the address of the chat to ask an approver in. Raises LookupError and SendError."""
    place = place_of(approver)
    if place is None:
        return await _private_chat(context, Person.parse(approver))
    if place.channel not in context.channels:
        raise LookupError(f"{place.channel} is not on here")
    return place


async def _private_chat(context: EngineContext, person: Person) -> Address:
    """Return the address of the private chat with a person. Raises LookupError and SendError.

    A channel with `CanOpen` opens the chat. Elsewhere the place is the person's id: a number, or a session.
    """
    if person.channel == DirectChannel.name:
        return own_place(person)
    channel = context.channels.get(person.channel)
    if channel is None:
        raise LookupError(f"{person.channel} is not on here")
    if not context.allowed(person):
        raise LookupError("ASKFIRST_ALLOW does not let them in")
    plain = Address(channel=person.channel, account=person.account, place=person.user_id)
    address = await channel.open(person) if isinstance(channel, CanOpen) else plain
    if address.account != person.account:
        raise LookupError(f"they talk to another account of {person.channel} than {address.account}")
    return address
