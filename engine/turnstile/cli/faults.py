"""What ends a command before its run does, and the exit statuses."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from turnstile.core.errors import TurnstileError

DONE = 0
FAILED = 1
MISUSED = 2
WAITING = 3
INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class Misuse(TurnstileError):
    """The command line was called in a way that cannot work; the text says what to do instead, on one line."""


class ReaderGone(TurnstileError):
    """Whoever read standard output has gone, so that nothing is left to be done or said."""


def nearest(name: str, names: Iterable[str]) -> str:
    """``did you mean 'x' or 'y'?`` for the names that look like it; empty when none does."""
    close = difflib.get_close_matches(name, list(names), n=3)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""
