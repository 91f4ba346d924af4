"""Which events may be letters: what somebody outside can want to happen to a run."""

from __future__ import annotations

from turnstile.core.errors import UsageError
from turnstile.core.events import ApprovalDecided, Cancelled, Event, MessageInjected

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
