"""A reply as the page shows it: one part for the words and buttons, one for each file."""

from __future__ import annotations

from channels.replies import Part, Reply

__all__ = ["render_reply"]


def render_reply(reply: Reply) -> tuple[Part, ...]:
    """The Markdown goes as it is: whoever serves the page renders it safely."""
    words = Part(call="show", arguments={"text": reply.text, "edits": reply.edits}, buttons=reply.buttons)
    files = tuple(Part(call="show", arguments={"text": "", "edits": None}, media=media) for media in reply.media)
    # An edit shows its words even when there are none: an emptied message is an answer too.
    return (words, *files) if reply.text or reply.buttons or reply.edits else files
