"""Code and formulas in a bot's Markdown: made by the server, within bounds, and never as HTML of a model."""

from __future__ import annotations

import re
import time
from html import escape

import pytest
from pygments.lexers import get_lexer_by_name

from gateway.web.code_colors import LANGUAGES, Colors
from gateway.web.markdown import to_html
from tests.nasty import NASTY, nasty

MATH = '<math display="inline"><mrow>{}</mrow></math>'
X = MATH.format("<mi>x</mi>")


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("$x$", X),
        ("for all $x$, and $x$.", f"for all {X}, and {X}."),
        ("**$x$**", f"<strong>{X}</strong>"),
        ("$a_1$ or $b_1$", " or ".join(MATH.format(f"<msub><mi>{each}</mi><mn>1</mn></msub>") for each in "ab")),
        ("$$x$$", X.replace("inline", "block")),
        ("`$x$`", "<code>$x$</code>"),
        (r"\$x\$", "$x$"),
        ("It costs $5 and $6.", "It costs $5 and $6."),
        ("$20/month, $30/year", "$20/month, $30/year"),
        ("a $5, or 10€/$ b", "a $5, or 10€/$ b"),
        ("US$5 and A$6, $HOME/$USER, $5-$6, $", "US$5 and A$6, $HOME/$USER, $5-$6, $"),
        (
            r"$\text{<img src=x onerror=alert(1)>}$",
            MATH.format("<mtext>&lt;img\u00a0src=x\u00a0onerror=alert(1)&gt;</mtext>"),
        ),
        (r"$\text{&lt;b&gt;}$", MATH.format("<mtext>&lt;b&gt;</mtext>")),
        (r"$\href{javascript:alert(1)}{x}$", MATH.format("<mrow><mrow><mi>x</mi></mrow></mrow>")),
        (r"$\color{red}{x}$", MATH.format("<mstyle><mrow><mi>x</mi></mrow></mstyle>")),
        (r"$\frac{$", r"<code>$\frac{$</code>"),
        (r"$\def\a{b}\a$", r"<code>$\def\a{b}\a$</code>"),
        (r"$\newcommand{\a}{b}\a$", r"<code>$\newcommand{\a}{b}\a$</code>"),
        (f"${'x' * 1_001}$", f"${'x' * 1_001}$"),
    ],
)
def test_a_formula_is_drawn_and_money_is_not(text: str, html: str) -> None:
    assert to_html(text) == f"<p>{html}</p>\n"


def test_lines_of_a_formula_are_no_list() -> None:
    assert to_html("so\n$$\na\n= b\n- c\n$$\nthen").count("<math") == 1
    assert to_html("- a\n\n  $$x$$\n\n> $$x$$\n").count('display="block"') == 2
    assert "<math" not in to_html("$$\n\n$$") + to_html("$$ no end\n\n" * 3)


def test_only_so_many_formulas_of_a_text_are_drawn() -> None:
    html = to_html(f"${'x' * 490}$\n\n" * 6)
    assert (html.count("<math"), html.count("<code>$xxx")) == (4, 2)
    assert to_html("$x$ " * 300).count("<math") == 181


def test_no_value_of_a_question_becomes_a_formula() -> None:
    assert to_html("Pay $x$ and $y_1$?", links=False) == "<p>Pay $x$ and $y_1$?</p>\n"


def test_code_gets_classes_and_stays_text() -> None:
    html = to_html("```py\ndef f(x):  # <b>\n    return '</code>'\n```")
    assert html == (
        '<pre><code><span class="k">def</span> <span class="f">f</span>(x):  <span class="c"># &lt;b&gt;</span>\n'
        '    <span class="k">return</span> <span class="s">&#x27;&lt;/code&gt;&#x27;</span>\n</code></pre>\n'
    )
    assert to_html("```\na < b\n```") == to_html("```nolang a\na < b\n```") == "<pre><code>a &lt; b\n</code></pre>\n"
    assert to_html('```"><script>\na\n```') == "<pre><code>a\n</code></pre>\n"
    assert "<span" not in to_html(f"```python\n{'x = 1  # a' * 700}\n```")


@pytest.mark.parametrize("name", sorted(LANGUAGES))
def test_coloured_code_is_the_code_and_takes_no_time(name: str) -> None:
    """Each lexer has a name, drops no character, and is stopped in time; the rest has no colours."""
    get_lexer_by_name(name)
    for unit in ("a", *NASTY[:: len(LANGUAGES)], "\n", "a\n", '"\\', "<script>", "&"):
        code = nasty(unit, 6_000)
        began = time.process_time()
        html = Colors().html(code, name)
        assert time.process_time() - began < 0.1 or unit == "a", unit
        assert re.sub("</?span[^>]*>", "", html) == escape(code), unit


def test_the_languages_of_a_text_share_the_time() -> None:
    began = time.process_time()
    to_html("".join(f"```c\n{nasty(chr(10), 500)}a\n```\n" for _ in range(3)))
    assert time.process_time() - began < 0.1
