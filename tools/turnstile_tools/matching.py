"""Compares what a person typed with the names we know, whatever the case, accents or script."""

import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache, lru_cache

# difflib's default of 0.6 finds no neighbour for a Chinese name of two characters with one of them wrong (ratio 0.5).
_SIMILAR_ENOUGH = 0.5


def fold(text: str) -> str:
    """A text without case, accents, apostrophes, full-width forms and doubled spaces, to compare what people type."""
    lower = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    plain = "".join(char for char in lower if char not in "'’" and not unicodedata.combining(char))
    return re.sub(r"[\s_-]+", " ", plain).strip()


def mentions(text: str, phrase: str) -> bool:
    """Whether a text holds a phrase: Latin words as whole words, plural or not, Chinese anywhere."""
    return _phrase(phrase).search(_folded(text)) is not None


@lru_cache(maxsize=8)  # one text is looked through for many phrases
def _folded(text: str) -> str:
    return fold(text)


@cache  # phrases are names and words of our own tables
def _phrase(phrase: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![a-z]){re.escape(fold(phrase))}(?:e?s)?(?![a-z])")


def nearest(word: str, choices: Iterable[str]) -> list[str]:
    """At most three choices that look most like a word, the most alike first; empty when none does."""
    spelled = {fold(choice): choice for choice in choices}
    return [spelled[match] for match in get_close_matches(fold(word), spelled, cutoff=_SIMILAR_ENOUGH)]
