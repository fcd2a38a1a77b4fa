"""Long answers: an answer too long for the chat is sent as the beginning, and as a file with the whole."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from channels import Address, Channel, Media, Reply
from channels.formatting import finished
from gateway.artifacts import Artifact, NotKept
from gateway.engine.context import EngineContext
from gateway.engine.turns.feature import Ending, TurnFeature
from gateway.pending.actions import OutgoingReply
from gateway.wording import say

log = logging.getLogger("askfirst.turns")

_BEGINNING: Final = 1000
"""The most characters of an answer shown in front of the file."""


class LongAnswers(TurnFeature):
    """Replaces each text of too many messages by the beginning and a file with the whole.

    The file is durable before the commit. A text stays unchanged if the file cannot be kept.
    """

    async def contribute(self, ending: Ending) -> None:
        turn, context = ending.turn, self.context
        channel = context.channels.get(turn.address.channel)
        if channel is None or ending.outcome is None:
            return
        kept: list[OutgoingReply] = []
        for each in ending.says:
            media, reply = None, each.reply
            if _is_long(channel, turn.address, reply, context.bot.max_parts):
                media = await _file(context, reply.text, str(turn.person))
            if media is None:
                kept.append(each)
            else:
                text = f"{_beginning(reply.text)}\n\n{say('answer_in_file', ending.language)}"
                kept.append(replace(each, reply=replace(reply, text=text, media=())))
                kept.append(OutgoingReply(reply=Reply(media=(media, *reply.media))))
        ending.says = kept


def _is_long(channel: Channel, address: Address, reply: Reply, most: int) -> bool:
    able = channel.capabilities
    if reply.exact or reply.buttons or reply.edits is not None or not able.text_files:
        return False
    # A character takes two units at most, so a shorter text needs no rendering to be known as short.
    if 2 * len(reply.text) <= most * able.max_text:
        return False
    return len(channel.render(address, replace(reply, media=()))) > most


async def _file(context: EngineContext, text: str, person: str) -> Media | None:
    content = text.encode("utf-8", "replace")
    artifact = Artifact.of(content, "answer.md", "text/markdown")
    try:
        return await context.files.keep(artifact, person)
    except NotKept as error:
        log.warning("a long answer is sent in parts: %s", error)
        return None


def _beginning(text: str) -> str:
    """Return the first paragraphs of a Markdown text, or the beginning of a longer first paragraph."""
    head = text[:_BEGINNING]
    for separator in ("\n\n", "\n", " "):
        cut = head.rfind(separator)
        if cut > 0:
            head = head[:cut]
            break
    return f"{finished(head)} …"
