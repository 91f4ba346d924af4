"""What all stores have in common: which events may be letters, and how a prompt stands in a list."""

from __future__ import annotations

from turnstile.core.errors import UsageError
from turnstile.core.events import ApprovalDecided, Cancelled, Event, MessageInjected

MOST_OF_PROMPT = 100  # characters: a line of a list
LETTERS: tuple[type[Event], ...] = (Cancelled, MessageInjected, ApprovalDecided)
"""What somebody outside can want to happen to a run."""


def refuse_other_letters(event: Event) -> None:
    """Refuse what only the run itself can find out.

    Raises:
        UsageError: The event is no letter.
    """
    if not isinstance(event, LETTERS):
        names = ", ".join(kind.__name__ for kind in LETTERS)
        raise UsageError(f"a run's mailbox takes {names}; got {event!r:.200}")


def first_line(prompt: str) -> str:
    """The beginning of what the user asked, on one line that any terminal can show."""
    shown = "".join(character if character.isprintable() else " " for character in prompt[: 10 * MOST_OF_PROMPT])
    return " ".join(shown.split())[:MOST_OF_PROMPT]
