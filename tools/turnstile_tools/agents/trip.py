"""Reads from a traveller's words what a trip needs: month, days off, tastes, places named, and where it begins."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from turnstile_tools.cities import City, city_names, known_city
from turnstile_tools.destinations import catalogue
from turnstile_tools.matching import mentions
from turnstile_tools.months import months_in

MONTHS_A_YEAR = 12

_NUMERALS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_DIGITS, _TENS = ("", *"一二三四五六七八九"), ("", "十", "二十", "三十")
_CHINESE_NUMERALS = {
    tens + ones: 10 * ten + one for ten, tens in enumerate(_TENS) for one, ones in enumerate(_DIGITS) if ten or one
} | {"两": 2}
_DAYS = re.compile(rf"\b(\d{{1,2}}|{'|'.join(_NUMERALS)})[\s-]*(?:full |whole |free )?days?\b", re.IGNORECASE)
_CHINESE_DAYS = re.compile(rf"(\d{{1,2}}|{'|'.join(sorted(_CHINESE_NUMERALS, key=len, reverse=True))})\s*(?:天|日游)")
_SPANS = (
    (re.compile(r"\btwo weeks\b|\bfortnight\b|两周|两个?星期", re.IGNORECASE), 14),
    (re.compile(r"\b(?:a|one) week\b|一周|一个?星期|一个?礼拜", re.IGNORECASE), 7),
    (re.compile(r"\blong weekend\b|小长假", re.IGNORECASE), 3),
    (re.compile(r"\bweekend\b|周末", re.IGNORECASE), 2),
)
# Holidays and seasons stand for a month in their middle when no month is named.
_TIMES = (
    (re.compile(r"\bnational day\b|\bgolden week\b|国庆|十一(?:假|黄金周|长假)", re.IGNORECASE), 10),
    (re.compile(r"\blabou?r day\b|五一|劳动节", re.IGNORECASE), 5),
    (re.compile(r"\bchinese new year\b|\bspring festival\b|春节", re.IGNORECASE), 2),
    (re.compile(r"(?<!hot )\bspring\b(?! festival)|春天|春季", re.IGNORECASE), 4),
    (re.compile(r"\bsummer\b|夏天|夏季|暑假", re.IGNORECASE), 7),
    (re.compile(r"\bautumn\b|\bin the fall\b|秋天|秋季", re.IGNORECASE), 10),
    (re.compile(r"\bwinter\b|冬天|冬季|寒假", re.IGNORECASE), 1),
)
_MODAL = re.compile(r"\b(?:I|we|you|they|it|that) may\b|\bmay (?:be|have|go)\b", re.IGNORECASE)
_BEFORE_START = re.compile(
    r"\b(?:(?:I['’]?m|I am|we['’]?re|we are|live|living|based) in|from|leaving) $|[我们人住家]在$|从$", re.IGNORECASE
)
_AFTER_START = "出发"


@dataclass(frozen=True, slots=True)
class Trip:
    """What is known of a trip; None or empty where nothing was said.

    Attributes:
        month: Month of travel, 1 to 12.
        other_months: Months that were named beside it.
        days: Days off, the days of travel included.
        tastes: The traveller's words for what they like, one for each kind that the catalogue knows.
        places: The destinations they named, as they called them.
        start: The city they start from.
    """

    month: int | None = None
    other_months: tuple[int, ...] = ()
    days: int | None = None
    tastes: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    start: City | None = None


def trip_in(texts: Sequence[str]) -> Trip:
    """What a traveller's messages say of a trip; of each thing, what the newest says that speaks of it."""
    trip = Trip()
    for text in reversed(texts):
        said = _read(text)
        timed, choosing = (trip if trip.month else said), (trip if trip.tastes or trip.places else said)
        trip = Trip(
            month=timed.month,
            other_months=timed.other_months,
            days=trip.days or said.days,
            tastes=choosing.tastes,
            places=choosing.places,
            start=trip.start or said.start,
        )
    return trip


def _read(text: str) -> Trip:
    start, rest = _start_in(text)
    months = _months(rest)
    called = [next(name for name in place.names if mentions(rest, name)) for place in catalogue().named_in(rest)]
    liked = (next((word for word in tag.words if mentions(rest, word)), "") for tag in catalogue().tags.values())
    return Trip(
        month=months[0] if months else None,
        other_months=tuple(months[1:]),
        days=_days(rest),
        tastes=tuple(filter(None, liked)),
        places=tuple(called),
        start=start,
    )


def _start_in(text: str) -> tuple[City | None, str]:
    """The city that a text says the traveller is in, if any, and the text without it, so that it counts as no wish."""
    for match in city_names().finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        if _BEFORE_START.search(before) or after.startswith(_AFTER_START):
            return known_city(match[0]), before + after
    return None, text


def _months(text: str) -> list[int]:
    named = sorted(months_in(_MODAL.sub("", text)) & set(range(1, MONTHS_A_YEAR + 1)))
    return named or [month for pattern, month in _TIMES if pattern.search(text)]


def _days(text: str) -> int | None:
    if match := _DAYS.search(text):
        word = match[1].casefold()
        return (int(word) if word.isdecimal() else _NUMERALS.index(word) + 1) or None
    if match := _CHINESE_DAYS.search(text):
        return (int(match[1]) if match[1].isdecimal() else _CHINESE_NUMERALS[match[1]]) or None
    return next((days for pattern, days in _SPANS if pattern.search(text)), None)
