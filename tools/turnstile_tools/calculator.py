"""Arithmetic from text, in bounded time and memory, without `eval`.

Three fences, each enough for what it guards. The text is short. Its syntax tree, walked before anything is computed,
holds only numbers, operators, and calls of known functions, and is shallow. Every operator and function refuses an
operand or result beyond `MAX_DIGITS`, so that a tower of powers stops at its first floor. `simpleeval` does the rest.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator

from turnstile import tool
from turnstile_tools.matching import nearest

MAX_LENGTH = 200  # characters; a long sum by hand is about 60
MAX_DEPTH = 40  # nested parts; a chain of 30 additions is 30 deep
MAX_DIGITS = 1000  # of any whole number on the way; the largest float has 309
MAX_FACTORIAL = 400  # 400! has 869 digits

Number = int | float

_EXACT = 2**53  # below it every whole float is the number it shows

# Full-width forms and the signs people use. Not NFKC, which would read 5² as 52.
_SPELLINGS = {code: code - 0xFF01 + ord("!") for code in range(0xFF01, 0xFF5F)} | str.maketrans("×·÷−–", "**/--")
# Python's parser accepts "1or 2" and odd escapes in strings with a warning on stderr: neither is arithmetic.
_WARNED_OF = re.compile(r"""\d[a-zA-Z]{2}|["'\\]""")
_HUGE = 10**MAX_DIGITS
_TOO_LARGE = f"a number is too large: expected at most {MAX_DIGITS} digits, and what a float can hold"


def _bounded(compute: Callable[..., Number]) -> Callable[..., Number]:
    """The same operation, refusing results that are no finite real number of bearable size."""

    def run(*operands: Number) -> Number:
        try:
            return _checked(compute(*operands))
        except OverflowError:  # Python words it in many ways, "(34, 'Numerical result out of range')" among them
            raise OverflowError(_TOO_LARGE) from None

    return run


def _checked(value: object) -> Number:
    if not isinstance(value, int | float):
        raise TypeError("the result is not a real number")
    if abs(value) >= _HUGE if isinstance(value, int) else not math.isfinite(value):
        raise OverflowError(_TOO_LARGE)
    return value


def _power(base: Number, exponent: Number) -> Number:
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and abs(base) > 1 and exponent * math.log10(abs(base)) >= MAX_DIGITS:  # judged before it is computed
        raise OverflowError(_TOO_LARGE)
    return base**exponent


def _factorial(number: Number) -> int:
    if not isinstance(number, int) or not 0 <= number <= MAX_FACTORIAL:
        raise ValueError(f"factorial expects a whole number from 0 to {MAX_FACTORIAL}, got {number!r}")
    return math.factorial(number)


def _round(number: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > MAX_DIGITS:
        raise ValueError(f"round expects at most {MAX_DIGITS} digits, got {digits!r}")
    return round(number, digits) if digits else round(number)


_OPERATORS: dict[type[ast.operator | ast.unaryop], Callable[..., Number]] = {
    ast.Add: _bounded(operator.add),
    ast.Sub: _bounded(operator.sub),
    ast.Mult: _bounded(operator.mul),
    ast.Div: _bounded(operator.truediv),
    ast.FloorDiv: _bounded(operator.floordiv),
    ast.Mod: _bounded(operator.mod),
    ast.Pow: _bounded(_power),
    ast.USub: _bounded(operator.neg),
    ast.UAdd: _bounded(operator.pos),
}
_ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Constant, ast.Name, ast.Load)
_CONSTANTS: dict[str, Number] = {"pi": math.pi, "e": math.e, "tau": math.tau}
_PLAIN_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "abs": abs, "round": _round, "min": min, "max": max, "sqrt": math.sqrt, "floor": math.floor, "ceil": math.ceil,
    "exp": math.exp, "log": math.log, "ln": math.log, "log2": math.log2, "log10": math.log10, "sin": math.sin,
    "cos": math.cos, "tan": math.tan, "asin": math.asin, "acos": math.acos, "atan": math.atan,
    "degrees": math.degrees, "radians": math.radians, "factorial": _factorial,
}  # fmt: skip
FUNCTIONS = {name: _bounded(function) for name, function in _PLAIN_FUNCTIONS.items()}


