"""Formulas of a bot's Markdown: ``$...$`` in a line and ``$$...$$`` alone, as MathML.

A formula is a text of the model. Elements and attributes outside of two lists of MathML are left out, and each text is
escaped: a formula cannot bring HTML. A dollar of money begins no formula.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape, unescape
from typing import Final
from xml.etree.ElementTree import Element

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

_LONGEST: Final = 1_000
"""Characters of a formula. The longest takes up to 17 milliseconds."""
_MOST_CHARACTERS: Final = 2_000
"""Characters of all formulas of a text. Further formulas are shown as written."""
_MORE_CHARACTERS: Final = 10
"""Characters counted for each formula in addition, because short formulas take time too."""
_DEEPEST: Final = 60
"""Levels of nested elements of a formula."""
_DEFINES: Final = re.compile(r"\\(?:def|let|newcommand|renewcommand|providecommand|newenvironment|DeclareMathOperator)")
"""Definitions in a formula are refused: a few can make a formula of any length."""
_SIGNS: Final = re.compile(r"[\\^_=+<>{}]")
_WORD: Final = re.compile(r"[^\W\d_]{2,}")

_ELEMENTS: Final = frozenset({
    "math", "menclose", "mfrac", "mi", "mmultiscripts", "mn", "mo", "mover", "mpadded", "mphantom", "mprescripts",
    "mroot", "mrow", "ms", "mspace", "msqrt", "mstyle", "msub", "msubsup", "msup", "mtable", "mtd", "mtext",
    "mtr", "munder", "munderover", "none",
})  # fmt: skip
_ATTRIBUTES: Final = frozenset({
    "accent", "accentunder", "columnalign", "columnlines", "columnspacing", "depth", "display", "displaystyle",
    "fence", "form", "height", "largeop", "linethickness", "lspace", "mathvariant", "maxsize", "minsize",
    "movablelimits", "notation", "rowlines", "rowspacing", "rspace", "scriptlevel", "separator", "stretchy",
    "symmetric", "voffset", "width",
})  # fmt: skip


def add_formulas(markdown: MarkdownIt) -> None:
    """Have a parser read formulas."""
    markdown.block.ruler.before("fence", "formula", _block, {"alt": ["paragraph", "blockquote", "list"]})
    markdown.inline.ruler.before("escape", "formula", _inline)
    markdown.add_render_rule("formula", _render)


def to_mathml(formula: str, *, block: bool) -> str | None:
    """Return a formula as MathML. None for a formula with a fault or a definition, and for a long one."""
    if len(formula) > _LONGEST or _DEFINES.search(formula):
        return None
    from latex2mathml.converter import Converter  # its tables take 70 milliseconds to read

    try:
        return _written(Converter(display="block" if block else "inline").convert_to_element(formula), _DEEPEST)
    except Exception:  # noqa: BLE001 - the library raises errors of any class for a formula with a fault
        return None


def _written(element: Element, levels: int) -> str:
    if element.tag not in _ELEMENTS or not levels:
        raise ValueError("an element that no formula needs")
    named = {name: value for name, value in element.attrib.items() if name in _ATTRIBUTES}
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in named.items())
    # The library writes some characters as references.
    inside = escape(unescape(element.text or "")) + "".join(_written(child, levels - 1) for child in element)
    return f"<{element.tag}{attributes}>{inside}</{element.tag}>"


def _render(renderer: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    token = tokens[index]
    formula, block = token.content, token.markup == "$$"
    written = f"{token.markup}{formula}{token.markup}"
    env["formulas"] = env.get("formulas", 0) + len(formula) + _MORE_CHARACTERS
    mathml = to_mathml(formula, block=block) if env["formulas"] <= _MOST_CHARACTERS else None
    shown = mathml if mathml is not None else f"<code>{escape(written)}</code>"
    if token.block:
        return f"<p>{shown}</p>\n"
    return shown


def _inline(state: StateInline, silent: bool) -> bool:
    """Read a formula in a line."""
    found = _formula_at(state.src, state.pos, state.posMax)
    if found is None:
        return False
    markup, formula = found
    if not silent:
        token = state.push("formula", "math", 0)
        token.markup, token.content = markup, formula
    state.pos += len(formula) + 2 * len(markup)
    return True


def _formula_at(text: str, begin: int, end: int) -> tuple[str, str] | None:
    """Return the mark and the formula at this place of a text, or None."""
    if text[begin] != "$":
        return None
    if text.startswith("$$", begin):
        close = text.find("$$", begin + 2, min(end, begin + _LONGEST + 4))
        formula = text[begin + 2 : max(close, 0)]
        return ("$$", formula) if close >= 0 and formula.strip() else None
    close = text.find("$", begin + 1, min(end, begin + _LONGEST + 2))
    formula = text[begin + 1 : max(close, 0)]
    before, after = text[begin - 1 : begin], text[close + 1 : close + 2]
    if close < 0 or before.isalnum() or after.isalnum() or "\n" in formula:
        return None
    return ("$", formula) if _is_formula(formula) else None


def _is_formula(text: str) -> bool:
    r"""Return False for the text between two prices: "5 and ", "5, or 6/".

    A formula has no blank at the begin and the end. A formula has a sign of formulas, or no word.
    """
    if not text or text != text.strip() or text.endswith("\\"):
        return False
    return bool(_SIGNS.search(text)) or not (" " in text and _WORD.search(text))


def _block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Read the lines of a formula, between two marks ``$$``."""
    begin = state.bMarks[first] + state.tShift[first]
    if state.is_code_block(first) or not state.src.startswith("$$", begin):
        return False
    line, end = first, begin
    while line < last:
        end = state.eMarks[line]
        if end - begin > _LONGEST + 4 or (line > first and state.sCount[line] < state.blkIndent):
            return False
        if end - begin > 4 and state.src[begin:end].rstrip().endswith("$$"):
            break
        line += 1
    formula = state.src[begin:end].rstrip()[2:-2] if line < last else ""
    if not formula.strip() or "$" in formula:
        return False
    if not silent:
        state.line = line + 1
        token = state.push("formula", "math", 0)
        token.block, token.markup, token.content = True, "$$", formula
        token.map = [first, state.line]
    return True
