"""Markdown to what a platform can show: read once into text and spans, split at a limit, told in a dialect."""

from channels.formatting.gsm import fold_to_gsm
from channels.formatting.markdown import MAX_MARKDOWN, is_quick, read_markdown
from channels.formatting.plain import to_plain, to_whatsapp
from channels.formatting.styled import Span, SpanKind, Styled, split

__all__ = [
    "MAX_MARKDOWN",
    "Span",
    "SpanKind",
    "Styled",
    "fold_to_gsm",
    "is_quick",
    "read_markdown",
    "split",
    "to_plain",
    "to_whatsapp",
]
