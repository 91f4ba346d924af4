"""How a prompt stands in a list of runs."""

from __future__ import annotations

MOST_OF_PROMPT = 100  # characters: a line of a list


def first_line(prompt: str) -> str:
    """The beginning of what the user asked, on one line that any terminal can show."""
    shown = "".join(character if character.isprintable() else " " for character in prompt[: 10 * MOST_OF_PROMPT])
    return " ".join(shown.split())[:MOST_OF_PROMPT]
