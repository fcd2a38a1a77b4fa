"""Rendering: a reply to one part for its text and buttons, and one for each file."""

from __future__ import annotations

from dataclasses import replace

from channels.replies import Button, Json, Part, Reply, Settled

__all__ = ["BUTTON_LABEL", "render_reply"]

BUTTON_LABEL = 60
"""The longest label in characters: a narrow window shows this many on one line."""


def render_reply(reply: Reply) -> tuple[Part, ...]:
    """Return the parts of a reply. The Markdown stays as it is, and the server of the page renders it safely.

    A question comes after its files, so that the last receipt is that of the question.
    """
    text = reply.text.encode("utf-8", "replace").decode()  # a lone surrogate cannot be sent anywhere
    buttons = tuple(map(_cut, reply.buttons))
    arguments: dict[str, Json] = {"text": text, "edits": reply.edits}
    if reply.exact:
        arguments["exact"] = True
    if reply.settled:
        arguments["settled"] = [_settled(each) for each in reply.settled]
    words = Part(call="show", arguments=arguments, buttons=buttons)
    files = tuple(Part(call="show", arguments={"text": "", "edits": None}, media=media) for media in reply.media)
    if buttons:
        return (*files, words)
    # An edit with an empty text is sent too, because it empties the message.
    return (words, *files) if reply.text or reply.edits else files


def _settled(each: Settled) -> Json:
    return {"state": each.state, "at": each.at.isoformat() if each.at else None, "written": each.written}


def _cut(button: Button) -> Button:
    if len(button.label) <= BUTTON_LABEL:
        return button
    return replace(button, label=button.label[: BUTTON_LABEL - 1] + "…")
