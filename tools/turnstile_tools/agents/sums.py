"""Finds the arithmetic in a message: "(1024 + 768) * 2", "3 times 4", "15% of 80", "9的平方根", "max(2, 3.5)"."""

import re
from typing import NamedTuple

from turnstile_tools.calculator import FUNCTIONS

_NUMBER = r"(?<![\d.])\d++(?:\.\d++)?"  # taken whole or not at all, so that a long row of digits is read but once
_SIGNS = {
    "+": r"plus|加上?",
    "-": r"minus|减去?",
    "*": r"times|multiplied by|乘以?",
    "/": r"divided by|over|除以",
    "**": r"to the power of|\^|的次方",
}
# What a person says of an earlier result, as "add 5", "divide that by 7", "times 3" or "再乘以2".
_FOLLOWING = {
    "+": r"plus|add|加上?",
    "-": r"minus|subtract|减去?",
    "*": r"times|multiply (?:it|that|this|the result) by|乘以?|\*",
    "/": r"divided by|divide (?:it|that|this|the result) by|除以|/",
}
_PHRASES = (
    (r"(?<![a-z]\()(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])", lambda match: match[0].replace(",", "")),
    (rf"({_NUMBER})\s*(?:%|percent)\s+of\s+({_NUMBER})", r"\1 / 100 * \2"),
    (rf"({_NUMBER})\s*的\s*({_NUMBER})\s*%", r"\1 * \2 / 100"),
    (
        rf"(?:the )?square root of ({_NUMBER})|({_NUMBER})\s*的平方根|根号\s*({_NUMBER})",
        lambda match: f"sqrt({_first(match)})",
    ),
    (rf"({_NUMBER})(?:\s+squared\b|\s*的平方)", r"\1 ** 2"),
)
_FUNCTION = "|".join(sorted(FUNCTIONS, reverse=True))
_PIECE = rf"{_NUMBER}(?:e[-+]?\d+)?|\.\d+|\b(?:{_FUNCTION})\s*\(|\b(?:pi|tau)\b|[-+*/%×·÷−()（）]"
_RUN = re.compile(rf"(?:{_PIECE})(?:\s*(?:,\s*)?(?:{_PIECE}))*", re.IGNORECASE)
_OPERATION = re.compile(r"[\w)）]\s*[-+*/%×·÷−]+\s*[\w.(（]|[a-z]\s*\(", re.IGNORECASE)
_DATE = re.compile(r"\d{4}([-/])\d{1,2}\1\d{1,2}|\d{1,2}/\d{1,2}/\d{4}")
_OPENING, _CLOSING = "(（", ")）"


class Sum(NamedTuple):
    """One expression that a message asks for, and where in the spelled-out message it stands."""

    start: int
    expression: str


def sums_in(message: str, last: str = "") -> tuple[list[Sum], str]:
    """The sums that a message asks for, and the message with each of them blanked out.

    Args:
        message: What the user wrote.
        last: The result of an earlier sum, for messages that go on from it.
    """
    text = _spelled(message)
    if last and (expression := _continued(text, last)):
        return [Sum(0, expression)], ""
    found: list[Sum] = []
    place = 0
    while run := _RUN.search(text, place):
        expression = _whole(run[0])
        place = run.start() + len(expression)
        expression = expression.rstrip(" +-*/%×·÷−(（")
        if _OPERATION.search(expression) and not _DATE.fullmatch(expression):
            found.append(Sum(run.start(), expression))
            text = text[: run.start()] + " " * (place - run.start()) + text[place:]
    return found, text


def _spelled(text: str) -> str:
    """The message with the usual words for operations written as signs."""
    for pattern, replacement in _PHRASES:
        text = re.sub(pattern, replacement, text, flags=re.IGNORECASE)
    for sign, words in _SIGNS.items():
        text = re.sub(rf"(?<=[\d)）])\s*(?:{words})\s*(?=[-\d.(（])", f" {sign} ", text, flags=re.IGNORECASE)
    return text


def _continued(text: str, last: str) -> str:
    for sign, words in _FOLLOWING.items():
        pattern = rf"\W*(?:and |then |now |that |it |再|然后|结果)*(?:{words})\s*({_NUMBER})\W*"
        if match := re.fullmatch(pattern, text, re.IGNORECASE):
            return f"{last} {sign} {match[1]}"
    return ""


def _whole(run: str) -> str:
    """The run up to the first bracket that closes nothing, or the first comma that stands outside all brackets."""
    depth = 0
    for place, char in enumerate(run):
        depth += (char in _OPENING) - (char in _CLOSING)
        if depth < 0 or (char == "," and not depth):
            return run[: max(place, 1)]
    return run


def _first(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)
