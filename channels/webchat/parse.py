"""Parsing: one request of the page to an event. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pydantic import ValidationError

from channels.channel import Malformed, WebhookRequest
from channels.events import AnswerStopped, Attachment, ButtonPress, Event, Feedback, Message, kind_of
from channels.webchat.payload import Press, Rated, SentFile, Stop, payload_from
from channels.webchat.verify import Session, cookie_name, is_secure, session_of

_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_-]{0,31})(?:\s+(.*))?", re.DOTALL)
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")


def parse_event(request: WebhookRequest, *, embeds: bool = False) -> Event:
    """Return the event of a request of the page. `embeds`: other sites may frame the page.

    Raises Malformed for any other body.
    """
    try:
        sent = payload_from(request.body)
    except ValidationError as error:
        raise Malformed("neither a message nor a press, a stop or a thumb of the chat page") from error
    name = cookie_name(request.headers, secure=is_secure(request), embeds=embeds)
    session = session_of(request.headers, cookie_name=name)
    address = session.address(sent.chat)
    person = replace(session.person, language=language_of(request.headers))
    event_ids = (f"{session.session_id}:{sent.client_id}",)
    if isinstance(sent, Press):
        return ButtonPress(
            event_ids=event_ids, address=address, person=person, token=sent.token, message_id=sent.message_id
        )
    if isinstance(sent, Stop):
        return AnswerStopped(event_ids=event_ids, address=address, person=person)
    if isinstance(sent, Rated):
        return Feedback(
            event_ids=event_ids, address=address, person=person, message_id=sent.message_id, value=sent.feedback
        )
    text = sent.text.replace("\0", "").strip()
    if not text and not sent.files:
        raise Malformed("a message without words")
    command = _COMMAND.fullmatch(text)
    return Message(
        event_ids=event_ids,
        address=address,
        person=person,
        message_id=sent.client_id,
        text=(command[2] or "") if command else text,
        command=command[1].lower() if command else None,
        attachments=tuple(_attachment(session, file) for file in sent.files),
        after=sent.after,
    )


def split_ref(ref: str) -> tuple[str, str]:
    """Return the holder and the token of an uploaded file."""
    holder, _, token = ref.rpartition(":")
    return holder, token


def _attachment(session: Session, file: SentFile) -> Attachment:
    # The holder comes from the cookie, so that the token of another one's file opens nothing.
    return Attachment(
        kind=kind_of(file.mime_type),
        ref=f"{session.holder}:{file.token}",
        mime_type=file.mime_type,
        filename=file.filename,
        size=file.size,
    )


def language_of(headers: Mapping[str, str]) -> str | None:
    """Return the first language of Accept-Language, sent by browsers in order of preference, or None."""
    first = headers.get("accept-language", "").partition(",")[0].partition(";")[0].strip()
    return first if _LANGUAGE.fullmatch(first) else None
