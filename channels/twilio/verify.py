"""Is a request Twilio's? It is when it carries a signature made with our secret over the URL and all its fields."""

from __future__ import annotations

import hmac
from urllib.parse import urldefrag

from twilio.request_validator import HMAC_SHA1, HMAC_SHA256, RequestValidator, get_signature_algorithm

from channels.channel import Forged, Malformed, WebhookRequest
from channels.twilio.form import read_form

__all__ = ["Verifier"]

_SIGNATURE = "x-twilio-signature"
_SETTINGS = "x-twilio-webhooks-signature-settings"
"""Both: https://www.twilio.com/docs/usage/webhooks/webhooks-security and twilio.request_validator."""


class Verifier:
    """Proves requests for one account.

    Twilio signs with the account's auth token and SHA-1, or, once the operator has made one, with a shared key and
    SHA-256. Which of the two it must be is configured: a request does not choose the weaker one.
    """

    def __init__(self, account_sid: str, auth_token: str, shared_key: str = "") -> None:
        """Raises ValueError for an empty token: anybody can sign with that."""
        if not auth_token.strip():
            raise ValueError("twilio: the auth token is empty")
        self._account_sid = account_sid.encode()
        self._validator = RequestValidator(shared_key or auth_token)
        self._algorithm = HMAC_SHA256 if shared_key else HMAC_SHA1

    def verify(self, request: WebhookRequest) -> None:
        """Raises Forged and nothing else, whatever the bytes.

        The signature has no time in it: what was stored before is recognised by its MessageSid.
        """
        try:
            form = read_form(request)
            algorithm = get_signature_algorithm(request.headers.get(_SETTINGS, ""))
            # What follows a # tells Twilio how to connect, and is not part of what it signs.
            url, _ = urldefrag(request.url)
            signature = request.headers.get(_SIGNATURE, "")
            signed = algorithm == self._algorithm and self._validator.validate(url, form, signature, self._algorithm)
            account = form.get("AccountSid", "").encode("utf-8", "replace")
        except Malformed:
            raise Forged("twilio: the form cannot be read, so its signature cannot be checked") from None
        except Exception:  # noqa: BLE001 - the library raises what it likes on odd bytes
            raise Forged("twilio: the signature cannot be checked") from None
        if not signed:
            raise Forged("twilio: the signature is missing or wrong")
        if not hmac.compare_digest(account, self._account_sid):
            raise Forged("twilio: it is about another account")
