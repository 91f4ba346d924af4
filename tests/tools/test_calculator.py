"""Arithmetic that is right, and refuses everything else."""

import operator
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile_tools.calculator import calculate


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("(1024 + 768) * 2", "3584"),
        ("（1＋2）×3÷4−1", "1.25"),
        ("0.1 + 0.2", "0.30000000000000004"),
        ("6 / 2", "3"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("2 ** 100", "1267650600228229401496703205376"),
        ("10 ** 999 - 10 ** 999", "0"),
        ("2 ** -2", "0.25"),
        ("10 ** -400", "0"),
        ("sqrt(2) * sqrt(2)", "2.0000000000000004"),
        ("round(2.567, 2)", "2.57"),
        ("round(2.5)", "2"),
        ("max(1, 2.5, -3)", "2.5"),
        ("factorial(20)", "2432902008176640000"),
        ("log(8, 2) + ln(e) + log10(100)", "6"),
        ("cos(pi)", "-1"),
        ("+--1", "1"),
        ("1_000", "1000"),
        ("1e22", "1e+22"),
        ("9007199254740993 * 1", "9007199254740993"),
    ],
)
def test_computes(expression: str, result: str) -> None:
    """Whole numbers are exact and floats are shown as shortly as they read back."""
    assert calculate(expression) == result


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "is not an arithmetic expression"),
        ("1 +", "is not an arithmetic expression"),
        ("1,024 + 1", "without units or thousands separators"),
        ("5²", "is not an arithmetic expression"),
        ("1\x002", "is not an arithmetic expression"),
        ("\ud800", "is not an arithmetic expression"),
        ("1or 2", "is not an arithmetic expression"),
        ("x := 3", "is not an arithmetic expression"),
        ("1; 2", "is not an arithmetic expression"),
        ("(1, 2)", "a comma stands outside a function"),
        ("2 ^ 3", r"BitXor is not an operator here; .* \*\* for powers"),
        ("1 << 9", "LShift is not an operator here"),
        ("__import__('os')", "is not an arithmetic expression"),
        ("'a' * 3", "is not an arithmetic expression"),
        ("True + 1", "True is not a real number"),
        ("1j ** 2", "1j is not a real number"),
        ("(-8) ** 0.5", "the result is not a real number"),
        ("pi.real", "Attribute is not allowed"),
        ("pi()", "'pi' is not known here; known: abs, round,"),
        ("[1][0]", "is not allowed, only arithmetic is"),
        ("lambda: 1", "Lambda is not allowed"),
        ("1 if 1 else 2", "IfExp is not allowed"),
        ("max(*2)", "Starred is not allowed"),
        ("round(2.5, digits=1)", "keyword is not allowed"),
        ("pi.real()", "is not allowed"),
        ("sqr(2)", "'sqr' is not known here; nearest: sqrt"),
        ("qqqqqq(2)", "'qqqqqq' is not known here; known: abs, round,"),
        ("sqrt", "the result is not a real number"),
        ("sqrt(-1)", "math domain error"),
        ("min(1)", "not iterable"),
        ("1 / 0", "division by zero"),
        ("factorial(401)", "factorial expects a whole number from 0 to 400, got 401"),
        ("factorial(2.5)", "factorial expects a whole number"),
        ("round(5, -10 ** 9)", "round expects at most 1000 digits"),
    ],
)
def test_refuses_with_a_reason(expression: str, message: str) -> None:
    """The model rewrites its call from the message alone."""
    with pytest.raises(ValueError, match=message):
        calculate(expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("9 ** 9 ** 9", "a number is too large"),
        ("10 ** 1000", "a number is too large"),
        ("(10 ** 999) * 10", "a number is too large"),
        ("10 ** (10 ** 900)", "a number is too large"),
        ("1.5 ** 1e9", "a number is too large"),
        ("exp(1000)", "a number is too large"),
        ("1e308 * 10", "a number is too large"),
        ("1e999", "a number is too large"),
        ("1" * 201, "expected at most 200 characters, got 201"),
        ("-" * 60 + "1", "expected at most 40 levels"),
        ("(" * 150 + "1", "is not an arithmetic expression"),
    ],
)
def test_stays_within_bounds(expression: str, message: str) -> None:
    """No expression of a model may hold a thread or fill the memory."""
    with pytest.raises(ValueError, match=message):
        calculate(expression)


Sum = tuple[str, int]
_SIGNS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _combine(left: Sum, sign: str, right: Sum) -> Sum:
    return f"({left[0]} {sign} {right[0]})", _SIGNS[sign](left[1], right[1])


_NUMBERS = st.integers(-999, 999).map(lambda number: (str(number), number))
_SUMS = st.recursive(
    _NUMBERS, lambda part: st.builds(_combine, part, st.sampled_from(list(_SIGNS)), part), max_leaves=12
)


@given(_SUMS)
def test_whole_numbers_are_exact(total: Sum) -> None:
    """For any sum of whole numbers the text says what Python's own operators say."""
    assert calculate(total[0]) == str(total[1])


def _outcome(expression: str) -> str:
    try:
        return calculate(expression)
    except ValueError as error:
        return str(error)


@given(st.text(alphabet="0123456789.+-*/%()e, sqrtpijx_\"'\\", max_size=40) | st.text(max_size=40))
def test_any_text_is_computed_or_refused(expression: str) -> None:
    """Whatever a model writes leads to a text or to a ValueError, never to a warning or another error."""
    assert _outcome(expression)


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calculator is an extra, so whoever lacks it is told what to install."""
    monkeypatch.setitem(sys.modules, "simpleeval", None)
    with pytest.raises(RuntimeError, match=r"pip install 'turnstile-agent\[calculator\]'"):
        calculate("1 + 1")
