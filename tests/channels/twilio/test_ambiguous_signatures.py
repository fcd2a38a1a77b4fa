"""One signature of Twilio proves all forms whose joined names and values are equal.

Finding D7: the owner of one signed request could post a message in another person's name.
"""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha1
from hmac import digest
from pathlib import Path

import pytest
from multidict import MultiDict

from channels import Forged, Parsed, WebhookRequest
from channels.twilio import SmsChannel, WhatsAppChannel
from channels.twilio.parse import _KNOWN, doubt, judge
from tests.channels.twilio.conftest import ANA
from tests.channels.twilio.forms import ACCOUNT_SID, FORMS, OURS, SERVICE, request
from tests.channels.twilio.test_gateway import DELETE, open_house
from tests.fakes.twilio import FakeTwilio

TOKEN = "f0e1d2c3b4a5968778695a4b3c2d1e0f"
URL = "https://bot.example.com/webhooks/twilio"
NOW = datetime(2026, 11, 23, tzinfo=UTC)
VICTIM, ATTACKER, FRESH = "+15550009999", "+15557777777", f"SM{0xBAD:032x}"
CUTS = 3_000
"""The number of drawn cuts of each form."""


def joined(form: Mapping[str, str], url: str = URL) -> str:
    """Return the text that Twilio signs."""
    return url + "".join(name + form[name] for name in sorted(form))


def signature(text: str) -> str:
    return b64encode(digest(TOKEN.encode(), text.encode(), sha1)).decode()


def posted(form: Mapping[str, str], proof: str) -> WebhookRequest:
    return request(form, headers={"x-twilio-signature": proof}, url=URL)


def cuts(text: str, words: str, chance: random.Random) -> Iterator[dict[str, str]]:
    """Yield forms with known names and one unknown name whose joined text is `text`.

    In half of the draws, all names in the attacker's own words are taken.
    """
    text = text.removeprefix(URL)
    places = {name: [at for at in range(len(text)) if text.startswith(name, at)] for name in [*_KNOWN, "Zz"]}
    names, mine = [name for name, found in places.items() if found], {name for name in places if name in words}
    for _ in range(CUTS):
        drawn = {"ApiVersion", "Body", "From", "MessageSid", "To", *chance.sample(names, chance.randrange(4))}
        drawn |= mine if chance.random() < 0.5 else set()
        chosen = [(0, "AccountSid")]
        for name in sorted(drawn - {"AccountSid"}):
            after = [at for at in places[name] if at >= chosen[-1][0] + len(chosen[-1][1])]
            if after:
                chosen.append((chance.choice([after[0], *after]), name))
        ends = [at for at, _ in chosen[1:]] + [len(text)]
        yield {name: text[at + len(name) : end] for (at, name), end in zip(chosen, ends, strict=True)}


CAPTURED = {
    "the attack that was found": ("sms text", f"del:INV-42From{VICTIM}MessageSid{FRESH}To{OURS}Zz"),
    "without an unknown name": ("sms text", f"del:INV-42From{VICTIM}MessageSid{FRESH}NumMedia0ProfileName"),
    "the rest in a city": ("sms text", f"OK K7P2From{VICTIM}MessageSid{FRESH}SmsMessageSid{FRESH}To{OURS}ToCity"),
    "by WhatsApp": (
        "whatsapp text",
        f"yesFromwhatsapp:{VICTIM}MessageSid{FRESH}NumMedia0ProfileNameVeraTowhatsapp:{OURS}WaId",
    ),
    "a press": (
        "whatsapp text",
        f"xButtonPayload00tokenButtonTextYesFromwhatsapp:{VICTIM}MessageSid{FRESH}Towhatsapp:{OURS}Zz",
    ),
    "a report": ("sms text", f"xErrorCode21610From{OURS}MessageSid{FRESH}MessageStatusfailedTo{VICTIM}Zz"),
    "words": ("sms text", "delete INV-42, please"),
}


def read(form: Mapping[str, str], proof: str) -> Parsed | None:
    """Return the parsed form; None if the form is refused."""
    whatsapp = any(form.get(name, "").startswith("whatsapp:") for name in ("From", "To"))
    channel = (WhatsAppChannel if whatsapp else SmsChannel)(ACCOUNT_SID, TOKEN, OURS, service=SERVICE)
    asked = posted(form, proof)
    try:
        channel.verify(asked, NOW)
    except Forged:
        return None
    return channel.parse(asked)


@pytest.mark.parametrize("name", CAPTURED)
def test_no_recut_form_is_taken_without_doubt(name: str) -> None:
    kind, words = CAPTURED[name]
    form = {**FORMS[kind], "From": FORMS[kind]["From"].replace(ANA, ATTACKER), "Body": words}
    text = joined(form)
    proof = signature(text)
    original = read(form, proof)
    assert original is not None
    seen = {event.event_ids[0] for event in original.events}
    for cut in cuts(text, words, random.Random(1)):
        assert joined(cut) == text
        parsed = read(cut, proof)
        if parsed is None or parsed.doubt or cut == form:
            continue
        assert all(seen & set(event.event_ids) for event in parsed.events), "it is no twin of the original"
        assert "+" not in "".join(event.address.place[1:] for event in parsed.events)


