"""What a user hands over, looked at before anything is done with it: one clear error for what cannot be meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from turnstile.core.errors import ConfigurationError, UsageError
from turnstile.core.redact import redact

T = TypeVar("T")

SETTINGS = 'a mapping, such as {"max_tokens": 1000}'
"""What settings are, in words."""
_MOST_SHOWN = 120  # characters: a line


def expect(
    name: str, value: object, kind: type | tuple[type, ...], what: str, *, may_hold_secret: bool = False
) -> None:
    """Refuse a value that is of none of these kinds.

    Args:
        name: What it was given as, such as ``Agent's limits``.
        value: What was given.
        kind: What it may be.
        what: The same in words, with an example where one helps.
        may_hold_secret: Whether only the type of what was given may be shown.

    Raises:
        ConfigurationError: It is something else.
    """
    if not isinstance(value, kind):
        raise _refused(name, what, f"a {type(value).__name__}" if may_hold_secret else _shown(value))


def expect_subclass(name: str, value: object, base: type) -> None:
    """Refuse what is no class, or another's.

    Args:
        name: What it was given as.
        value: What was given.
        base: What it derives from.

    Raises:
        ConfigurationError: It does not.
    """
    if not (isinstance(value, type) and issubclass(value, base)):
        raise _refused(name, f"a class that derives from {base.__name__}", _shown(value))


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
        raise _refused(name, what, _shown(value))


def expect_several(name: str, values: Iterable[T], what: str) -> tuple[T, ...]:
    """All of several values; a text, which is several letters, is refused as well.

    Args:
        name: What they were given as.
        values: What was given.
        what: What they are in words, with an example.

    Raises:
        ConfigurationError: They are not several.
    """
    try:
        each = None if isinstance(values, str) else iter(values)
    except TypeError:
        each = None
    if each is None:
        raise _refused(name, what, _shown(values))
    return tuple(each)


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
        raise UsageError(f"{call} takes text; got {_shown(text)}")
    if not empty and not text.strip():
        raise UsageError(f"{call} takes a text that says something; got {text!r}")


def _refused(name: str, what: str, got: str) -> ConfigurationError:
    return ConfigurationError(f"{name} is {what}; got {got}")


def _shown(value: object) -> str:
    """A value as it may stand in an error: no keys and passwords, and no more than a line of it."""
    text = redact(repr(value))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
