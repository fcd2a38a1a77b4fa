"""The stored bodies of events, with the time of receipt and the gateway's seal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import cast

import orjson

from channels import Event, Json
from channels.events import event_to_json, event_to_text
from gateway.pending.seal import Keyring
from gateway.store.codec import micros
from gateway.store.types import Waiting, Written


def event_body(keyring: Keyring, conversation: str, event: Event, received: datetime) -> Mapping[str, Json]:
    """Return the body of a platform's event."""
    try:
        text = event_to_text(event)
    except ValueError:  # a lone surrogate, which another distribution's channel may pass on
        return received_body(keyring, conversation, cast("dict[str, Json]", event_to_json(event)), received)
    body = {**orjson.loads(text), "received": micros(received)}
    sealed = keyring.stamped("event", conversation, body)
    return Written(f'{text[:-1]},"received":{body["received"]},"mac":"{sealed["mac"]}"}}')


def received_body(keyring: Keyring, conversation: str, body: Mapping[str, Json], received: datetime) -> dict[str, Json]:
    """Return this body of an event with the time of receipt and the seal."""
    return keyring.stamped("event", conversation, {**body, "received": micros(received)})


def replay_body(keyring: Keyring, waiting: Waiting) -> dict[str, Json]:
    """Return the body of an event for a dead letter. A replayed event is read and decides no action."""
    body = {name: value for name, value in waiting.body.items() if name != "mac"}
    return keyring.stamped("event", waiting.conversation, {**body, "replayed": True})