def test_the_found_attack_has_a_valid_signature_and_is_doubted() -> None:
    kind, words = CAPTURED["the attack that was found"]
    captured = {**FORMS[kind], "From": ATTACKER, "Body": words}
    rest = joined(captured).partition(f"To{OURS}Zz")[2]
    cut = {name: captured[name] for name in ("AccountSid", "ApiVersion")}
    cut |= {"Body": "del:INV-42", "From": VICTIM, "MessageSid": FRESH, "To": OURS, "Zz": rest}
    proof = signature(joined(captured))
    assert signature(joined(cut)) == proof
    parsed = read(cut, proof)
    original = read(captured, proof)
    assert parsed is not None
    assert original is not None
    assert parsed.doubt == "it has a field beyond those of a message"
    ids = [set(event.event_ids) for each in (parsed, original) for event in each.events]
    assert ids[0] & ids[1], "the second that comes with one signature is a twin of the first"


@pytest.mark.parametrize("name", [name for name in FORMS if "does not know" not in name])
def test_a_documented_form_is_not_doubted(name: str) -> None:
    assert doubt(MultiDict(FORMS[name])) == ""


def test_fields_of_the_fallback_url_are_known_and_doubted() -> None:
    fallback = {**FORMS["sms text"], "ErrorCode": "11200", "ErrorUrl": "https://bot.example.com/webhooks/twilio"}
    assert doubt(MultiDict(fallback)) == "it has a field beyond those of a message"
    assert judge(fallback) == ((), ())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("From", f"{ANA}From{ATTACKER}"),
        ("NumMedia", f"0NumSegments1ProfileName{FRESH}"),
        ("FromCity", f"SAN FRANCISCOFromCountryUSMessageSid{FRESH}"),
        ("SmsStatus", f"receivedTo{OURS}"),
        ("MediaUrl0", f"https://example.com/MessageSid{FRESH}+"),
        ("Body", f"look: MessageSid{FRESH}"),
        ("ProfileName", f"AccountSid{ACCOUNT_SID}"),
        ("Surprise", ""),
    ],
)
def test_a_value_that_could_hold_another_field_is_doubted(field: str, value: str) -> None:
    assert doubt(MultiDict({**FORMS["sms text"], field: value}))


async def forged(twilio: FakeTwilio, captured: Mapping[str, str], cut: Mapping[str, str]) -> int:
    """Post a form under the signature of another form. Returns the answer's status."""
    proof = twilio.signed(twilio.webhook_url, dict(captured))
    async with twilio._http.post(twilio.webhook_url, data=dict(cut), headers=proof) as answer:
        return answer.status


def from_the_victim(captured: Mapping[str, str], url: str, words: str, sid: str = FRESH) -> dict[str, str]:
    cut = {name: captured[name] for name in ("AccountSid", "ApiVersion")}
    cut |= {"Body": words, "From": VICTIM, "MessageSid": sid, "To": captured["To"]}
    swallowed = joined(captured, url).removeprefix(joined(cut, url) + "Zz")
    assert swallowed != joined(captured, url)
    return cut | {"Zz": swallowed}


async def test_a_message_cut_out_of_another_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_house(tmp_path, [DELETE]) as house:
        twilio = house.twilio
        captured = twilio.form(ATTACKER, f"del:INV-42From{VICTIM}MessageSid{FRESH}To{twilio.sms}Zz")
        cut = from_the_victim(captured, twilio.webhook_url, "del:INV-42")
        assert await forged(twilio, captured, cut) == 401
        await house.idle()
        assert twilio.last(VICTIM) is None
    (refused,) = [record for record in caplog.records if record.getMessage() == "a request was refused"]
    assert "Twilio has not sent this form: it has a field beyond those of a message" in vars(refused)["why"]
    assert VICTIM not in caplog.text


async def test_forged_cut_decides_no_action_while_twilio_is_down(tmp_path: Path) -> None:
    async with open_house(tmp_path, [DELETE, "I see."]) as house:
        twilio = house.twilio
        await twilio.person_says(VICTIM, "delete INV-42")
        prompt = await twilio.wait_for(lambda: twilio.last(VICTIM, containing="INV-42"))
        await house.idle()
        code = prompt.body.partition("Reply OK ")[2][:4]
        captured = twilio.form(ATTACKER, f"OK {code}From{VICTIM}MessageSid{FRESH}To{twilio.sms}Zz")
        cut = from_the_victim(captured, twilio.webhook_url, f"OK {code}")
        twilio.down = True
        assert await forged(twilio, captured, cut) == 200
        await house.idle()
        assert house.shop.deleted == []


async def test_a_field_that_twilio_adds_takes_no_message_and_no_code(tmp_path: Path) -> None:
    async with open_house(tmp_path, [DELETE]) as house:
        twilio = house.twilio
        await twilio.person_says(ANA, "delete INV-42", NewsOfTwilio="1")
        prompt = await twilio.wait_for(lambda: twilio.last(ANA, containing="INV-42"))
        await house.idle()
        code = prompt.body.partition("Reply OK ")[2][:4]
        await twilio.person_says(ANA, f"OK {code}", NewsOfTwilio="1")
        await twilio.wait_for(lambda: house.shop.deleted)


async def test_a_report_of_another_stage_than_twilio_knows_is_refused(tmp_path: Path) -> None:
    async with open_house(tmp_path, [DELETE]) as house:
        twilio = house.twilio
        await house.prompt(whatsapp=True)
        sent = twilio.last(ANA)
        assert sent is not None
        form = {
            **{name: FORMS["report delivered"][name] for name in ("ApiVersion",)},
            "SmsSid": sent.sid,
            "SmsStatus": "read",
            "MessageStatus": "read",
            "MessageSid": sent.sid,
            "AccountSid": twilio.account_sid,
            "From": sent.from_,
            "To": sent.to,
            "News": "1",
        }
        twilio.told[sent.sid] = "delivered"
        assert (await twilio.deliver(form)).status == 401
        twilio.told[sent.sid] = "read"
        assert (await twilio.deliver(form)).status == 200
