"""The time, anywhere."""

import datetime as dt
import sys
import zoneinfo
from collections.abc import Iterator

import pytest

from turnstile_tools import times
from turnstile_tools.times import get_current_time, time_in

NOON = dt.datetime(2025, 10, 3, 12, 0, 5, 999, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("asked", "zone", "time", "weekday"),
    [
        ("Asia/Shanghai", "Asia/Shanghai", "2025-10-03T20:00:05+08:00", "Friday"),
        ("beijing", "Asia/Shanghai", "2025-10-03T20:00:05+08:00", "Friday"),
        ("北京市", "Asia/Shanghai", "2025-10-03T20:00:05+08:00", "Friday"),
        ("Xi'an", "Asia/Shanghai", "2025-10-03T20:00:05+08:00", "Friday"),
        ("america/new york", "America/New_York", "2025-10-03T08:00:05-04:00", "Friday"),
        ("auckland", "Pacific/Auckland", "2025-10-04T01:00:05+13:00", "Saturday"),
        ("utc", "UTC", "2025-10-03T12:00:05+00:00", "Friday"),
        ("UTC+8", "UTC+08:00", "2025-10-03T20:00:05+08:00", "Friday"),
        ("gmt+5:30", "UTC+05:30", "2025-10-03T17:30:05+05:30", "Friday"),
        ("UTC −3", "UTC-03:00", "2025-10-03T09:00:05-03:00", "Friday"),
        ("GMT-03", "UTC-03:00", "2025-10-03T09:00:05-03:00", "Friday"),
    ],
)
def test_moment_in_a_zone(asked: str, zone: str, time: str, weekday: str) -> None:
    """GMT+8 means eight hours east, though the database's Etc/GMT+8 lies west."""
    assert time_in(asked, NOON) == {"timezone": zone, "time": time, "weekday": weekday}


@pytest.mark.parametrize("asked", ["local", "", "当地"])
def test_local_is_the_computers_own_zone(asked: str) -> None:
    """The question "What time is it?" names no place, and the user sits at this computer."""
    answer = time_in(asked, NOON)
    assert answer["timezone"] == "local"
    assert dt.datetime.fromisoformat(answer["time"]) == NOON.replace(microsecond=0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("Asia/Shangai", "nearest: Asia/Shanghai"),
        ("../../etc/passwd", "expected a name like Asia/Shanghai"),
        ("UTC+99", "expected an offset of at most 14 hours"),
    ],
)
def test_unknown_zone_is_named_with_the_way_out(asked: str, message: str) -> None:
    """The model corrects itself from the message; a path must never reach the file system."""
    with pytest.raises(ValueError, match=message) as error:
        time_in(asked, NOON)
    assert repr(asked) in str(error.value)


def test_current_time_is_now() -> None:
    """The tool reads the clock between the moments before and after it is called."""
    before = dt.datetime.now(dt.UTC).replace(microsecond=0)
    answer = get_current_time("Tokyo")
    assert before <= dt.datetime.fromisoformat(answer["time"]) <= dt.datetime.now(dt.UTC)


@pytest.fixture
def bare_system(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Python without a time zone database, as in a slim image without tzdata."""
    monkeypatch.setitem(sys.modules, "tzdata", None)
    zoneinfo.reset_tzpath([])
    times._zones.cache_clear()
    yield
    zoneinfo.reset_tzpath()
    times._zones.cache_clear()


@pytest.mark.usefixtures("bare_system")
def test_missing_database_is_named() -> None:
    """Without the database no zone is known, and "unknown zone" would send the user looking for a typing error."""
    with pytest.raises(RuntimeError, match=r"'Tokyo' needs .*: pip install 'turnstile-agent\[timezones\]'"):
        time_in("Tokyo", NOON)
    assert time_in("UTC+8", NOON)["time"] == "2025-10-03T20:00:05+08:00"
