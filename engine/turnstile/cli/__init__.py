"""The command line: `turnstile run`, `chat`, `diagram`, what looks at stored runs, and the lists.

This module loads nothing else until `main` is called, and `main` only what the command needs, so that ``--help``,
``--version`` and shell completion answer at once.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line, and exit with its status.

    That is 0 for a run that is done, 1 for one that failed, 2 for misuse, 3 for one that waits for a human, and 130 for
    one that was interrupted.
    """
    try:
        from turnstile.cli.app import app

        app(prog_name="turnstile")
    except KeyboardInterrupt:  # also while it loads, which takes a moment
        raise SystemExit(130) from None
