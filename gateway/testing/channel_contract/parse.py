"""Tests of `parse`: the events and the answer of a request, for any bytes."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode

from hypothesis import example, given
from hypothesis import strategies as st

from channels import ButtonPress, CanOrder, Channel, Event, Malformed, Message, Parsed, Receipt, WebhookRequest
from gateway.pending.tokens import make_token
from gateway.testing.channel_contract.case import ChannelCase, Webhook
from gateway.testing.channel_contract.helpers import (
    NOW,
    Chat,
    Contract,
    any_input,
    check_event,
    webhook_test,
    with_proof,
    without_io,
)

_WORDS = (
    "delete INV-42",
    "¿Borrar la número 42? Ñandú",
    "удалить 删除 削除 삭제",
    "مرحبا \u200fשלום\u200e",
    "🧾 👩\u200d👩\u200d👧\u200d👦 👍🏽 𝔘𝔫𝔦",
    "e\u0301 \u200d.",
    "one\ntwo\n\nthree",
    "50% + 1 = \"2\" 'x' \\ / `*_~#",
    "word " * 2_000 + "end",
)
_NO_WORDS = ("", " ", "\n\t ", "\u2003")
_ODD_BODIES = (
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"1",
    b"1e999",
    b"NaN",
    b"\xff\xfe{}",
    b"\xef\xbb\xbf{}",
    b'{"a": "\xff"}',
    b'{"a": "\\ud800"}',
    b"{} {}",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"{" + b",".join(b'"%d":0' % number for number in range(25_000)) + b"}",
    b'{"a": ' + b"9" * 100_000 + b"}",
    b"a=" * 50_000,
    b"a&" * 50_000,
    b"%" * 100_000,
    b"=&=&",
    b"payload=%7B",
    b"--x\r\n\r\n--x--",
    b"\0" * 1_000,
)
_LONGEST_SECONDS = 0.5
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


def _holding(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


_JSON = st.recursive(_SCALARS, _holding, max_leaves=4)
_Change: TypeAlias = tuple[int, bool, Any]
"""The place, False to delete the value there, and the value to put there."""
_CHANGES = st.lists(st.tuples(st.integers(0, 9_999), st.integers(0, 4).map(bool), _JSON), min_size=1, max_size=3)


class ParseContract(Contract):
    @webhook_test
    async def test_each_delivery_is_parsed_as_documented(self, webhook: Webhook, channel: Channel) -> None:
        for delivery in webhook.deliveries:
            parsed = channel.parse(with_proof(webhook, delivery.request))
            assert parsed == delivery.parsed, delivery.name
        kinds = {type(event) for delivery in webhook.deliveries for event in delivery.parsed.events}
        assert Message in kinds
        assert ButtonPress in kinds or not channel.capabilities.buttons

    @webhook_test
    async def test_every_event_names_storable_people_and_places(self, webhook: Webhook, channel: Channel) -> None:
        for delivery in webhook.deliveries:
            for event in channel.parse(with_proof(webhook, delivery.request)).events:
                check_event(channel, event)

    @webhook_test
    async def test_parsing_is_pure(self, webhook: Webhook, channel: Channel) -> None:
        """The same request gives the same result, in any order, and `parse` does no I/O."""
        requests = [with_proof(webhook, delivery.request) for delivery in webhook.deliveries]
        first = [channel.parse(request) for request in requests]
        with without_io("parse"):
            again = [channel.parse(request) for request in reversed(requests)]
        assert again[::-1] == first

    @webhook_test
    async def test_repeated_delivery_is_parsed_to_a_twin(self, webhook: Webhook, channel: Channel) -> None:
        for delivery in webhook.deliveries:
            first = channel.parse(with_proof(webhook, delivery.request))
            again = channel.parse(with_proof(webhook, delivery.request, NOW + timedelta(seconds=60), 2))
            assert again == first, f"{delivery.name}: not the same when it is delivered again"

    @webhook_test
    async def test_two_messages_are_no_twins(self, webhook: Webhook, channel: Channel) -> None:
        one, two = (message_of(channel, webhook, "the same words") for _ in range(2))
        assert set(one.event_ids).isdisjoint(two.event_ids)
        assert (one.address, one.person) == (two.address, two.person)

    @webhook_test
    async def test_words_come_as_they_were_written(self, webhook: Webhook, channel: Channel) -> None:
        for words in _WORDS:
            assert message_of(channel, webhook, words).text == words
        for nothing in _NO_WORDS:
            for event in events_of(channel, webhook.says(nothing), webhook):
                assert isinstance(event, Message)
                assert event.text.strip() == ""

    @webhook_test
    async def test_unstorable_characters_are_never_returned(self, webhook: Webhook, channel: Channel) -> None:
        """NUL and lone surrogates are left out, replaced or refused, but never returned: no store can hold them."""
        for odd in ("a\0b", "\0", "a\ud800b", "\udfff", "\ufffe\uffff", "\x1b[31m\x07", "a" * 50_000):
            for event in events_of(channel, webhook.says(odd), webhook):
                check_event(channel, event)

    @webhook_test
    async def test_a_press_brings_its_token(self, webhook: Webhook, channel: Channel) -> None:
        assert (webhook.presses is not None) == bool(channel.capabilities.buttons), "give the case `presses`"
        for token in [make_token("07"), "00" + "A" * 22, "15" + "-_" * 11] if webhook.presses else []:
            request = webhook.presses(token)  # type: ignore[misc]  # mypy forgets the condition of the loop
            [press] = channel.parse(with_proof(webhook, request)).events
            assert isinstance(press, ButtonPress)
            assert press.token == token
            assert press.person is not None
            check_event(channel, press)

    @webhook_test
    async def test_a_body_built_to_break_a_parser_is_refused_at_once(self, webhook: Webhook, channel: Channel) -> None:
        for request in {_kind(d.request): d.request for d in webhook.deliveries}.values():
            for body in _ODD_BODIES:
                began = time.process_time()
                parsed = parse_or_none(channel, replace(with_proof(webhook, request), body=body))
                assert time.process_time() - began < _LONGEST_SECONDS, f"slow: {body[:20]!r}"
                assert parsed is None or parsed.events == (), f"an event out of {body[:20]!r}"

    @any_input
    @given(
        of=st.integers(0, 999),
        body=st.binary(max_size=200) | _JSON.map(_dumped) | st.integers(0, 2_000),
        changes=_CHANGES,
    )
    @example(of=0, body=b"{}", changes=[])
    @example(of=0, body=b"[]", changes=[])
    @webhook_test
    async def test_any_body_is_malformed_or_parsed(
        self, webhook: Webhook, channel: Channel, of: int, body: bytes | int, changes: list[_Change]
    ) -> None:
        """Random bytes, random JSON, and deliveries cut off or with other values in some places."""
        request = with_proof(webhook, webhook.deliveries[of % len(webhook.deliveries)].request)
        for odd in (body if isinstance(body, bytes) else request.body[:body], with_changes(request.body, changes)):
            asked = replace(request, body=odd)
            parsed = parse_or_none(channel, asked)
            assert parse_or_none(channel, asked) == parsed
            for event in parsed.events if parsed else ():
                check_event(channel, event)


def message_of(channel: Channel, webhook: Webhook, words: str) -> Message:
    """Return the message read by `parse` from these words of a person."""
    [event] = channel.parse(with_proof(webhook, webhook.says(words))).events
    assert isinstance(event, Message)
    return event


def events_of(channel: Channel, request: WebhookRequest, webhook: Webhook) -> tuple[Event, ...]:
    parsed = parse_or_none(channel, with_proof(webhook, request))
    return parsed.events if parsed else ()


def parse_or_none(channel: Channel, request: WebhookRequest) -> Parsed | None:
    """Return the result of `parse`, or None for a malformed request. Any other error is raised."""
    try:
        parsed = channel.parse(request)
    except Malformed:
        return None
    assert 200 <= parsed.response.status < 300, "what is authentic is taken: an error would bring it back"
    assert not (parsed.not_understood and parsed.events)
    return parsed


def _kind(request: WebhookRequest) -> str:
    return request.headers.get("content-type", "")


# ── deliveries with other values in some places ──


@dataclass(frozen=True)
class _Form:
    """The fields of a form. JSON in a field is decoded too."""

    fields: dict[str, Any]


def with_changes(body: bytes, changes: list[_Change]) -> bytes:
    """Return a JSON document or a form with the values in some places replaced or deleted."""
    value = _decoded(body)
    tree = value.fields if isinstance(value, _Form) else value
    places = _places(tree)[1:]
    for where, stays, other in changes if places else ():
        *way, last = places[where % len(places)]
        inner: Any = tree
        with contextlib.suppress(LookupError, TypeError):  # an earlier change removed this place
            for key in way:
                inner = inner[key]
            if stays:
                inner[last] = other
            else:
                del inner[last]
    return _encoded(value)


def _decoded(body: bytes) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(body)
    fields: dict[str, Any] = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    for name, value in fields.items():
        with contextlib.suppress(ValueError):
            inner = json.loads(value)
            fields[name] = inner if isinstance(inner, dict) else value
    return _Form(fields)


def _encoded(value: Any) -> bytes:
    if not isinstance(value, _Form):
        return _dumped(value)
    shown = {name: inner if isinstance(inner, str) else json.dumps(inner) for name, inner in value.fields.items()}
    return urlencode(shown, errors="replace").encode()


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every place in a JSON value, the whole value first."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, inner in items for place in _places(inner, (*at, key)))]


_NOBODYS = "field_of_tomorrow"
_NO_IDS = ("", " ", "x", "-1", "+9", "1e9", "0x7fff", "1_0", "NaN", "٩٩٩٩٩٩٩٩٩٩٩", "9" * 5_000)


class WordsContract(Contract):
    @webhook_test
    async def test_words_alone_are_not_spoiled(self, webhook: Webhook, channel: Channel) -> None:
        for text in ("yes", "OK K7P2", "delete INV-42"):
            message = message_of(channel, webhook, text)
            assert (message.spoiled_by, message.unknown_fields, message.replayed) == ((), (), False)

    @webhook_test
    async def test_each_documented_field_spoils_or_does_not(self, webhook: Webhook, channel: Channel) -> None:
        assert webhook.fields or channel.capabilities.bare_yes == "never", "give the case `fields` and `holding`"
        for field in webhook.fields:
            named = f"{field.name}: {field.value!r}"
            messages = messages_with(channel, webhook, {field.name: field.value})
            assert messages or field.spoils, f"not read any more with {named}"
            for message in messages:
                assert bool(message.spoiled_by) == field.spoils, f"{message.spoiled_by} with {named}"
                assert message.unknown_fields == (), f"documented, and yet not known: {named}"

    @webhook_test
    async def test_unknown_field_is_named_and_changes_no_other_field(self, webhook: Webhook, channel: Channel) -> None:
        """A channel serving only its own page may refuse this message instead."""
        if webhook.holding is None:
            return
        [plain] = messages_with(channel, webhook, {})
        if parse_or_none(channel, with_proof(webhook, webhook.holding({_NOBODYS: "1"}))) is None:
            return
        [odd] = messages_with(channel, webhook, {_NOBODYS: "1"})
        assert odd.unknown_fields == (_NOBODYS,)
        one, two = (replace(each, event_ids=(), message_id=None, sent_at=None) for each in (plain, odd))
        assert replace(two, unknown_fields=()) == one

    async def test_a_word_is_told_to_be_before_or_after_ours(
        self, case: ChannelCase, channel: Channel, chat: Chat
    ) -> None:
        if not isinstance(channel, CanOrder):
            return
        assert case.answered is not None, "give the case `answered`"
        for receipt in [(await chat.say(words))[-1] for words in ("one", "two")]:
            early, late = case.answered(receipt, False), case.answered(receipt, True)
            with without_io("follows"):
                assert channel.follows(late, receipt) is True
                assert channel.follows(early, receipt) is False

    async def test_no_message_follows_a_receipt_without_usable_ids(
        self, case: ChannelCase, channel: Channel, chat: Chat
    ) -> None:
        if not isinstance(channel, CanOrder) or case.answered is None:
            return
        [receipt] = await chat.say("one")
        late = case.answered(receipt, True)
        assert not channel.follows(late, replace(receipt, message_id=None))
        assert not channel.follows(replace(late, message_id=None, after=None), receipt)
        assert not channel.follows(replace(late, message_id=receipt.message_id, after=None), receipt)
        for odd in _NO_IDS:
            assert not channel.follows(replace(late, message_id=odd, after=odd), receipt), odd[:20]
            assert not channel.follows(late, Receipt(message_id=odd)), odd[:20]


def messages_with(channel: Channel, webhook: Webhook, fields: Mapping[str, Any]) -> list[Message]:
    """Return the messages read by `parse` from a "yes" with these fields; empty if no message is read."""
    assert webhook.holding is not None, "give the case `holding`"
    events = events_of(channel, webhook.holding(fields), webhook)
    return [event for event in events if isinstance(event, Message)]