@tool(access="read", timeout=5)
def calculate(expression: str) -> str:
    """Compute an arithmetic expression.

    Whole numbers are exact. Knows + - * / // % ** and brackets; pi, e and tau; abs, round, min, max, sqrt, floor, ceil,
    exp, log (natural, or with a base), ln, log2, log10, sin, cos, tan, asin, acos, atan, degrees, radians, factorial.

    Args:
        expression: What to compute, such as (1024 + 768) * 2. Write numbers without thousands separators.
    """
    tree = _parse(expression)
    try:
        return _text(_checked(_evaluate(expression, tree)))
    except (ArithmeticError, ValueError, TypeError) as error:
        raise ValueError(f"cannot compute {expression!r}: {error}") from error


def _parse(expression: str) -> ast.Expression:
    """The syntax tree of an expression that holds nothing but arithmetic."""
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"the expression is too long: expected at most {MAX_LENGTH} characters, got {len(expression)}")
    text = expression.translate(_SPELLINGS).strip()
    try:
        tree = ast.parse("" if _WARNED_OF.search(text) else text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(
            f"{expression!r} is not an arithmetic expression; write it like (1024 + 768) * 2, "
            "without units or thousands separators"
        ) from None
    for node, depth in _walk(tree):
        if depth > MAX_DEPTH:
            raise ValueError(f"the expression is nested too deeply: expected at most {MAX_DEPTH} levels")
        if problem := _problem(node):
            raise ValueError(f"cannot compute {expression!r}: {problem}")
    return tree


def _walk(tree: ast.AST) -> Iterator[tuple[ast.AST, int]]:
    """Every node with its depth, without recursion."""
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting.extend((child, depth + 1) for child in ast.iter_child_nodes(node))


def _problem(node: ast.AST) -> str | None:
    """Why a node is not arithmetic, or None."""
    match node:
        case ast.Name(id=name) if name not in _CONSTANTS and name not in FUNCTIONS:
            return _unknown(name, (*_CONSTANTS, *FUNCTIONS))
        case ast.Constant(value=value) if type(value) not in {int, float}:
            return f"{ast.unparse(node)} is not a real number"
        case ast.operator() | ast.unaryop() if type(node) not in _OPERATORS:
            return f"{type(node).__name__} is not an operator here; use + - * / // % and ** for powers"
        case ast.Tuple():
            return "a comma stands outside a function; write numbers without thousands separators"
        case ast.Call(func=ast.Name(id=name)):
            return None if name in FUNCTIONS else _unknown(name, tuple(FUNCTIONS))
    return None if isinstance(node, _ARITHMETIC) else f"{type(node).__name__} is not allowed, only arithmetic is"


def _unknown(name: str, known: tuple[str, ...]) -> str:
    alike = nearest(name, known)
    return f"{name!r} is not known here; " + (f"nearest: {', '.join(alike)}" if alike else f"known: {', '.join(known)}")


def _evaluate(expression: str, tree: ast.Expression) -> object:
    try:
        from simpleeval import SimpleEval  # type: ignore[import-untyped]
    except ImportError as error:
        raise RuntimeError(
            "calculate needs the package simpleeval: pip install 'turnstile-agent[calculator]'"
        ) from error
    # A new evaluator each time, since it keeps the expression in itself and tools run in threads.
    return SimpleEval(operators=_OPERATORS, functions=FUNCTIONS, names=_CONSTANTS).eval(expression, tree.body)


def _text(number: Number) -> str:
    """A whole number in full, any other in the shortest form that reads back as the same float."""
    if isinstance(number, float) and number.is_integer() and abs(number) < _EXACT:
        return str(int(number))
    return repr(number)
