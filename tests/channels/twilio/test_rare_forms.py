"""Rarer forms to events."""

from __future__ import annotations

import pytest

from channels import Attachment, ButtonPress, Event, Message, OptOut
from channels.events import event_from_json, event_to_json
from channels.twilio.parse import FormReader
from channels.twilio.payload import is_for
from tests.channels.twilio.forms import FORMS, OF_OURS, request
from tests.channels.twilio.rare_forms import RARE_FORMS

READERS = {name: FormReader(name) for name in ("sms", "whatsapp")}
EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def channel_of(name: str) -> str:
    return "whatsapp" if name.startswith("whatsapp") else "sms"


def event(name: str) -> Event:
    (found,) = READERS[channel_of(name)].read(request(RARE_FORMS[name])).events
    return found


def message(name: str) -> Message:
    found = event(name)
    assert isinstance(found, Message)
    return found


def test_each_channel_has_forty_forms() -> None:
    names = [channel_of(name) for name in {**FORMS, **RARE_FORMS} if not name.startswith("rcs")]
    assert min(names.count("sms"), names.count("whatsapp")) >= 40
    assert not FORMS.keys() & RARE_FORMS.keys()


@pytest.mark.parametrize("name", RARE_FORMS)
def test_each_is_stored_and_read_again_as_it_was(name: str) -> None:
    parsed = READERS[channel_of(name)].read(request(RARE_FORMS[name]))
    assert parsed.response.status == 200
    assert [c for c in READERS if is_for(c, request(RARE_FORMS[name]))] == [channel_of(name)]
    for found in parsed.events:
        assert event_from_json(event_to_json(found)) == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sms from abroad", "ciao"),
        ("sms without places", "hello"),
        ("sms with an add-on's result", "hello"),
        ("sms of ten segments", ("long " * 300).strip()),
        ("sms of a link", "https://example.com/invoice?id=42&yes=1"),
        ("sms of blanks around", "delete INV-42"),
        ("sms of a zero", "ab"),
        ("whatsapp by a user id", "hello"),
    ],
)
def test_words_come_as_they_are_and_may_decide(name: str, text: str) -> None:
    found = message(name)
    assert (found.text, found.attachments, found.spoiled_by) == (text, (), ())


@pytest.mark.parametrize(
    ("name", "text", "files"),
    [
        ("mms ten pictures", "", [("image", "image/jpeg")] * 10),
        ("mms film with words", "look", [("video", "video/mp4")]),
        ("mms paper", "the contract", [("document", "application/pdf")]),
        ("mms moving picture", "", [("image", "image/gif")]),
        ("mms text file", "yes", [("document", "text/plain")]),
        ("mms calendar", "", [("document", "text/calendar")]),
        ("mms sound of a phone", "", [("audio", "audio/3gpp")]),
        ("mms of no type", "", [("document", None)]),
        ("whatsapp picture without words", "", [("image", "image/jpeg")]),
        ("whatsapp picture as a reply", "this", [("image", "image/png")]),
        ("whatsapp forwarded picture", "", [("image", "image/jpeg")]),
        ("whatsapp spreadsheet", "costs.xlsx", [("document", EXCEL)]),
        ("whatsapp sound file", "", [("audio", "audio/mpeg")]),
        ("whatsapp moving sticker", "", [("sticker", "image/webp")]),
        ("whatsapp film with words", "watch", [("video", "video/mp4")]),
        ("whatsapp of a code and a picture", "ok k7p2", [("image", "image/jpeg")]),
    ],
)
def test_files_come_with_their_words_and_never_decide(
    name: str, text: str, files: list[tuple[str, str | None]]
) -> None:
    found = message(name)
    assert found.text == text
    assert [(file.kind, file.mime_type) for file in found.attachments] == files
    assert found.spoiled_by


def test_a_place_without_a_name_has_its_coordinates() -> None:
    place = Attachment(kind="location", ref="geo:-33.8688,151.2093")
    assert message("whatsapp location of no name").attachments == (place,)


def test_replies_presses_and_opt_outs_are_told_apart() -> None:
    assert message("whatsapp picture as a reply").reply_to == OF_OURS
    assert message("whatsapp forwarded picture").forwarded
    press = event("whatsapp button of no message")
    assert isinstance(press, ButtonPress)
    assert (press.token, press.message_id) == ("00secret-token", None)
    out = event("sms opt-out in capitals of another word")
    assert isinstance(out, OptOut)
    assert not out.opted_in


def test_an_advertisement_is_no_answer() -> None:
    assert message("whatsapp from an advertisement with a picture").spoiled_by


def test_a_form_filled_in_is_kept_for_a_person() -> None:
    assert READERS["whatsapp"].read(request(RARE_FORMS["whatsapp form filled in"])).not_understood
