"""The types of files by the bytes, under any name."""

from __future__ import annotations

import struct
import zipfile
from io import BytesIO

import pytest

from gateway.artifacts.names import sniff_type
from tests.artifacts.test_pictures import PICTURES, png


def archive(*names: str) -> bytes:
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as written:
        for name in names:
            text = "application/vnd.oasis.opendocument.text" if name == "mimetype" else name * 100
            written.writestr(name, text, zipfile.ZIP_STORED if name == "mimetype" else None)
    return content.getvalue()


def mp4(brand: bytes) -> bytes:
    return struct.pack(">I", 20) + b"ftyp" + brand + bytes(4) + brand + bytes(40)


def ogg(packet: bytes) -> bytes:
    return b"OggS\0\x02" + bytes(20) + b"\x01" + bytes([len(packet)]) + packet + bytes(40)


OFFICE = "application/vnd.openxmlformats-officedocument"
FILES = [
    (archive("a.txt"), "application/zip"),
    (archive("word/a.txt"), "application/zip"),
    (archive("[Content_Types].xml", "word/document.xml"), f"{OFFICE}.wordprocessingml.document"),
    (archive("[Content_Types].xml", "xl/workbook.xml"), f"{OFFICE}.spreadsheetml.sheet"),
    (archive("[Content_Types].xml", "ppt/presentation.xml"), f"{OFFICE}.presentationml.presentation"),
    (archive("mimetype", "content.xml"), "application/vnd.oasis.opendocument.text"),
    (ogg(b"OpusHead\x01\x01"), "audio/ogg"),
    (ogg(b"\x01vorbis"), "audio/ogg"),
    (mp4(b"M4A "), "audio/mp4"),
    (mp4(b"isom"), "video/mp4"),
    (b"%PDF-1.7\n" + archive("a.txt"), "application/pdf"),
    (b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "image/svg+xml"),
    (b"<!doctype html><script>alert(1)</script>", "text/html"),
    (b"\x7fELF\x02\x01\x01" + bytes(100), "application/octet-stream"),
    (b"\0\x01 no text", "application/octet-stream"),
    (png(8, 8), "image/png"),
]


@pytest.mark.parametrize("name", [None, "photo.jpg", "photo.png"])
@pytest.mark.parametrize(("content", "mime_type"), FILES)
def test_name_does_not_change_the_type_of_known_bytes(content: bytes, mime_type: str, name: str | None) -> None:
    assert sniff_type(content, name) == mime_type


@pytest.mark.parametrize("content", [*(content for content, _ in FILES), *PICTURES.values()])
def test_no_beginning_of_a_file_raises(content: bytes) -> None:
    for end in range(min(len(content), 200)):
        assert "/" in sniff_type(content[:end], None)


def test_name_gives_the_type_of_unknown_bytes() -> None:
    assert sniff_type(b"a,b\n1,2\n", "table.csv") == "text/csv"
