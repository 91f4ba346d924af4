"""The checks of what a user hands over, from which every constructor's errors come."""

from __future__ import annotations

from typing import Any

import pytest

from turnstile.core.errors import ConfigurationError, UsageError
from turnstile.core.expecting import expect, expect_able, expect_several, expect_subclass, expect_text

no_list: Any = 5


class Able:
    """Has what is called."""

    def work(self) -> None:
        """Nothing."""


def test_what_is_of_its_kind_passes() -> None:
    """A check is heard of only when something is wrong."""
    expect("a size", 5, (int, float), "a number")
    expect_able("a worker", Able(), "work", "a worker")
    expect_text("run.cancel()", "")
    expect_text("run.inject()", "go on", empty=False)


def test_what_is_of_another_kind_is_named_with_what_it_should_be() -> None:
    """Thing, fix, and what came instead."""
    with pytest.raises(ConfigurationError, match=r"^a size is a number; got 'big'$"):
        expect("a size", "big", (int, float), "a number")


@pytest.mark.parametrize("value", [5, Able()])
def test_what_is_no_such_class_is_refused(value: object) -> None:
    """An instance in place of its class is the likely mistake."""
    expect_subclass("an event", Able, Able)
    with pytest.raises(ConfigurationError, match=r"^an event is a class that derives from Able; got "):
        expect_subclass("an event", value, Able)


def test_what_may_hold_a_secret_is_told_by_its_type() -> None:
    """What somebody gives in a key's place may be the key."""
    with pytest.raises(ConfigurationError, match=r"^a key is text; got a bytes$"):
        expect("a key", b"sk-1", str, "text", may_hold_secret=True)


@pytest.mark.parametrize("value", [None, 5, Able, "work"])
def test_what_cannot_do_what_it_is_for_is_refused(value: object) -> None:
    """A class has the method of its instances, and cannot be called for it."""
    with pytest.raises(ConfigurationError, match=r"^a worker is one; got "):
        expect_able("a worker", value, "work", "one")


def test_several_are_taken_from_whatever_gives_them() -> None:
    """A generator gives them once, so they are kept."""
    assert expect_several("tools", (number for number in (1, 2)), "a list") == (1, 2)


@pytest.mark.parametrize("values", ["text", no_list])
def test_one_in_place_of_several_is_refused(values: Any) -> None:
    """A text would be taken letter by letter."""
    with pytest.raises(ConfigurationError, match=r"^tools is a list; got "):
        expect_several("tools", values, "a list")


@pytest.mark.parametrize(("text", "words"), [(None, "takes text; got None"), ("\n", r"says something; got '\\n'")])
def test_a_text_that_says_nothing_is_refused_where_it_must(text: object, words: str) -> None:
    """A model's server refuses an empty message, and the run would end of it."""
    with pytest.raises(UsageError, match=words):
        expect_text("run.inject()", text, empty=False)
