"""Arithmetic found in what people type."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile_tools.agents.sums import sums_in
from turnstile_tools.calculator import calculate


@pytest.mark.parametrize(
    ("message", "expressions"),
    [
        ("Also compute (1024 + 768) * 2, and tell me", ["(1024 + 768) * 2"]),
        ("2+2", ["2+2"]),
        ("What is 3 plus 4 times 2?", ["3 + 4 * 2"]),
        ("12 multiplied by 8; 7 divided by 2, 2^10", ["12 * 8", "7 / 2", "2 ** 10"]),
        ("3加4再减去1，6乘以7，8除以2", ["3 + 4", "6 * 7", "8 / 2"]),
        ("15% of 80 and 80的15%", ["15 / 100 * 80", "80 * 15 / 100"]),
        ("the square root of 16, 9的平方根, 根号2", ["sqrt(16)", "sqrt(9)", "sqrt(2)"]),
        ("5 squared is 5的平方", ["5 ** 2", "5 ** 2"]),
        ("(1,024 + 768) * 2 = ?", ["(1024 + 768) * 2"]),
        ("max(1, 200) + sqrt(2)", ["max(1, 200) + sqrt(2)"]),
        ("（1+2）×3", ["（1+2）×3"]),
        ("(see 3 + 4)", ["3 + 4"]),
        ("1/0", ["1/0"]),
        ("2 * pi * 3 -", ["2 * pi * 3"]),
        ("10.5 - 3. Then 4 * (2 - 1)", ["10.5 - 3", "4 * (2 - 1)"]),
        ("2025-10-03, 3/10/2025, 10:30, 5 apples, A4, -7", []),
        ("Hello", []),
        ("", []),
    ],
)
def test_finds_the_sums_of_a_message(message: str, expressions: list[str]) -> None:
    """A sum is found however it is written, and a date is none."""
    assert [each.expression for each in sums_in(message)[0]] == expressions


@pytest.mark.parametrize(
    ("message", "expression"),
    [
        ("times 3", "10 * 3"),
        ("Now divide that by 4.", "10 / 4"),
        ("and add 5", "10 + 5"),
        ("再减去2", "10 - 2"),
        ("* 2", "10 * 2"),
    ],
)
def test_goes_on_from_the_last_result(message: str, expression: str) -> None:
    """In a chat people go on from a result without repeating it; with no result there is nothing to go on from."""
    assert [each.expression for each in sums_in(message, "10")[0]] == [expression]
    assert sums_in(message)[0] == []


def test_what_is_no_sum_stays() -> None:
    """The rest of the message is read for other errands, so the sums leave their place blank."""
    assert sums_in("Compute 1 + 2, then the weather") == ([(8, "1 + 2")], "Compute      , then the weather")


@given(st.text(alphabet="0123456789.,+-*/^%()（）× \nsqrtmaxpi=的加乘", max_size=60))
def test_any_text_is_read(message: str) -> None:
    """Whatever a user types leads to sums that are computed or refused with a reason, and the reading ends."""
    for each in sums_in(message, "1")[0]:
        with suppress(ValueError):
            assert calculate(each.expression)
