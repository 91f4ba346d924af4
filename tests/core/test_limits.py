"""Limits, retries and prices: what makes no sense is refused when it is written down."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from turnstile.core.errors import ConfigurationError
from turnstile.core.limits import Limits, Price, Retry, StopReason

WRONG: list[tuple[type[Limits | Retry | Price], str, object, str]] = [
    (Limits, "turns", 0, "Limits.turns is a whole number of at least 1; got 0"),
    (Limits, "turns", None, "Limits.turns is a whole number of at least 1; got None"),
    (Limits, "turns", 2.5, "Limits.turns is a whole number of at least 1; got 2.5"),
    (Limits, "turns", True, "Limits.turns is a whole number of at least 1; got True"),
    (Limits, "turns", "8", "Limits.turns is a whole number of at least 1; got '8'"),
    (Limits, "parallel", 0, "Limits.parallel is a whole number of at least 1; got 0"),
    (Limits, "tool_calls", -1, "Limits.tool_calls is a whole number of at least 0, or None for no limit; got -1"),
    (Limits, "tokens", 1e9, "Limits.tokens is a whole number of at least 0, or None for no limit; got 1000000000.0"),
    (Limits, "repeats", 0, "Limits.repeats is a whole number of at least 1, or None for no limit; got 0"),
    (Limits, "cost", float("inf"), "Limits.cost is a finite number of at least 0, or None for no limit; got inf"),
    (Limits, "cost", float("nan"), "Limits.cost is a finite number of at least 0, or None for no limit; got nan"),
    (Limits, "cost", "1", "Limits.cost is a finite number of at least 0, or None for no limit; got '1'"),
    (Limits, "seconds", False, "Limits.seconds is a finite number of at least 0, or None for no limit; got False"),
    (Limits, "nudges", -1, "Limits.nudges is a whole number of at least 0; got -1"),
    (Limits, "repairs", None, "Limits.repairs is a whole number of at least 0; got None"),
    (Limits, "recoveries", 0.5, "Limits.recoveries is a whole number of at least 0; got 0.5"),
    (Limits, "on_exhausted", "stop", "Limits.on_exhausted is 'fail' or 'wrap_up'; got 'stop'"),
    (Retry, "attempts", 0, "Retry.attempts is a whole number of at least 1; got 0"),
    (Retry, "base_delay", -0.1, "Retry.base_delay is a finite number of at least 0; got -0.1"),
    (Retry, "max_delay", None, "Retry.max_delay is a finite number of at least 0; got None"),
    (Price, "output", -1, "Price.output is a finite number of at least 0; got -1"),
]


@pytest.mark.parametrize(("kind", "name", "value", "problem"), WRONG)
def test_a_limit_that_makes_no_sense_is_refused(
    kind: type[Limits | Retry | Price], name: str, value: object, problem: str
) -> None:
    """A mistake in a limit must show before money is spent, with the name, what is expected and what came."""
    settings: Mapping[str, object] = {"input": 1, "output": 1} if kind is Price else {}

    with pytest.raises(ConfigurationError) as caught:
        kind(**{**settings, name: value})  # type: ignore[arg-type]

    assert str(caught.value) == problem


def test_limits_may_be_absent_or_zero() -> None:
    """None is no limit, and nothing at all is a limit too."""
    Limits(tool_calls=None, tokens=None, cost=None, seconds=None, repeats=None)
    Limits(tool_calls=0, tokens=0, cost=0, seconds=0, nudges=0, repairs=0, recoveries=0, on_exhausted="wrap_up")
    Retry(attempts=1, base_delay=0, max_delay=0)


def test_a_price_is_for_a_million_tokens() -> None:
    """That is how every provider writes it."""
    assert Price(3, 15).of(1_000_000, 100_000) == 4.5


def test_a_stop_reason_is_its_text() -> None:
    """Logs and journals hold text, and a user compares with text."""
    reason: str = StopReason.MAX_TURNS

    assert reason == "max_turns"
    assert f"{reason}" == "max_turns"
