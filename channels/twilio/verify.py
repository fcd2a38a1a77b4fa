"""Verification of requests: Twilio signs the URL and all fields with the account's secret."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from twilio.request_validator import HMAC_SHA1, HMAC_SHA256, RequestValidator, get_signature_algorithm

from channels.channel import Forged, Malformed, NotOurs, WebhookRequest
from channels.keys import keys
from channels.twilio.payload import is_json, read_form

_SIGNATURE = "x-twilio-signature"
_SETTINGS = "x-twilio-webhooks-signature-settings"
_BODY_HASH = "bodySHA256"
_OTHER_KIND = re.compile(r"(?!whatsapp:)([a-z]{2,20}):")
"""The address of a channel other than SMS and WhatsApp: https://www.twilio.com/docs/messaging/channels."""
_HASHES = {HMAC_SHA1: hashlib.sha1, HMAC_SHA256: hashlib.sha256}
"""All algorithms of https://www.twilio.com/docs/usage/webhooks/webhooks-security and twilio.request_validator."""


class Verifier:
    """Verifier of requests for one account.

    Twilio signs with the account's auth token and SHA-1 or, if the operator has made a shared key, with this key and
    SHA-256. The settings decide the required kind, so that a request cannot choose the weaker kind.
    """

    def __init__(
        self, account_sid: str, auth_token: str, shared_key: str = "", *, address: str, setting: str, service: str = ""
    ) -> None:
        """`address`: the bot's number as Twilio writes it. `setting`: the setting with this number.

        `service`: the sid of the messaging service. Both secrets may be lists, and each value verifies. Raises
        ValueError without a token.
        """
        if not keys(auth_token):
            raise ValueError("twilio: the auth token is empty")
        self._account_sid, self._address, self._setting, self._service = account_sid, address, setting, service
        self._validators = [RequestValidator(key) for key in keys(shared_key) or keys(auth_token)]
        self._algorithm = HMAC_SHA256 if keys(shared_key) else HMAC_SHA1

    def verify(self, request: WebhookRequest) -> None:
        """Check a request's signature, account and number. Raises Forged and no other error, for any bytes.

        The signature covers no time, so a replayed request is recognised by its MessageSid instead. The signature
        covers the URL and the fields of a form. For JSON, unused by messages, the signature covers a hash of the body,
        a part of the URL.
        """
        try:
            # The fragment configures Twilio's connection, and Twilio does not sign it.
            url = request.url.partition("#")[0]
            if is_json(request):
                signed = _BODY_HASH in parse_qs(urlsplit(url).query) and self._signed(
                    url, request.body.decode(), request
                )
                form = None
            else:
                form = read_form(request)
                signed = self._signed(url, form, request)
        except Malformed:
            raise Forged("twilio: the form cannot be read, so its signature cannot be checked") from None
        except Exception:  # noqa: BLE001 - the library raises any error on malformed bytes
            raise Forged("twilio: the signature cannot be checked") from None
        if not signed:
            raise Forged("twilio: the signature is missing or wrong")
        if form is not None:
            self._check_ours(form)

    def _check_ours(self, form: Mapping[str, str]) -> None:
        """Raise NotOurs for a form about an unconfigured account, number or messaging service."""
        if form.get("AccountSid", "") != self._account_sid:
            raise NotOurs("twilio: it is about another account than TWILIO_ACCOUNT_SID")
        received = form.get("MessageStatus", "received") == "received"
        ours = form.get("To" if received else "From", "")
        if ours != self._address and not (self._service and form.get("MessagingServiceSid") == self._service):
            if kind := _OTHER_KIND.match(ours):
                raise NotOurs(
                    f"twilio: its sender is of the kind {kind[1]}, and the bot takes SMS and WhatsApp: take the sender "
                    "off this webhook"
                )
            raise NotOurs(
                f"twilio: it is about another number than {self._setting}: if it is yours, "
                "name its messaging service in TWILIO_MESSAGING_SERVICE_SID"
            )

    def _signed(self, url: str, body: Mapping[str, str] | str, request: WebhookRequest) -> bool:
        algorithm = get_signature_algorithm(request.headers.get(_SETTINGS, ""))
        signature = request.headers.get(_SIGNATURE, "")
        if algorithm != self._algorithm:
            return False
        fields = None if isinstance(body, str) else dict(body.items())
        # Fast path: nearly always no name is repeated and Twilio signs the URL unchanged.
        if fields is not None and len(fields) == len(body):
            signed = (url + "".join([name + fields[name] for name in sorted(fields)])).encode()
            given, digest = signature.encode("utf-8", "replace"), _HASHES[algorithm]
            computed = [b64encode(hmac.digest(each.token, signed, digest)) for each in self._validators]
            if any(hmac.compare_digest(one, given) for one in computed):
                return True
        return any(each.validate(url, body, signature, algorithm) for each in self._validators)
