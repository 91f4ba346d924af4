"""`Commands`: the outermost group, where every expected error becomes one line on standard error and an exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import typer
from typer.core import TyperGroup

from turnstile.cli.faults import DONE, MISUSED, Misuse, ReaderGone
from turnstile.cli.screen import Screen, unwritable
from turnstile.core.errors import NoRow, TurnstileError


class Commands(TyperGroup):
    """A group whose commands end with ``typer.Exit(status)``; what they raise ends here.

    A bug (ours, or of an agent's own code) is no expected error: its traceback is shown.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002, ARG002 - the signature is typer's
        windows_expand_args: bool = True,  # noqa: FBT001, FBT002 - the same
        **extra: object,
    ) -> NoReturn:
        """Parse, run, and exit."""
        _mend_streams()
        try:
            if sys.stdout is None:
                raise Misuse(
                    "standard output is closed, so no answer can be given; leave it open, or send it to a file"
                )
            status = super().main(
                args, prog_name, complete_var, standalone_mode=False, windows_expand_args=windows_expand_args, **extra
            )
        except typer.TyperException as error:
            status = _explain(error)
        except NoRow:
            raise
        except ReaderGone:
            status = MISUSED
        except TurnstileError as error:
            status = _fail(str(error))
        except OSError as error:
            if not _is_of_typer(error):
                raise
            status = _fail(str(unwritable(error)))
        _drop_unwritten()
        sys.exit(status or DONE)


def group(name: str, text: str, epilog: str) -> typer.Typer:
    """A group of commands, with plain help instead of rich's: it loads nothing more, and reads the same in a pipe."""
    return typer.Typer(
        name=name,
        cls=Commands,
        help=text,
        epilog=epilog,
        rich_markup_mode=None,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _mend_streams() -> None:
    """Make standard error somewhere to write to, and let no text be unwritable for its characters."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - it lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _is_of_typer(error: OSError) -> bool:
    """Whether typer itself, which writes help and completions to standard output, met the error."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "typer"


def _drop_unwritten() -> None:
    """Leave nothing that the interpreter would try to write once more, and complain about, as it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _explain(error: typer.TyperException) -> int:
    """One line for a wrong option, argument or command; the whole help when a group was called without a command."""
    text = error.format_message()
    if "\n" in text:
        Screen().warn(text)
        return MISUSED
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "turnstile"
    return _fail(f"{text[:1].lower()}{text[1:].rstrip('.')}; `{path} --help` tells what it takes", path)


def _fail(text: str, path: str = "turnstile") -> int:
    Screen().warn(f"{path}: {' '.join(text.split())}")
    return MISUSED
