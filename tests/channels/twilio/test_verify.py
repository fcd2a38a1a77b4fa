"""The requests that count as Twilio's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import MultiDict
from twilio.request_validator import HMAC_SHA1, HMAC_SHA256, RequestValidator

from channels import Forged, Malformed, NotOurs, WebhookRequest
from channels.twilio import SmsChannel, WhatsAppChannel
from channels.twilio.payload import read_form
from channels.twilio.verify import Verifier
from tests.channels.twilio.forms import ACCOUNT_SID, FORMS, OURS, SERVICE, request

TOKEN, KEY = "f0e1d2c3b4a5968778695a4b3c2d1e0f", "shared-key-secret-0123456789"
URL = "https://bot.example.com/webhooks/twilio"
NOW = datetime(2026, 11, 22, tzinfo=UTC)
HASHED = {"x-twilio-webhooks-signature-settings": "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256"}


def signed(
    form: Mapping[str, str] | list[tuple[str, str]],
    *,
    token: str = TOKEN,
    url: str = URL,
    called: str | None = None,
    algorithm: str = HMAC_SHA1,
    headers: Mapping[str, str] | None = None,
) -> WebhookRequest:
    """A request signed over `url`; `called` is the URL that our side believes was called."""
    fields = MultiDict(form)
    signature = RequestValidator(token).compute_signature(url.partition("#")[0], fields, algorithm)
    return request(
        urlencode(list(fields.items())).encode(),
        headers={"x-twilio-signature": signature, **(headers or {})},
        url=called or url,
    )


def passes(asked: WebhookRequest, *, shared_key: str = "") -> bool:
    try:
        Verifier(ACCOUNT_SID, TOKEN, shared_key, address=OURS, setting="TWILIO_SMS_FROM").verify(asked)
    except Forged:
        return False
    return True


@pytest.mark.ledger("MISC-18")
@pytest.mark.parametrize("name", [name for name in FORMS if not name.startswith("rcs")])
def test_a_form_signed_by_twilio_passes(name: str) -> None:
    kind = WhatsAppChannel if name.startswith("whatsapp") else SmsChannel
    kind(ACCOUNT_SID, TOKEN, OURS, service=SERVICE).verify(signed(FORMS[name]), NOW)


@pytest.mark.parametrize(
    ("name", "changes", "mend"),
    [
        ("sms text", {"To": "+15550009999"}, "TWILIO_SMS_FROM"),
        ("whatsapp text", {"To": "whatsapp:+15550009999"}, "TWILIO_WHATSAPP_FROM"),
        ("sms by a messaging service", {"To": "12345", "MessagingServiceSid": f"MG{2:032x}"}, "MESSAGING_SERVICE_SID"),
        ("report delivered", {"From": "+15550009999"}, "TWILIO_SMS_FROM"),
        ("sms text", {"AccountSid": f"AC{2:032x}"}, "TWILIO_ACCOUNT_SID"),
        ("sms text", {"To": "rcs:brand"}, "its sender is of the kind rcs"),
        ("sms text", {"To": "messenger:1234567"}, "its sender is of the kind messenger"),
    ],
)
def test_signed_form_for_another_number_is_refused_with_advice(name: str, changes: dict[str, str], mend: str) -> None:
    kind = WhatsAppChannel if name.startswith("whatsapp") else SmsChannel
    with pytest.raises(NotOurs, match=mend):
        kind(ACCOUNT_SID, TOKEN, OURS, service=SERVICE).verify(signed({**FORMS[name], **changes}), NOW)


@pytest.mark.parametrize(
    ("url", "called"),
    [
        (URL, f"{URL}#rc=3&rp=all"),
        (URL, "https://bot.example.com:443/webhooks/twilio"),
        ("https://bot.example.com:443/webhooks/twilio", URL),
        (f"{URL}?tenant=a%20b&x=1", None),
        (f"{URL}/status?part=0a1b#rc=3&rp=all", None),
        ("https://bot.example.com/deep/prefix/webhooks/twilio", None),
        ("https://bot.example.com:8443/webhooks/twilio", None),
        (URL, "https://bot.example.com:8443/webhooks/twilio"),
        ("http://127.0.0.1:8080/webhooks/twilio", None),
    ],
)
def test_the_url_is_the_url_called_by_twilio(url: str, called: str | None) -> None:
    assert passes(signed(FORMS["sms text"], url=url, called=called))


@pytest.mark.parametrize(
    "called",
    [
        "http://bot.example.com/webhooks/twilio",
        "https://other.example.com/webhooks/twilio",
        f"{URL}/status",
        f"{URL}?x=1",
        f"{URL}/",
        "https://[::1/webhooks/twilio",
        "https://bot.example.com:99999/webhooks/twilio",
        "",
    ],
)
def test_another_url_is_forged(called: str) -> None:
    assert not passes(request(signed(FORMS["sms text"]).body, headers=signed(FORMS["sms text"]).headers, url=called))


def test_blank_and_repeated_fields_count() -> None:
    form = [*FORMS["sms blank"].items(), ("Extra", "one"), ("Extra", "two"), ("New", "")]
    asked = signed(form)
    assert passes(asked)
    for left_out in (b"&Extra=two", b"&New="):
        body = asked.body.replace(left_out, b"")
        assert body != asked.body
        assert not passes(request(body, headers=asked.headers, url=URL))


@pytest.mark.parametrize("name", sorted(FORMS["sms text"]))
def test_every_field_is_covered(name: str) -> None:
    asked = signed(FORMS["sms text"])
    changed = {**FORMS["sms text"], name: "changed"}
    assert not passes(request(changed, headers=asked.headers, url=URL))


def test_other_accounts_message_is_forged_despite_our_signature() -> None:
    assert not passes(signed({**FORMS["sms text"], "AccountSid": "AC" + "f" * 32}))
    assert not passes(signed({k: v for k, v in FORMS["sms text"].items() if k != "AccountSid"}))
    assert not passes(signed({**FORMS["sms text"], "AccountSid": "ÄC"}))


@pytest.mark.parametrize("token", ["", "  "])
def test_empty_token_is_refused_at_once(token: str) -> None:
    with pytest.raises(ValueError, match="empty"):
        Verifier(ACCOUNT_SID, token, address=OURS, setting="TWILIO_SMS_FROM")


def test_request_cannot_choose_its_signature_method() -> None:
    form = FORMS["sms text"]
    hashed = signed(form, token=KEY, algorithm=HMAC_SHA256, headers=HASHED)
    assert passes(hashed, shared_key=KEY)
    assert not passes(hashed)  # not configured
    assert not passes(signed(form, token=KEY, algorithm=HMAC_SHA1), shared_key=KEY)  # the weaker one
    assert not passes(signed(form), shared_key=KEY)  # the old secret
    assert not passes(signed(form, algorithm=HMAC_SHA256, headers=HASHED))
    assert not passes(signed(form, headers={"x-twilio-webhooks-signature-settings": "algorithm=NONE"}))


@pytest.mark.parametrize("algorithm", [HMAC_SHA1, HMAC_SHA256])
def test_json_body_is_proven_by_the_hash_in_its_url(algorithm: str) -> None:
    """https://www.twilio.com/docs/usage/webhooks/webhooks-security, "Validate the body of JSON requests"."""
    key = KEY if algorithm == HMAC_SHA256 else ""
    body = '{"Body": "hello, Ñandú"}'.encode()
    url = f"{URL}?bodySHA256={hashlib.sha256(body).hexdigest()}"

    def asked(content: bytes = body, *, url: str = url, signed_url: str = url) -> WebhookRequest:
        signature = RequestValidator(key or TOKEN).compute_signature(signed_url, {}, algorithm)
        headers = {"x-twilio-signature": signature, **(HASHED if key else {})}
        return request(content, content_type="application/json", headers=headers, url=url)

    assert passes(asked(), shared_key=key)
    with pytest.raises(Malformed):
        SmsChannel(ACCOUNT_SID, TOKEN, OURS).parse(asked())
    for other in (b"{}", b"\xff", b""):
        assert not passes(asked(other), shared_key=key)
    for uncovered in (body, b""):
        assert not passes(asked(uncovered, url=URL, signed_url=URL), shared_key=key)
    assert not passes(asked(url=url.replace("=", "=0")), shared_key=key)
    assert not passes(asked(signed_url=f"{url}&x=1"), shared_key=key)


