"""Months as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile_tools.months import parse_month


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (10, 10),
        ("10", 10),
        ("October", 10),
        ("OCT.", 10),
        ("early October 2025", 10),
        ("Sept", 9),
        ("may", 5),
        ("10月", 10),
        ("１０月", 10),
        ("十月上旬", 10),
        ("十一月", 11),
        ("2025年3月", 3),
        ("2025-10", 10),
        ("2025-10-03", 10),
        ("mid-March", 3),
        ("October (10月)", 10),
    ],
)
def test_reads_one_month(written: str | int, number: int) -> None:
    """A model passes on the user's own words, in either language."""
    assert parse_month(written) == number


@pytest.mark.parametrize(
    "written", ["", "soon", "13", 0, "-1", "0月", "October or November", "九月十月", "2025", "10.5"]
)
def test_refuses_what_is_not_one_month(written: str | int) -> None:
    """A guess would give weather of another month; the message shows how to write it instead."""
    with pytest.raises(ValueError, match=r'expected one month, written like 10, "October" or "10月"') as error:
        parse_month(written)
    assert repr(written) in str(error.value)


def _outcome(written: str | int) -> int | str:
    try:
        return parse_month(written)
    except ValueError as error:
        return str(error)


@given(st.text() | st.integers())
def test_any_input_is_a_month_or_refused(written: str | int) -> None:
    """Arguments come from a model, so every text must lead to a month or to the one clear error."""
    outcome = _outcome(written)
    assert outcome in range(1, 13) or "expected one month" in str(outcome)
