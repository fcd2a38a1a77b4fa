"""Messages as the engine judges them, beyond their text."""

from __future__ import annotations

from channels import Message


def is_typed(message: Message) -> bool:
    """Return True for words that the person typed here to the bot. No other message decides anything.

    Reading an answer ignores one mention of a bot. Only the channel knows if it is a mention of this bot.
    """
    copied = message.forwarded or message.via_bot or message.transcribed or message.replayed
    beside = message.spoiled_by or message.attachments or message.command is not None
    return not copied and not beside and (message.mentions_bot or "@" not in message.text)


def replies_by_thread(message: Message) -> bool:
    """Return True for a message that replies to the first message of its thread only because it stands in that thread,
    as every message there does."""
    return message.reply_to is not None and message.reply_to == message.address.thread
