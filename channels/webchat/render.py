"""A reply as the page shows it: one part for the words and buttons, one for each file."""

from __future__ import annotations

from dataclasses import replace

from channels.replies import Button, Json, Part, Reply, Settled

__all__ = ["BUTTON_LABEL", "render_reply"]

BUTTON_LABEL = 60
"""Characters of a label: what a narrow window shows on one line."""


def render_reply(reply: Reply) -> tuple[Part, ...]:
    """The Markdown goes as it is: whoever serves the page renders it safely.

    A question comes after its files, so that the last part's receipt is the question's.
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
    # An edit shows its words even when there are none: an emptied message is an answer too.
    return (words, *files) if reply.text or reply.edits else files


def _settled(each: Settled) -> Json:
    return {"state": each.state, "at": each.at.isoformat() if each.at else None, "written": each.written}


def _cut(button: Button) -> Button:
    if len(button.label) <= BUTTON_LABEL:
        return button
    return replace(button, label=button.label[: BUTTON_LABEL - 1] + "…")
