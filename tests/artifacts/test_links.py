"""Links: good until the end, for exactly the signed data."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels import AskfirstError, Media
from gateway.artifacts import SHORT_LENGTH, ArtifactStore, BadLink, Links, OfConversation, OfSession, cut

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = b"o" * 32, b"n" * 32
MEDIA = Media(sha256="ab" * 32, mime_type="application/pdf", filename="Rechnung März.pdf", size=12)
HOLDER = OfConversation("agent/sms:+15550001111:+15550002222", "a1b2")


def links(*secret: bytes, now: datetime = NOW) -> Links:
    return Links(secret, now=lambda: now)


def test_a_link_stands_for_its_file_name_and_type_until_it_ends() -> None:
    token = links(NEW).sign(MEDIA, HOLDER, lives_seconds=60)

    assert links(NEW, now=NOW + timedelta(seconds=59)).read(token) == (MEDIA, HOLDER)
    with pytest.raises(BadLink) as caught:
        links(NEW, now=NOW + timedelta(seconds=60)).read(token)
    assert isinstance(caught.value, AskfirstError)


def test_a_link_is_one_path_segment_of_plain_characters() -> None:
    token = links(NEW).sign(MEDIA, HOLDER, lives_seconds=60)
    assert all(c.isascii() and (c.isalnum() or c in "-_.") for c in token)


@pytest.mark.parametrize("holder", [HOLDER, OfConversation("agent/telegram:1:2"), OfSession("s" * 22)])
def test_link_returns_its_holder_and_hides_its_contents(holder: OfConversation | OfSession) -> None:
    token = links(NEW).sign(MEDIA, holder, lives_seconds=60)

    assert links(NEW).read(token) == (MEDIA, holder)
    seen = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    for hidden in ("Rechnung", "pdf", "+1555", "agent", "s" * 22):
        assert hidden.encode() not in seen
    assert bytes.fromhex(MEDIA.sha256) not in seen and MEDIA.sha256.encode() not in seen


def test_two_links_to_one_file_have_almost_no_bytes_in_common() -> None:
    one, other = (links(NEW).sign(MEDIA, HOLDER, lives_seconds=seconds) for seconds in (60, 61))
    assert sum(a == b for a, b in zip(one, other, strict=True)) < len(one) / 8


def test_every_flipped_bit_is_refused() -> None:
    ours = links(NEW)
    token = ours.sign(MEDIA, HOLDER, lives_seconds=60).encode()
    for position in range(len(token) * 8):
        flipped = bytearray(token)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(BadLink):
            ours.read(flipped.decode("latin-1"))


def test_the_first_key_signs_and_all_of_them_verify() -> None:
    before = links(OLD).sign(MEDIA, HOLDER, lives_seconds=60)
    after = links(NEW, OLD).sign(MEDIA, HOLDER, lives_seconds=60)

    assert links(NEW, OLD).read(before) == (MEDIA, HOLDER)
    assert links(NEW).read(after) == (MEDIA, HOLDER)
    with pytest.raises(BadLink):
        links(NEW).read(before)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_refused_in_the_same_words(text: str) -> None:
    with pytest.raises(BadLink, match=r"^not a link of ours, or it has ended$"):
        links(NEW).read(text)


@pytest.mark.parametrize("secret", [(), (b"",), (NEW, b"")])
def test_links_need_a_key(secret: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match="key"):
        links(*secret)


def test_the_store_resolves_its_own_links(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path, [NEW], public_url=None, now=lambda: NOW)
    link = store.path(MEDIA, HOLDER, lives_seconds=60)

    assert store.resolve(link.removeprefix("artifacts/")) == (tmp_path / MEDIA.sha256, MEDIA, HOLDER)


def test_a_cut_token_needs_its_own_rest() -> None:
    ours = links(NEW)
    (one, rest), (other, others) = (cut(ours.sign(MEDIA, HOLDER, lives_seconds=seconds)) for seconds in (60, 61))

    assert len(one) == len(other) == SHORT_LENGTH
    assert ours.read(one + rest) == ours.read(other + others) == (MEDIA, HOLDER)
    for token in (one, rest, one + others, other + rest, one + rest[:-1]):
        with pytest.raises(BadLink):
            ours.read(token)
