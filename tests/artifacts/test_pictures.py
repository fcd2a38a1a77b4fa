"""The type and size of a picture by the first bytes, under any name."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.artifacts.names import sniff_type
from gateway.artifacts.pictures import HEAD_BYTES, PICTURE_TYPES, picture_size, picture_type


def png(width: int, height: int) -> bytes:
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


PICTURES = {
    "png": png(640, 480),
    "gif": b"GIF89a" + struct.pack("<HHBBB", 640, 480, 0x80, 0, 0) + bytes(6)
    # the first frame, behind an extension and a comment with a comma
    + b"!\xf9\x04\0\0\0\0\0" + b"!\xfe\x02,,\0" + b"," + struct.pack("<HHHH", 0, 0, 640, 480) + b"\0",
    "jpeg": b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + bytes(9)
    # the frame, behind a segment with a false frame inside
    + b"\xff\xe1" + struct.pack(">H", 10) + b"\xff\xc0" + bytes(6)
    + b"\xff\xc2" + struct.pack(">HBHH", 17, 8, 480, 640) + bytes(10),
    "webp, lossy": b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 640, 480),
    "webp, lossless": b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f" + struct.pack("<I", 639 | 479 << 14),
    "webp, extended": b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little"),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_the_size_of_its_header(name: str) -> None:
    picture = PICTURES[name]
    assert picture_type(picture) == f"image/{name.partition(',')[0]}"
    assert picture_size(picture) == (640, 480)


@pytest.mark.parametrize("name", PICTURES)
def test_no_beginning_of_a_picture_raises(name: str) -> None:
    for end in range(len(PICTURES[name])):
        assert picture_size(PICTURES[name][:end]) in (None, (640, 480))


@pytest.mark.parametrize(
    "head", [b"%PDF-1.7", b"PK\x03\x04 photo.jpg", b"<svg onload=alert(1)>", b"<!doctype html>", b""]
)
def test_other_files_are_no_pictures(head: bytes) -> None:
    assert picture_type(head) is None
    assert picture_size(head) is None


def frame(width: int, height: int) -> bytes:
    return b"\xff\xc0" + struct.pack(">HBHH", 17, 8, height, width) + bytes(10)


SEGMENT = b"\xff\xe1" + struct.pack(">H", 65_535) + bytes(65_533)
EMPTY_GIF = b"GIF89a" + struct.pack("<HHBBB", 10, 10, 0, 0, 0)


@pytest.mark.parametrize(
    "head",
    [
        b"\xff\xd8" + SEGMENT * 3 + frame(50_000, 40_000),
        b"\xff\xd8\xff\xff\xff" + frame(50_000, 40_000),
        b"\xff\xd8" + SEGMENT + b"stray bytes, \xff\0" + frame(50_000, 40_000),
        b"\xff\xd8\xff\xd0\xff\x01" + frame(50_000, 40_000),
        EMPTY_GIF + b"," + struct.pack("<HHHH", 1_000, 2_000, 49_000, 38_000) + b"\0",
    ],
    ids=["padded", "filled", "stray bytes", "markers alone", "a frame larger than its screen"],
)
def test_a_size_cannot_be_hidden(head: bytes) -> None:
    assert picture_size(head) == (50_000, 40_000)
    assert picture_type(head) is not None


@pytest.mark.parametrize(
    "head",
    [
        b"\xff\xd8\xff",
        b"\xff\xd8" + SEGMENT * 17 + frame(640, 480),
        b"\xff\xd8\xff\xda\0\x02" + frame(640, 480),
        b"\xff\xd8\xff\xd9" + frame(640, 480),
        b"\xff\xd8" + b"\xff\xe1\0\2" * 200_000 + frame(640, 480),
        b"\x89PNG\r\n\x1a\n" + bytes(30),
        png(0, 480),
        EMPTY_GIF + b";",
        EMPTY_GIF + b"!\xf9\0," + struct.pack("<HHHH", 0, 0, 10, 10),
        EMPTY_GIF + b"!\xfe" + b"\x01," * 9_000 + b"\0," + struct.pack("<HHHH", 0, 0, 10, 10),
        b"RIFF\0\0\0\0WEBPVP8?" + bytes(40),
    ],
)
def test_a_picture_that_hides_its_size_is_none(head: bytes) -> None:
    assert picture_size(head[:HEAD_BYTES]) is None
    assert picture_type(head[:HEAD_BYTES]) is None
    assert sniff_type(head, "photo.jpg") not in PICTURE_TYPES


@given(st.sampled_from([*PICTURES.values()]), st.binary(max_size=80))
def test_any_bytes_are_looked_at_without_an_error(picture: bytes, rest: bytes) -> None:
    picture_size(picture[:12] + rest)
    picture_size(b"\xff\xd8\xff" + rest)
    picture_size(EMPTY_GIF + rest)
