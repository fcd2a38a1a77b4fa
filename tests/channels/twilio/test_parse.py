"""Forms to events."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import (
    Address,
    Attachment,
    Button,
    ButtonPress,
    DeliveryReport,
    Event,
    Malformed,
    Media,
    Message,
    OptOut,
    Parsed,
    Part,
    Person,
    Reply,
    WebhookRequest,
)
from channels.events import event_from_json, event_to_json
from channels.formatting import GSM, drop_dear_accents, fold_to_gsm, read_markdown, to_whatsapp
from channels.twilio.parse import FormReader
from channels.twilio.payload import is_for, read_form
from channels.twilio.render import SMS, WHATSAPP, render_sms, render_whatsapp
from gateway.pending.reading import CodeReply, read_code
from tests.channels.twilio.forms import ANA, FORMS, MEDIA, OF_OURS, OURS, SID, request

READERS = {name: FormReader(name) for name in ("sms", "whatsapp")}
FORM = {"content-type": "application/x-www-form-urlencoded"}
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
def test_every_form_is_of_one_channel_stored_and_answered(name: str) -> None:
    parsed = read(name)
    assert (parsed.response.status, parsed.response.headers["Content-Type"]) == (200, "text/xml; charset=utf-8")
    assert parsed.response.body.decode() == EMPTY
    assert [c for c in READERS if is_for(c, request(FORMS[name]))] == [channel_of(name)]
    for found in parsed.events:
        assert event_from_json(event_to_json(found)) == found


def test_every_script_comes_through() -> None:
    assert message("sms text in another alphabet").text == "löschen 删除 🙂"
    assert message("whatsapp text in another alphabet").text == "удали счёт 42 🙏"
    assert message("sms of several lines").text == "delete\r\nINV-42\n\nthanks"
    assert len(message("sms of several segments").text) > 300
    assert message("whatsapp list").text == "INV-42"
    assert str(message("sms from a short code").person) == f"sms:{OURS}:40404"
    found = message("whatsapp without a name").person
    assert found is not None and found.name is None
    assert message("sms to a short code").address.account == "12345"


def test_a_command_is_told_from_its_words() -> None:
    found = message("sms command")
    assert (found.command, found.text) == ("start", "invoices")
    assert message("sms code").command is None
    assert message("whatsapp command").command == "start"


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("sms code", CodeReply("K7P2", "confirm")),
        ("sms code in Spanish", CodeReply("K7P2", "confirm")),
        ("sms no with a code", CodeReply("K7P2", "cancel")),
        ("whatsapp code", CodeReply("K7P2", "confirm")),
        ("sms emoji", None),
    ],
)
def test_a_word_and_a_code_decide_in_any_language(name: str, reply: CodeReply | None) -> None:
    assert read_code(message(name).text, "en") == reply


@pytest.mark.parametrize(
    ("name", "opted_in", "told"),
    [
        ("sms STOP", False, True),
        ("sms CANCEL", False, True),
        ("sms opt-out", False, True),
        ("whatsapp STOP", False, False),
        ("whatsapp opt-out", False, True),
        ("sms START", True, True),
        ("sms opt-in", True, True),
        ("sms UNSTOP", True, True),
        ("whatsapp START", True, False),
    ],
)
def test_opt_out_and_opt_in_forms_are_read(name: str, opted_in: bool, told: bool) -> None:
    """Twilio reports the opt-outs handled by Twilio: on SMS always, on WhatsApp with Advanced Opt-Out."""
    found = event(name)
    assert isinstance(found, OptOut)
    assert (found.opted_in, str(found.person)) == (opted_in, f"{channel_of(name)}:{OURS}:{ANA}")
    assert found.told is told


@pytest.mark.parametrize(
    ("name", "opts_in"),
    [("sms YES", True), ("sms YES as opt-in", True), ("sms text", False), ("whatsapp text", False)],
)
def test_yes_is_an_answer_though_carriers_read_it_as_opt_in(name: str, opts_in: bool) -> None:
    assert message(name).opts_in is opts_in
    assert message("whatsapp text", Body="yes").opts_in is False


@pytest.mark.parametrize("word", ["STOP", "stopall", "Unsubscribe", "cancel", "END", "quit", "Revoke", "OptOut"])
def test_the_carriers_words_count_alone_and_in_any_case(word: str) -> None:
    assert isinstance(event("sms text", Body=word), OptOut)
    assert isinstance(event("sms text", Body=f"{word} it"), Message)


@pytest.mark.ledger("PEND-71")
@pytest.mark.parametrize(("name", "text"), [("whatsapp cancel", "Cancel"), ("sms YES", "Yes")])
def test_ordinary_words_stay_answers(name: str, text: str) -> None:
    assert message(name).text == text


def test_forwarded_words_are_not_the_persons_own() -> None:
    assert message("whatsapp often forwarded").forwarded and not message("whatsapp text").forwarded
    for text in ("hello", "/new", "STOP", "yes"):  # no command and no opt-out
        found = message("whatsapp forwarded", Body=text)
        assert (found.text, found.command, found.forwarded) == (text, None, True)


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
        ("mms sound", [Attachment(kind="audio", ref=f"{MEDIA}/ME1", mime_type="audio/amr")]),
        ("whatsapp picture", [Attachment(kind="image", ref=f"{MEDIA}/ME1", mime_type="image/jpeg")]),
        ("whatsapp video", [Attachment(kind="video", ref=f"{MEDIA}/ME1", mime_type="video/mp4")]),
        ("whatsapp contact", [Attachment(kind="contact", ref=f"{MEDIA}/ME1", mime_type="text/vcard")]),
        ("whatsapp voice", [Attachment(kind="voice", ref=f"{MEDIA}/ME1", mime_type="audio/ogg; codecs=opus")]),
        ("whatsapp document", [Attachment(kind="document", ref=f"{MEDIA}/ME1", mime_type="application/pdf")]),
        ("whatsapp sticker", [Attachment(kind="sticker", ref=f"{MEDIA}/ME1", mime_type="image/webp")]),
        ("whatsapp location", [Attachment(kind="location", ref="geo:48.2082,-16.3738", filename="Stephansdom")]),
    ],
)
def test_attachments_of_a_message_are_read(name: str, attachments: list[Attachment]) -> None:
    assert list(message(name).attachments) == attachments


@pytest.mark.parametrize("count", ["-1", "nine", "²", "9" * 400, "1e3", ""])
def test_invalid_media_count_means_no_attachments(count: str) -> None:
    assert message("mms picture", NumMedia=count).attachments == ()


@pytest.mark.parametrize("code", ["3" * 400, "30003\n", "Ana's words", "٣٠٠٠٣"])
def test_an_error_code_that_is_none_of_twilios_is_not_told(code: str) -> None:
    found = event("report failed", ErrorCode=code)
    assert isinstance(found, DeliveryReport)
    assert found.code == "unknown"


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("report sent", "sent", None),
        ("report delivered", "delivered", None),
        ("report undelivered", "failed", "30003"),
        ("report failed", "failed", "30007"),
        ("report canceled", "failed", None),
        ("whatsapp report sent", "sent", None),
        ("whatsapp report failed", "failed", "63024"),
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


def test_a_report_brings_back_the_key_its_message_was_sent_with() -> None:
    reader, form, url = READERS["sms"], FORMS["report delivered"], "https://bot.example.com/webhooks/twilio/status"
    for query, key in (
        ("?part=0a1b2c", "0a1b2c"),
        ("?x=1&part=a-b_c", "a-b_c"),
        ("", None),
        ("?part=", None),
        ("?part=a&part=b", None),
        ("?part=../x", None),
        (f"?part={'a' * 65}", None),
    ):
        (found,) = reader.read(request(form, url=url + query)).events
        assert isinstance(found, DeliveryReport) and found.key == key, query
    (found,) = reader.read(request(form, url="https://[bot/status?part=a")).events
    assert isinstance(found, DeliveryReport) and found.key is None


def test_a_report_that_the_person_has_opted_out_says_so_too() -> None:
    out, report = read("report opted out").events
    assert out == OptOut(
        event_ids=(f"{OF_OURS}/21610",),
        address=Address(channel="sms", account=OURS, place=ANA),
        person=Person(channel="sms", account=OURS, user_id=ANA),
    )
    assert isinstance(report, DeliveryReport) and (report.status, report.code) == ("failed", "21610")


@pytest.mark.parametrize("name", ["report queued", "report sending"])
def test_status_before_sent_makes_no_event(name: str) -> None:
    assert not read(name).events
    assert not read(name).not_understood


@pytest.mark.parametrize(
    "name",
    [
        "sms blank",
        "whatsapp of no kind we know",
        "whatsapp form filled in",
        "rcs text",
        "report of a kind we do not know",
    ],
)
def test_form_not_understood_is_acknowledged_and_flagged(name: str) -> None:
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
def test_body_that_is_no_form_of_twilio_is_malformed(body: bytes, content_type: str) -> None:
    with pytest.raises(Malformed):
        READERS["sms"].read(request(body, content_type=content_type))


@given(body=st.binary(max_size=300), channel=st.sampled_from(list(READERS)))
def test_any_bytes_are_read_or_malformed(body: bytes, channel: str) -> None:
    assert any(is_for(each, request(body)) for each in READERS), "somebody must refuse it"
    with contextlib.suppress(Malformed):
        READERS[channel].read(request(body))


VALUES = st.one_of(st.text(max_size=20), st.sampled_from(["1", "true", "STOP", OURS, f"whatsapp:{ANA}", "received"]))


@given(changes=st.dictionaries(st.sampled_from(sorted({key for form in FORMS.values() for key in form})), VALUES))
def test_any_values_are_read(changes: Mapping[str, str]) -> None:
    form = {**FORMS["whatsapp button"], **{k: v.encode("utf-8", "replace").decode() for k, v in changes.items()}}
    for reader in READERS.values():
        for found in reader.read(request(form)).events:
            assert event_from_json(event_to_json(found)) == found


WRITTEN = st.lists(
    st.sampled_from([*"ab=&+%#?/; ~\t\n\0'\"", "%20", "%3D", "%26", "%2b", "%00", "%25", "%4", "%zz", "%C3%A9", "&&"])
    | st.text(st.characters(max_codepoint=127), max_size=3),
    max_size=12,
).map("".join)


@given(WRITTEN)
def test_a_form_is_read_as_the_standard_library_reads_it(text: str) -> None:
    form = read_form(WebhookRequest("POST", "https://example.org", FORM, text.encode()))
    assert list(form.items()) == parse_qsl(text, keep_blank_values=True)


# ── rarer forms ──

EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


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
def test_files_come_with_words_and_never_decide(name: str, text: str, files: list[tuple[str, str | None]]) -> None:
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


# ── Replies as messages ──


PDF = Media(sha256="0" * 64, mime_type="application/pdf", filename="INV–42.pdf", size=1000)
HERE = Address(channel="sms", account="+15550001111", place="+15557654321")
BUTTONS = (Button(label="Delete", token="t1", style="confirm"), Button(label="Keep", token="t2", style="cancel"))


def sms(markdown: str) -> list[str]:
    return [str(part.arguments["body"]) for part in render_sms(HERE, Reply(text=markdown))]


def whatsapp(markdown: str) -> list[str]:
    return [str(part.arguments["body"]) for part in render_whatsapp(Reply(text=markdown))]


@pytest.mark.parametrize(
    ("markdown", "plain", "marked"),
    [
        ("**Delete** _INV-42_?", "Delete INV-42?", "*Delete* _INV-42_?"),
        ("~~old~~ `code`", "old code", "~old~ `code`"),
        ("***both***", "both", "*_both_*"),
        ("# Title", "Title", "*Title*"),
        ("[the bill](https://x.example/a)", "the bill (https://x.example/a)", "the bill (https://x.example/a)"),
        ("<https://x.example/a>", "https://x.example/a", "https://x.example/a"),
        ("**[bill](https://x.example)**", "bill (https://x.example)", "*bill* (https://x.example)"),
        ("> said\n> twice", "> said\n> twice", "> said\n> twice"),
        ("> **loud**", "> loud", "> *loud*"),
        ("```py\na = 1\nb = 2\n```", "a = 1\nb = 2", "```a = 1\nb = 2```"),
        ("un**like**ly", "unlikely", "unlikely"),
        ("**two\nlines**", "two\nlines", "*two*\n*lines*"),
        ("**2 * 3**", "2 * 3", "2 * 3"),
        ("“It’s” – done…", '"It\'s" - done...', "“It’s” – done…"),
        ("- one\n- two", "- one\n- two", "• one\n• two"),
    ],
)
def test_each_channel_shows_the_styles_it_supports(markdown: str, plain: str, marked: str) -> None:
    assert sms(markdown) == [plain]
    assert whatsapp(markdown) == [marked]


def test_letters_are_never_folded() -> None:
    for text in ("löschen Ñandú ¿sí?", "удалить", "删除 42", "🙂"):
        assert fold_to_gsm(text) == text


@pytest.mark.parametrize(
    ("written", "cheap"),
    [
        ("SÍ, NÃO, você, ação", "SI, NAO, voce, acao"),
        ("El año de la niña, ¿qué? ¡Él!", "El año de la niña, ¿qué? ¡Él!"),
        ("über Größe à Ørsted €", "über Größe à Ørsted €"),
        ("删除 привет 🙂 ő", "删除 привет 🙂 o"),
    ],
)
def test_own_words_lose_the_accents_that_make_sms_dear(written: str, cheap: str) -> None:
    assert drop_dear_accents(written) == cheap


def test_a_line_break_in_a_value_keeps_text_in_gsm() -> None:
    (text,) = sms("note: one ⏎ two")
    assert text == "note: one \\n two" and set(text) <= GSM


@pytest.mark.ledger("CFG-03")
@pytest.mark.parametrize("render", [sms, whatsapp])
def test_parts_of_a_long_text_are_numbered(render: object) -> None:
    texts = (sms if render is sms else whatsapp)("\n\n".join(f"Paragraph {n}. " + "word " * 60 for n in range(20)))
    assert len(texts) > 3
    assert [text.partition(" ")[0] for text in texts] == [f"({n}/{len(texts)})" for n in range(1, len(texts) + 1)]
    assert all(len(text) <= SMS.max_text for text in texts)
    numbers = [int(n) for text in texts for n in re.findall(r"Paragraph (\d+)", text)]
    assert numbers == list(range(20))


def test_exactly_as_long_as_one_message_is_one_message() -> None:
    assert sms("x" * 1600) == ["x" * 1600]
    assert len(sms("x" * 1601)) == 2
    assert len(sms("🙂" * 800)) == 1
    assert len(sms("🙂" * 801)) == 2


def test_an_address_is_not_torn_apart() -> None:
    address = "https://bot.example.com/artifacts/" + "a" * 300
    texts = sms("word " * 300 + address + " and more " * 50)
    assert any(address in text for text in texts)


def test_marks_are_closed_in_every_part() -> None:
    for text in whatsapp("**" + "bold " * 400 + "end**"):
        assert text.count("*") == 2


def test_an_address_longer_than_a_message_ends() -> None:
    texts = whatsapp(f"[label](https://x.example/{'a' * 4000})")
    assert all(len(text) <= WHATSAPP.max_text for text in texts)
    assert "".join(texts).count("a") > 4000


# ── files and prompts ──


@pytest.mark.ledger("RES-17")
def test_a_file_goes_as_itself_by_whatsapp_and_as_a_link_by_sms() -> None:
    reply = Reply(text="Here:", media=(PDF,))
    assert list(render_whatsapp(reply)) == [
        Part(call="message", arguments={"body": "Here:"}),
        Part(call="media", arguments={"body": "“INV–42.pdf”"}, media=PDF),
    ]
    assert list(render_sms(HERE, reply)) == [
        Part(call="message", arguments={"body": "Here:"}),
        Part(call="link", arguments={"body": '"INV-42.pdf"'}, media=PDF),
    ]


@pytest.mark.parametrize(
    ("mime_type", "size", "call"),
    [
        ("image/png", 5_000_000, "media"),
        ("image/png", 5_000_001, "link"),
        ("image/gif", 10, "link"),
        ("video/mp4", 16_000_001, "link"),
        ("application/zip", 10, "link"),
        ("application/pdf", 16_000_000, "media"),
    ],
)
def test_media_that_whatsapp_does_not_take_is_linked(mime_type: str, size: int, call: str) -> None:
    media = Media(sha256="0" * 64, mime_type=mime_type, filename="file", size=size)
    assert [part.call for part in render_whatsapp(Reply(media=(media,)))] == [call]


@pytest.mark.parametrize(
    ("ours", "theirs", "mime_type", "size", "call"),
    [
        ("+15550001111", "+15557654321", "image/png", 5_000_000, "media"),
        ("+15550001111", "+14165550000", "image/jpeg", 10, "media"),
        ("+15550001111", "+15557654321", "image/gif", 10, "media"),
        ("+15550001111", "+15557654321", "image/png", 5_000_001, "link"),
        ("+15550001111", "+15557654321", "image/webp", 10, "link"),
        ("+15550001111", "+15557654321", "application/pdf", 10, "link"),
        ("+15550001111", "+18765550000", "image/png", 10, "link"),  # Jamaica
        ("+15550001111", "+447700900000", "image/png", 10, "link"),
        ("+447700900001", "+15557654321", "image/png", 10, "link"),
        ("12345", "+15557654321", "image/png", 10, "link"),
    ],
)
def test_a_picture_goes_by_mms_where_there_is_mms(ours: str, theirs: str, mime_type: str, size: int, call: str) -> None:
    media = Media(sha256="0" * 64, mime_type=mime_type, filename="file", size=size)
    place = Address(channel="sms", account=ours, place=theirs)
    assert [part.call for part in render_sms(place, Reply(media=(media,)))] == [call]


@pytest.mark.parametrize("render", [render_sms, render_whatsapp])
def test_a_prompt_comes_last_in_words(render: object) -> None:
    reply = Reply(text="Delete INV-42? Answer OK K7P2.", media=(PDF,), buttons=BUTTONS)
    parts = list(render_sms(HERE, reply) if render is render_sms else render_whatsapp(reply))
    assert [part.call for part in parts][-1] == "message"
    assert parts[-1].arguments == {"body": "Delete INV-42? Answer OK K7P2."}
    assert [part.buttons for part in parts] == [(), BUTTONS]
    assert SMS.buttons == WHATSAPP.buttons == 0


def test_nested_marks_become_whatsapp_marks() -> None:
    assert to_whatsapp(read_markdown("a **b _c_** d")) == "a *b _c_* d"
