"""The key of a call: one key to one thing done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.receipts import KEY_LENGTH, idempotency_key


def test_a_key_stays_what_it_was() -> None:
    """A server may have seen it under an older release, and must know it again after a crash and an upgrade."""
    assert idempotency_key("run", "call") == idempotency_key("run", "call") == "2243ff69166061dddc79195f4d923b22"


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_different_calls_have_different_keys(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Two calls under one key would be done once, whatever ids runs and calls have."""
    assert (idempotency_key(*one) == idempotency_key(*other)) == (one == other)


def test_any_id_has_a_key() -> None:
    """A model's call id may be text that UTF-8 cannot hold."""
    assert len(idempotency_key("run", "\ud800")) == KEY_LENGTH
    assert idempotency_key("ab", "c") != idempotency_key("a", "bc")