def test_the_hash_of_a_form_does_not_stand_for_its_fields() -> None:
    form = dict(FORMS["sms text"])
    body = urlencode(form).encode()
    url = f"{URL}?bodySHA256={hashlib.sha256(body).hexdigest()}"
    signature = RequestValidator(TOKEN).compute_signature(url, {})
    assert not passes(request(body, headers={"x-twilio-signature": signature}, url=url))
    assert passes(signed(form, url=url))


NAMES = st.sampled_from(
    ["x-twilio-signature", "x-twilio-webhooks-signature-settings", "content-type", "content-length", "host"]
)
TEXT = st.text(st.characters(), max_size=60)


@given(
    body=st.binary(max_size=400),
    headers=st.dictionaries(NAMES, TEXT),
    url=st.one_of(TEXT, st.just(URL), st.just(f"{URL}?bodySHA256={'0' * 64}")),
    said=st.sampled_from([None, "application/x-www-form-urlencoded", "application/json"]),
)
def test_random_requests_raise_forged_only(body: bytes, headers: dict[str, str], url: str, said: str | None) -> None:
    if said is not None:
        headers["content-type"] = said
    for channel in (SmsChannel(ACCOUNT_SID, TOKEN, OURS), WhatsAppChannel(ACCOUNT_SID, TOKEN, OURS, shared_key=KEY)):
        with pytest.raises(Forged):
            channel.verify(WebhookRequest("POST", url, headers, body), NOW)


@given(at=st.integers(0, 10_000), flip=st.integers(1, 255))
def test_a_byte_changed_anywhere_is_forged(at: int, flip: int) -> None:
    asked = signed(FORMS["whatsapp button"])
    body = bytearray(asked.body)
    body[at % len(body)] ^= flip
    changed = request(bytes(body), headers=asked.headers)
    same = passes(changed)
    # The same form may be written in several ways ("%2b" for "%2B"): the fields count, not the bytes.
    assert same is (_fields(bytes(body)) == _fields(asked.body))


def _fields(body: bytes) -> object:
    try:
        return sorted(read_form(request(body)).items())
    except Malformed:
        return None
