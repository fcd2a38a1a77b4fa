"""What the vendors refuse of a file in base64.

https://platform.claude.com/docs/en/build-with-claude/vision and https://platform.openai.com/docs/guides/images-vision.
Anthropic's words for a wrong type: https://github.com/anthropics/claude-code/issues/10438.
"""

from __future__ import annotations

import base64
import binascii

__all__ = ["fault_of_data", "fault_of_url"]

_BEGINS = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
    "application/pdf": (b"%PDF-",),
}
_LARGEST_IMAGE = 5 * 1024**2


def fault_of_data(mime_type: object, data: object) -> str | None:
    """Why a file is refused; None when it is taken."""
    if not isinstance(mime_type, str) or mime_type not in _BEGINS:
        return "Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
    try:
        content = base64.b64decode(str(data), validate=True)
    except binascii.Error:
        return "invalid base64 data"
    if not content.startswith(_BEGINS[mime_type]):
        return f"The image was specified using the {mime_type} media type, but the image appears to be another type"
    if mime_type != "application/pdf" and len(content) > _LARGEST_IMAGE:
        return f"image exceeds 5 MB maximum: {len(content)} bytes"
    return None


def fault_of_url(url: object) -> str | None:
    """The same for a file in a data URL."""
    head, _, data = str(url).partition(";base64,")
    return fault_of_data(head.removeprefix("data:"), data) if head.startswith("data:") else "Invalid image_url."
