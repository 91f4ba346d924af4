"""`Screen`: where words go (answers to standard output, all else to standard error), cleaned for a terminal.

What a model or a tool says may hold escape sequences that recolour, retitle, overwrite or even type into a terminal.
Text for people loses them all (ECMA-48 control functions, and the bidirectional controls of Unicode Standard Annex 9);
in JSON they are escaped, so that a program reads the text as it was.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout, suppress

from turnstile.cli.faults import Misuse, ReaderGone
from turnstile.core.strict_json import JsonValue

_SEQUENCES = re.compile(
    r"""
    (?:\x1b\[|\x9b) [0-?]* [ -/]* [@-~]                                           # colours, cursor, modes
    | (?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])                                       # strings: titles, clipboard, links;
      [^\x07\x1b\x90\x98\x9c-\x9f]* (?:\x07|\x1b\\|\x9c)                          # none looks past the next one's start
    | \x1b [ -/]* [0-~]                                                           # all shorter ones
    """,
    re.VERBOSE,
)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_UNSEEN = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")  # JSON escapes only what is below a space
_PLAIN_TERMINALS = frozenset({"", "dumb", "unknown"})  # terminals without a cursor; rich names the last two


def clean(text: str) -> str:
    """The text without anything that a terminal would obey but line breaks and tabs."""
    text = _SEQUENCES.sub("", text.replace("\r\n", "\n"))
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", text))


def one_line(text: str, width: int = 100) -> str:
    """The beginning of a text, cleaned and on one line, at most `width` characters long."""
    line = " ".join(clean(text[: 10 * width]).split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def json_text(value: JsonValue, *, indent: bool = False) -> str:
    """A value as JSON on one line, or indented for people; what a terminal would obey is escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2 if indent else None)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


@contextmanager
def _mishaps() -> Iterator[None]:
    """Name what can go wrong with standard output."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGone("standard output is a pipe that nobody reads any more") from error
    except OSError as error:
        raise unwritable(error) from error


def unwritable(error: OSError) -> Misuse:
    """What to tell a user whose standard output cannot be written."""
    way_out = "send it to a terminal, a pipe, or a file with room"
    return Misuse(f"standard output cannot be written: {error.strerror}; {way_out}")


def prints_aside() -> AbstractContextManager[object]:
    """While entered, what an agent's or a tool's code prints goes to standard error: it is no answer."""
    return redirect_stdout(sys.stderr)


class Screen:
    """Standard output and standard error, as a person or a program reads them.

    Standard output is the one that there is when it is made: what an agent's code prints later is sent elsewhere
    (`prints_aside`), so that an answer stands alone.

    Args:
        quiet: Whether to leave out all that is neither an answer nor an error.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._out = sys.stdout

    @property
    def can_redraw(self) -> bool:
        """Whether standard error is a terminal that can draw over what it shows."""
        return sys.stderr.isatty() and os.environ.get("TERM", "") not in _PLAIN_TERMINALS

    @property
    def answers_to_terminal(self) -> bool:
        """Whether a person watches standard output as it is written."""
        return self._out.isatty()

    def answer(self, text: str, end: str = "\n") -> None:
        """Write what was asked for.

        Raises:
            ReaderGone: Whoever read it has gone.
            Misuse: It cannot be written.
        """
        with _mishaps():
            self._out.write(clean(text) + end)
            self._out.flush()

    def answer_bytes(self, content: bytes) -> None:
        """Write what was asked for, as it is; raises as `answer` does."""
        with _mishaps():
            self._out.buffer.write(content)
            self._out.buffer.flush()

    def say(self, text: str) -> None:
        """Tell how things go, unless the user wants quiet."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Tell what must be known; a closed standard error is passed over, since nobody can be told of it."""
        with suppress(OSError):
            sys.stderr.write(clean(text) + "\n")
            sys.stderr.flush()
