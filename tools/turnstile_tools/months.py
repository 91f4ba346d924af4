"""Reads a month as people write it: 10, "October", "early Oct", "10月", "十月上旬" or "2025-10"."""

import re

from turnstile_tools.matching import fold, mentions

# Spelled out, since `calendar.month_name` changes with the process's locale.
MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_CHINESE_NUMERALS = ("一", "二", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二")
_CHINESE_MONTH = re.compile(r"(\d{1,2}|十[一二]?|[一二三四五六七八九])\s*月")
_NUMERIC_DATE = re.compile(r"\d{4}[-/. ](\d{1,2})(?:[-/. ]\d{1,2})?|(\d{1,2})")


def parse_month(month: str | int) -> int:
    """The number of a month, 1 to 12.

    Raises:
        ValueError: the text names no month, or more than one; the message says how to write it.
    """
    named = months_in(str(month).strip())
    if len(named) == 1 and named <= set(range(1, 13)):
        return named.pop()
    problem = "is not one month" if named else "is not a month"
    raise ValueError(f'{month!r} {problem}: expected one month, written like 10, "October" or "10月"')


def months_in(text: str) -> set[int]:
    """Every month that a text names; numbers that are no month are among them, so that they can be refused."""
    english = {
        number
        for number, name in enumerate(MONTH_NAMES, start=1)
        if any(mentions(text, spelling) for spelling in (name, name[:3], name[:4]))
    }
    chinese = {_chinese_number(found) for found in _CHINESE_MONTH.findall(fold(text))}
    if english or chinese:
        return english | chinese
    numeric = _NUMERIC_DATE.fullmatch(text)
    return {int(numeric[1] or numeric[2])} if numeric else set()


def _chinese_number(text: str) -> int:
    return int(text) if text.isdecimal() else _CHINESE_NUMERALS.index(text) + 1
