"""Markdown to what a platform can show: read once into text and spans, split at a limit, told in a dialect."""

from channels.formatting.markdown import MAX_MARKDOWN, is_quick, read_markdown
from channels.formatting.plain import to_plain
from channels.formatting.styled import Span, SpanKind, Styled, split

__all__ = ["MAX_MARKDOWN", "Span", "SpanKind", "Styled", "is_quick", "read_markdown", "split", "to_plain"]
