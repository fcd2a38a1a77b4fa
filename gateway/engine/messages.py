"""Properties of messages beyond the text, as needed by the engine."""

from __future__ import annotations

from channels import Message


def is_typed(message: Message) -> bool:
    """Return True for words typed here by the person to the bot. No other message decides an action.

    Reading an answer ignores one mention of a bot. Only the channel recognises a mention of this bot.
    """
    copied = message.forwarded or message.via_bot or message.transcribed or message.replayed
    beside = message.spoiled_by or message.attachments or message.command is not None
    return not copied and not beside and (message.mentions_bot or "@" not in message.text)


def replies_by_thread(message: Message) -> bool:
    """Return True if `reply_to` is only the first message of the thread. Every message of a thread has this reply."""
    return message.reply_to is not None and message.reply_to == message.address.thread
