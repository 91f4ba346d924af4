"""What a user hands over, looked at before anything is done with it: one clear error for what cannot be meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from turnstile.core.errors import ConfigurationError, UsageError

T = TypeVar("T")


def expect(name: str, value: object, kind: type | tuple[type, ...], what: str) -> None:
    """Refuse a value that is of none of these kinds.

    Args:
        name: What it was given as, such as ``Agent's limits``.
        value: What was given.
        kind: What it may be.
        what: The same in words, with an example where one helps.

    Raises:
        ConfigurationError: It is something else.
    """
    if not isinstance(value, kind):
        raise ConfigurationError(f"{name} is {what}; got {value!r}")


def expect_able(name: str, value: object, method: str, what: str) -> None:
    """Refuse a value that has not the method it is given for; a class has, and is none of its own instances.

    Args:
        name: What it was given as.
        value: What was given.
        method: What will be called.
        what: What it is in words, with an example.

    Raises:
        ConfigurationError: It cannot be used so.
    """
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        raise ConfigurationError(f"{name} is {what}; got {value!r}")


def expect_several(name: str, values: Iterable[T], what: str) -> tuple[T, ...]:
    """All of several values; a text, which is several letters, is refused as well.

    Raises:
        ConfigurationError: They are not several.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ConfigurationError(f"{name} is {what}; got {values!r}")
    return tuple(values)


def expect_text(call: str, text: object, *, empty: bool = True) -> None:
    """Refuse what a call is given in place of text, and where it must say something, a text that does not.

    Args:
        call: The call, such as ``run.inject()``.
        text: What it was given.
        empty: Whether the text may be empty.

    Raises:
        UsageError: It is no text, or says nothing.
    """
    if not isinstance(text, str):
        raise UsageError(f"{call} takes text; got {text!r}")
    if not empty and not text.strip():
        raise UsageError(f"{call} takes a text that says something; got {text!r}")
