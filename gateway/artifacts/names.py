"""File names and types, safe to show, to send and to write into a header."""

from __future__ import annotations

import mimetypes
import re
import unicodedata
from typing import Final

from gateway.artifacts.pictures import HEAD_BYTES, PICTURE_TYPES, picture_type

_MAX_CHARACTERS = 100
_MAX_EXTENSION = 10
_LONGEST = 1_000
"""The most characters of a name to read, counted from the end."""
_FORBIDDEN = re.compile(r'[<>:"|?*]')
_BYTES = "application/octet-stream"
_OFFICE_GUESS = "application/vnd.openxmlformats-officedocument."
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def clean_filename(name: str | None, mime_type: str) -> str:
    """Return a plain file name, never empty.

    The name has no folders, no control or direction characters, and no characters refused by a file system. The name is
    only shown and offered for a download: on disk, a file is named by hash.
    """
    # Normalize first, because full-width dots and slashes become ASCII ones only here.
    text = unicodedata.normalize("NFKC", (name or "")[-_LONGEST:]).replace("\\", "/").rsplit("/", 1)[-1]
    text = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
    text = " ".join(_FORBIDDEN.sub("_", text).split()).strip(". ")
    if _RESERVED.fullmatch(text):
        text = f"_{text}"
    stem, dot, extension = text.rpartition(".")
    if not dot or not 0 < len(extension) <= _MAX_EXTENSION:
        stem, extension = text, (mimetypes.guess_extension(mime_type) or "").removeprefix(".")
    end = f".{extension}" if extension else ""
    return (stem[: _MAX_CHARACTERS - len(end)].rstrip(". ") or "file") + end


def sniff_type(content: bytes, filename: str | None) -> str:
    """Return the MIME type of the bytes, or else of the file name.

    Without either, the result is ``text/plain`` for UTF-8 and ``application/octet-stream`` for other bytes. No name
    makes a PNG, JPEG, GIF or WebP picture, and neither do bytes with only the beginning of a picture.
    """
    if (known := picture_type(content[:HEAD_BYTES]) or audio_type(content)) is not None:
        return known
    found = _signature_type(content, filename)
    if found.startswith(_OFFICE_GUESS):
        return zip_type(content)  # the library takes each archive without a name for a document of Word
    if found in PICTURE_TYPES:
        return _BYTES
    if found:
        return found
    guessed, encoding = mimetypes.guess_type(filename or "")
    if guessed and not encoding and guessed not in PICTURE_TYPES:
        return guessed
    try:
        content.decode()
    except UnicodeDecodeError:
        return _BYTES
    return _BYTES if b"\0" in content else "text/plain"


def _signature_type(content: bytes, filename: str | None) -> str:
    """Return the MIME type by the signature of the bytes; an empty text without a known signature."""
    import puremagic  # its table of signatures is large, and many bots emit no file

    try:
        return puremagic.from_string(content, mime=True, filename=filename)
    except (puremagic.PureError, ValueError):
        return ""


_OGG_AUDIO: Final = (b"OpusHead", b"\x01vorbis", b"Speex   ", b"\x7fFLAC")
"""The first bytes of the first packet: https://www.rfc-editor.org/rfc/rfc7845 (Opus)."""
_MP4_AUDIO: Final = (b"M4A ", b"M4B ")
"""The brands of files without video: https://mp4ra.org/registered-types/brands."""

_DECLARED: Final = re.compile(rb"application/(?:vnd\.oasis\.opendocument\.[a-z-]{1,40}|epub\+zip)")
"""OpenDocument and EPUB have the type as the first entry, stored plainly:
https://www.w3.org/TR/epub-33/#sec-zip-container-mime."""
_OFFICE: Final = {
    b"word/": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    b"xl/": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    b"ppt/": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
"""Folders of Office Open XML: ECMA-376, part 2."""


def audio_type(content: bytes) -> str | None:
    """Return the MIME type of an Ogg or MP4 file with sound alone; None for other bytes."""
    if content[:4] == b"OggS" and len(content) > 26:
        packet = 27 + content[26]
        return "audio/ogg" if content.startswith(_OGG_AUDIO, packet) else None
    return "audio/mp4" if content[4:8] == b"ftyp" and content.startswith(_MP4_AUDIO, 8) else None


def zip_type(content: bytes) -> str:
    """Return the MIME type of a ZIP archive by the names of the entries. Names are never compressed."""
    if content[30:38] == b"mimetype" and (declared := _DECLARED.match(content, 38)) is not None:
        return declared.group().decode()
    if b"[Content_Types].xml" in content:
        return next((mime_type for folder, mime_type in _OFFICE.items() if folder in content), "application/zip")
    return "application/zip"
