"""The type of a container by the plain bytes of its first entries. Nothing is unpacked."""

from __future__ import annotations

import re
from typing import Final

_OGG_AUDIO: Final = (b"OpusHead", b"\x01vorbis", b"Speex   ", b"\x7fFLAC")
"""The first bytes of the first packet: https://www.rfc-editor.org/rfc/rfc7845 (Opus)."""
_MP4_AUDIO: Final = (b"M4A ", b"M4B ")
"""The brands of files without video: https://mp4ra.org/registered-types/brands."""

_DECLARED: Final = re.compile(rb"application/(?:vnd\.oasis\.opendocument\.[a-z-]{1,40}|epub\+zip)")
"""OpenDocument and EPUB have their type as the first entry, stored plainly: https://www.w3.org/TR/epub-33/#sec-zip-container-mime."""
_OFFICE: Final = {
    b"word/": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    b"xl/": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    b"ppt/": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
"""Folders of Office Open XML: ECMA-376, part 2."""


def audio_type(content: bytes) -> str | None:
    """Return the MIME type of an Ogg or MP4 file that holds sound alone; None for other bytes."""
    if content[:4] == b"OggS" and len(content) > 26:
        packet = 27 + content[26]
        return "audio/ogg" if content.startswith(_OGG_AUDIO, packet) else None
    return "audio/mp4" if content[4:8] == b"ftyp" and content.startswith(_MP4_AUDIO, 8) else None


def zip_type(content: bytes) -> str:
    """Return the MIME type of a ZIP archive by the names of its entries, which are never compressed."""
    if content[30:38] == b"mimetype" and (declared := _DECLARED.match(content, 38)) is not None:
        return declared.group().decode()
    if b"[Content_Types].xml" in content:
        return next((mime_type for folder, mime_type in _OFFICE.items() if folder in content), "application/zip")
    return "application/zip"
