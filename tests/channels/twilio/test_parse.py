"""Forms to events."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels import (
    Address,
    Attachment,
    ButtonPress,
    DeliveryReport,
    Event,
    Malformed,
    Message,
    OptOut,
    Parsed,
    Person,
)
from channels.events import event_from_json, event_to_json
from channels.twilio.form import is_for
from channels.twilio.parse import FormReader
from tests.channels.twilio.forms import ANA, FORMS, MEDIA, OF_OURS, OURS, SID, request

READERS = {name: FormReader(name) for name in ("sms", "whatsapp")}
EMPTY = '<?xml version="1.0" encoding="UTF-8"?><Response></Response>'


def channel_of(name: str) -> str:
    return "whatsapp" if name.startswith("whatsapp") else "sms"


def read(name: str, **changes: str) -> Parsed:
    return READERS[channel_of(name)].read(request({**FORMS[name], **changes}))


def event(name: str, **changes: str) -> Event:
    (found,) = read(name, **changes).events
    return found


def message(name: str, **changes: str) -> Message:
    found = event(name, **changes)
    assert isinstance(found, Message)
    return found


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_answered_with_twiml_that_says_nothing_to_the_person(name: str) -> None:
    response = read(name).response
    assert (response.status, response.headers["Content-Type"]) == (200, "text/xml; charset=utf-8")
    assert response.body.decode() == EMPTY


@pytest.mark.parametrize("name", FORMS)
def test_every_event_is_stored_and_read_again_as_it_was(name: str) -> None:
    for found in read(name).events:
        assert event_from_json(event_to_json(found)) == found


@pytest.mark.parametrize("name", FORMS)
def test_one_url_serves_both_channels(name: str) -> None:
    assert [c for c in READERS if is_for(c, request(FORMS[name]))] == [channel_of(name)]


def test_a_text_message() -> None:
    assert message("sms text") == Message(
        event_ids=(SID,),
        address=Address(channel="sms", account=OURS, place=ANA),
        person=Person(channel="sms", account=OURS, user_id=ANA),
        text="delete INV-42, please",
        message_id=SID,
    )
    assert str(event("sms text").person) == f"sms:{OURS}:{ANA}"


def test_a_whatsapp_message_names_its_person() -> None:
    found = message("whatsapp text")
    assert found.address == Address(channel="whatsapp", account=OURS, place=ANA)
    assert found.person == Person(channel="whatsapp", account=OURS, user_id=ANA, name="Ana Núñez")


def test_every_script_comes_through() -> None:
    assert message("sms text in another alphabet").text == "löschen 删除 🙂"
    assert message("sms to a short code").address.account == "12345"


def test_a_command_is_told_from_its_words() -> None:
    found = message("sms command")
    assert (found.command, found.text) == ("start", "invoices")
    assert message("sms code").command is None


@pytest.mark.parametrize(
    ("name", "opted_in"),
    [
        ("sms STOP", False),
        ("sms CANCEL", False),
        ("sms opt-out", False),
        ("whatsapp STOP", False),
        ("sms START", True),
        ("sms opt-in", True),
    ],
)
def test_whoever_opts_out_or_in(name: str, opted_in: bool) -> None:
    found = event(name)
    assert isinstance(found, OptOut)
    assert (found.opted_in, str(found.person)) == (opted_in, f"{channel_of(name)}:{OURS}:{ANA}")


@pytest.mark.parametrize("word", ["STOP", "stopall", "Unsubscribe", "cancel", "END", "quit", "Revoke", "OptOut"])
def test_the_carriers_words_count_alone_and_in_any_case(word: str) -> None:
    assert isinstance(event("sms text", Body=word), OptOut)
    assert isinstance(event("sms text", Body=f"{word} it"), Message)


@pytest.mark.ledger("PEND-71")
@pytest.mark.parametrize(("name", "text"), [("whatsapp cancel", "Cancel"), ("sms YES", "Yes")])
def test_ordinary_words_stay_answers(name: str, text: str) -> None:
    assert message(name).text == text


def test_what_twilio_has_answered_itself_is_no_message() -> None:
    assert read("sms help") == Parsed((), read("sms help").response)


def test_a_reply_names_what_it_answers() -> None:
    assert message("whatsapp reply").reply_to == OF_OURS


@pytest.mark.ledger("PEND-66")
def test_a_press_is_its_payload_and_not_its_title() -> None:
    found = event("whatsapp button")
    assert isinstance(found, ButtonPress)
    assert (found.token, found.message_id, found.event_ids) == ("00secret-token", OF_OURS, (SID,))


@pytest.mark.parametrize("name", ["whatsapp forwarded", "whatsapp often forwarded"])
def test_forwarded_words_are_not_the_persons_own(name: str) -> None:
    assert message(name).forwarded
    assert not message("whatsapp text").forwarded


@pytest.mark.parametrize(
    ("name", "attachments"),
    [
        ("mms picture", [Attachment(kind="image", ref=f"{MEDIA}/ME1", mime_type="image/jpeg")]),
        (
            "mms several",
            [
                Attachment(kind="image", ref=f"{MEDIA}/ME1", mime_type="image/png"),
                Attachment(kind="contact", ref=f"{MEDIA}/ME2", mime_type="text/vcard"),
                Attachment(kind="video", ref=f"{MEDIA}/ME3", mime_type="video/3gpp"),
            ],
        ),
        ("whatsapp voice", [Attachment(kind="voice", ref=f"{MEDIA}/ME1", mime_type="audio/ogg; codecs=opus")]),
        ("whatsapp document", [Attachment(kind="document", ref=f"{MEDIA}/ME1", mime_type="application/pdf")]),
        ("whatsapp sticker", [Attachment(kind="sticker", ref=f"{MEDIA}/ME1", mime_type="image/webp")]),
        ("whatsapp location", [Attachment(kind="location", ref="geo:48.2082,-16.3738", filename="Stephansdom")]),
    ],
)
def test_what_a_message_carries(name: str, attachments: list[Attachment]) -> None:
    assert list(message(name).attachments) == attachments


@pytest.mark.parametrize("count", ["-1", "nine", "²", "9" * 400, "1e3", ""])
def test_a_number_of_files_that_is_none_counts_as_none(count: str) -> None:
    assert message("mms picture", NumMedia=count).attachments == ()


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("report sent", "sent", None),
        ("report delivered", "delivered", None),
        ("report undelivered", "failed", "30003"),
        ("report failed", "failed", "30007"),
        ("whatsapp report delivered", "delivered", None),
        ("whatsapp report read", "read", None),
        ("whatsapp report undelivered", "failed", "63016"),
    ],
)
def test_a_report_is_about_our_message_in_their_conversation(name: str, status: str, code: str | None) -> None:
    found = event(name)
    assert isinstance(found, DeliveryReport)
    assert (found.message_id, found.status, found.code, found.person) == (OF_OURS, status, code, None)
    assert found.address == Address(channel=channel_of(name), account=OURS, place=ANA)
    assert found.event_ids == (f"{OF_OURS}/{FORMS[name]['MessageStatus']}",)


def test_on_its_way_is_no_news() -> None:
    assert not read("report queued").events
    assert not read("report queued").not_understood


@pytest.mark.parametrize(
    "name", ["sms blank", "whatsapp of no kind we know", "rcs text", "report of a kind we do not know"]
)
def test_what_is_not_understood_is_kept_for_a_person(name: str) -> None:
    parsed = read(name)
    assert (parsed.events, parsed.not_understood, parsed.response.status) == ((), True, 200)


@pytest.mark.parametrize("missing", ["MessageSid", "From", "To"])
def test_a_form_without_its_frame_is_not_understood(missing: str) -> None:
    form = {name: value for name, value in FORMS["sms text"].items() if name != missing}
    assert READERS["sms"].read(request(form)).not_understood


@pytest.mark.parametrize("cut", [SID[:-1], SID + "0", "", "SM"])
def test_an_id_that_is_no_sid_is_not_understood(cut: str) -> None:
    assert read("sms text", MessageSid=cut).not_understood


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"Body":"hello"}', "application/json"),
        (b"Body=hello", ""),
        (b"Body=hello", "multipart/form-data; boundary=x"),
        (b"Body=%ff", "application/x-www-form-urlencoded"),
        (b"Body=\xff", "application/x-www-form-urlencoded"),
        (b"a=1&" * 501, "application/x-www-form-urlencoded"),
        (b"Body=" + b"x" * 70_000, "application/x-www-form-urlencoded"),
    ],
    ids=["json", "untyped", "multipart", "not utf-8", "not ascii", "many fields", "large"],
)
def test_what_is_no_form_of_twilios_is_malformed(body: bytes, content_type: str) -> None:
    with pytest.raises(Malformed):
        READERS["sms"].read(request(body, content_type=content_type))


@settings(derandomize=True, max_examples=100, deadline=None)
@given(body=st.binary(max_size=300), channel=st.sampled_from(list(READERS)))
def test_any_bytes_are_read_or_malformed(body: bytes, channel: str) -> None:
    is_for(channel, request(body))
    with contextlib.suppress(Malformed):
        READERS[channel].read(request(body))


VALUES = st.one_of(st.text(max_size=20), st.sampled_from(["1", "true", "STOP", OURS, f"whatsapp:{ANA}", "received"]))


@settings(derandomize=True, max_examples=100, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(sorted({key for form in FORMS.values() for key in form})), VALUES))
def test_any_values_are_read(changes: Mapping[str, str]) -> None:
    form = {**FORMS["whatsapp button"], **{k: v.encode("utf-8", "replace").decode() for k, v in changes.items()}}
    for reader in READERS.values():
        for found in reader.read(request(form)).events:
            assert event_from_json(event_to_json(found)) == found
