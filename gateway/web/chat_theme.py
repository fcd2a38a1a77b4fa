"""The looks of the chat page by setting: title, logo and colour.

A site's colour was chosen for the site's own paper. The page keeps the colour readable: text on the colour is black or
white, and as a text the colour becomes darker or lighter until the contrast is 4.5 (WCAG 2.2, 1.4.3).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from gateway.config.settings import Settings
from gateway.config.values import LOGOS

Rgb: TypeAlias = tuple[int, int, int]

_CONTRAST: Final = 4.5
_WHITE: Final = (255, 255, 255)
_BLACK: Final = (0, 0, 0)
_PAPER: Final = (0xF1, 0xF0, 0xEB)
"""The darkest surface of the light page, `--code` of chat.css."""
_NIGHT: Final = (0x2A, 0x2C, 0x28)
"""The lightest surface of the dark page."""
_OWN: Final = "#1f5f4f"
"""The colour of chat.css."""
_STEPS: Final = 50


@dataclass(frozen=True, slots=True)
class Theme:
    """The looks of a page. Without any value the page has its own."""

    title: str | None = None
    logo: tuple[bytes, str] | None = None
    """The bytes and the type of a picture served by the page."""
    logo_url: str | None = None
    """The https URL of a picture of another host."""
    colour: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> Theme:
        """Return the theme of the settings. Reads the file of the logo."""
        title, logo, colour = settings.chat_title, settings.chat_logo, settings.chat_color
        if logo is None or logo.startswith("https://"):
            return cls(title, None, logo, colour)
        path = Path(logo)
        return cls(title, (path.read_bytes(), LOGOS[path.suffix.lower()]), None, colour)

    @property
    def source(self) -> str | None:
        """The address of the logo for the page. None: the page's own mark."""
        return "chat/logo" if self.logo is not None else self.logo_url

    @property
    def fill(self) -> str:
        """The colour behind the button of an embedded page."""
        return _hex(_rgb(self.colour or _OWN))

    @property
    def on_fill(self) -> str:
        return _hex(_on(_rgb(self.colour or _OWN)))

    @property
    def css(self) -> str:
        """The style sheet of the colour, for the light and the dark page. Empty without a colour."""
        if self.colour is None:
            return ""
        light, dark = (
            _readable(_rgb(self.colour), on, towards) for on, towards in ((_PAPER, _BLACK), (_NIGHT, _WHITE))
        )
        return (
            f":root {{ {_variables(light)} --mine: color-mix(in srgb, {_hex(light)} 12%, #ffffff); }}\n"
            "@media (prefers-color-scheme: dark) {\n"
            f"  :root {{ {_variables(dark)} --mine: color-mix(in srgb, {_hex(dark)} 22%, #1b1c1a); }}\n"
            "}\n"
        )


def _variables(colour: Rgb) -> str:
    return f"--accent: {_hex(colour)}; --accent-text: {_hex(_on(colour))};"


def _on(colour: Rgb) -> Rgb:
    """Return black or white, whichever reads better on a colour: one of both has a contrast of 4.58 at least."""
    return max(_WHITE, _BLACK, key=lambda text: contrast(text, colour))


def _readable(colour: Rgb, on: Rgb, towards: Rgb) -> Rgb:
    """Return the nearest colour on the way to black or white that reads on a surface."""
    for step in range(_STEPS + 1):
        red, green, blue = (round(own + (end - own) * step / _STEPS) for own, end in zip(colour, towards, strict=True))
        if contrast((red, green, blue), on) >= _CONTRAST:
            return red, green, blue
    return towards


def contrast(one: Rgb, other: Rgb) -> float:
    """Return the contrast of two colours, 1 to 21 (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""
    darker, lighter = sorted(map(_luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Rgb) -> float:
    parts = [each / 255 for each in colour]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _rgb(colour: str) -> Rgb:
    digits = colour.removeprefix("#")
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    red, green, blue = (int(pair, 16) for pair in re.findall("..", digits))
    return red, green, blue


def _hex(colour: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
