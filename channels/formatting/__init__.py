"""Formatting: Markdown parsed once into text and spans, split at a limit, written in a platform's dialect."""

from channels.formatting.markdown import MAX_MARKDOWN, finished, is_quick, read_markdown
from channels.formatting.plain import GSM, drop_dear_accents, fold_quotes, fold_to_gsm, label, to_plain, to_whatsapp
from channels.formatting.styled import TIME_SCHEME, Span, SpanKind, Styled, split, time_link, time_of, with_times

__all__ = [
    "GSM",
    "MAX_MARKDOWN",
    "TIME_SCHEME",
    "Span",
    "SpanKind",
    "Styled",
    "drop_dear_accents",
    "finished",
    "fold_quotes",
    "fold_to_gsm",
    "is_quick",
    "label",
    "read_markdown",
    "split",
    "time_link",
    "time_of",
    "to_plain",
    "to_whatsapp",
    "with_times",
]
