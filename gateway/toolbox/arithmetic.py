"""The tool `calculator`: arithmetic on decimal numbers, without Python's eval."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, DecimalException, localcontext
from typing import Final

from gateway.tools import Tool, ToolFailed

_MOST_CHARACTERS: Final = 500
_DIGITS: Final = 40
_LARGEST_EXPONENT: Final = 1000
"""The largest exponent of a power: with numbers of 40 digits, the result then takes a millisecond at most."""

_LARGEST: Final = 9_999
"""The largest exponent of ten. A conversion of a larger number to an integer could take minutes."""

_TWO: Final[Mapping[type[ast.operator], Callable[[Decimal, Decimal], Decimal]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ONE: Final[Mapping[type[ast.unaryop], Callable[[Decimal], Decimal]]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: Final[Mapping[str, Callable[..., Decimal]]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "round": lambda number, places=Decimal(0): _rounded(number, places),
    "sqrt": lambda number: number.sqrt(),
}


def calculator() -> Tool:
    """Return a tool that calculates with decimal numbers of 40 digits."""

    async def calculator(expression: str) -> str:
        """Calculate with decimal numbers.

        Args:
            expression: Numbers with + - * / // % ** and brackets, and abs, min, max, round(x, places), sqrt.
        """
        try:
            return calculate(expression)
        except ValueError as error:
            raise ToolFailed(str(error)) from None

    return Tool(calculator, read_only=True, cacheable=True)


def calculate(expression: str) -> str:
    """Return the value of an expression. Raises ValueError with its fault."""
    if len(expression) > _MOST_CHARACTERS:
        raise ValueError(f"the expression has {len(expression)} characters: at most {_MOST_CHARACTERS}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(source := expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError("this is no expression: write numbers with + - * / // % ** and brackets") from None
    try:
        with localcontext(Context(prec=_DIGITS, Emax=_LARGEST, Emin=-_LARGEST)):
            value = _value(tree.body, source).normalize()
    except (DecimalException, ArithmeticError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError(f"it cannot be calculated: {type(error).__name__}") from None
    if not value.is_finite():
        raise ValueError("the result is no number")
    text = f"{value:f}" if -_DIGITS < value.adjusted() < _DIGITS else str(value)
    return "0" if text == "-0" else text


def _rounded(number: Decimal, places: Decimal) -> Decimal:
    if abs(places) > _DIGITS:
        raise ValueError(f"round has at most {_DIGITS} places")
    return round(number, int(places)) + Decimal(0)


def _value(node: ast.expr, source: str) -> Decimal:
    match node:
        case ast.Constant(value=float()):  # as written: a float has 17 digits
            return +Decimal(ast.get_source_segment(source, node) or "")  # the plus applies the context's bounds
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            if abs(number) >= 10**_DIGITS:
                raise ValueError(f"a number has at most {_DIGITS} digits")
            return Decimal(number)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _ONE:
            return _ONE[type(op)](_value(operand, source))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, exponent = _value(left, source), _value(right, source)
            if abs(exponent) > _LARGEST_EXPONENT:
                raise ValueError(f"an exponent is at most {_LARGEST_EXPONENT}")
            return Decimal(base**exponent)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _TWO:
            return _TWO[type(op)](_value(left, source), _value(right, source))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return Decimal(_FUNCTIONS[name](*[_value(arg, source) for arg in args]))
    raise ValueError("only numbers, + - * / // % **, brackets, abs, min, max, round and sqrt are known")
