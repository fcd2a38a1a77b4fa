"""The type and the size of a picture by its first bytes. No data is decompressed, and no name is trusted."""

from __future__ import annotations

import re
import struct
from typing import Final

HEAD_BYTES: Final = 2**20
"""The most bytes to read at the beginning of a file. A JPEG may hold previews and profiles before its size."""
PICTURE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
# https://www.w3.org/TR/png, https://www.w3.org/Graphics/GIF/spec-gif89a.txt, ITU-T T.81 (JPEG),
# https://developers.google.com/speed/webp/docs/riff_container
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH: Final = frozenset({0x01, *range(0xD0, 0xD9)})
_ENDS: Final = frozenset({0xD9, 0xDA})
"""The end and the pixels of a JPEG. The frame comes before both."""
_MARKER: Final = re.compile(rb"\xff([\x01-\xfe])")
"""Fill bytes may stand before a marker (ITU-T T.81, B.1.1.2), and libjpeg skips all other bytes too."""
_MOST_STEPS: Final = 4_000
"""The most segments of a picture to read. A photo has some dozens, and hundreds with large metadata."""


def picture_type(head: bytes) -> str | None:
    """Return the MIME type of a picture by its first bytes; None for bytes other than PNG, JPEG, GIF or WebP.

    Also None for a picture without a size in the first bytes: the cost of showing the picture would be unknown.
    """
    return _signed_type(head) if picture_size(head) is not None else None


def picture_size(head: bytes) -> tuple[int, int] | None:
    """Return the width and the height of a picture; None without both in the first bytes."""
    try:
        size = _size(head)
    except (struct.error, IndexError):
        return None
    return size if size is not None and min(size) > 0 else None


def _signed_type(head: bytes) -> str | None:
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime_type for signature, mime_type in _SIGNATURES if head.startswith(signature)), None)


def _size(head: bytes) -> tuple[int, int] | None:
    match _signed_type(head):
        case "image/png" if head[12:16] == b"IHDR":
            return struct.unpack(">II", head[16:24])
        case "image/gif":
            return _gif_size(head)
        case "image/jpeg":
            return _jpeg_size(head)
        case "image/webp":
            return _webp_size(head)
    return None


def _gif_size(head: bytes) -> tuple[int, int] | None:
    """Return the size of the screen with the first frame. A decoder makes the screen larger for a larger frame."""
    width, height, flags = struct.unpack("<HHB", head[6:11])
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    is_data = False
    for _ in range(_MOST_STEPS):
        if is_data:
            is_data = head[at] > 0
            at += 1 + head[at]
        elif head[at] == 0x2C:
            left, top, across, down = struct.unpack("<HHHH", head[at + 1 : at + 9])
            return max(width, left + across), max(height, top + down)
        elif head[at] != 0x21 or head[at + 2] == 0:
            return None  # decoders do not agree on an extension without data
        else:
            is_data, at = True, at + 2
    return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    at = 2
    for _ in range(_MOST_STEPS):
        if (found := _MARKER.search(head, at)) is None or (marker := found[1][0]) in _ENDS:
            return None
        at = found.end()
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack(">HH", head[at + 3 : at + 7])
            return width, height
        at += 0 if marker in _WITHOUT_LENGTH else struct.unpack(">H", head[at : at + 2])[0]
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8L":
        bits = struct.unpack("<I", head[21:25])[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if len(head) < 30:
        return None
    if kind == b"VP8X":
        width, height = (int.from_bytes(head[start : start + 3], "little") for start in (24, 27))
        return width + 1, height + 1
    width, height = struct.unpack("<HH", head[26:30])
    return (width & 0x3FFF, height & 0x3FFF) if kind == b"VP8 " else None
