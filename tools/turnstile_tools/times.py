"""The time now anywhere, by IANA time zone, by city or by offset from UTC."""

import datetime as dt
import re
from functools import cache
from typing import TypedDict
from zoneinfo import ZoneInfo, available_timezones

from turnstile import tool
from turnstile_tools.cities import CITIES, known_city
from turnstile_tools.matching import fold, nearest

_LOCAL = ("", "local", "here", "本地", "当地")
_OFFSET = re.compile(r"(?:utc|gmt)\s*([+−-])\s*(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE | re.ASCII)
_MAX_OFFSET_HOURS = 14  # Kiribati
# Spelled out, since strftime's %A changes with the process's locale.
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class LocalTime(TypedDict):
    """One moment in one zone: its name, the ISO 8601 time to the second with its offset, and the English weekday."""

    timezone: str
    time: str
    weekday: str


@tool(access="read")
def get_current_time(timezone: str) -> LocalTime:
    """Get the current date, time and weekday in a time zone.

    Args:
        timezone: An IANA name such as Asia/Shanghai, a city such as Beijing or 北京, an offset such as UTC+8, or
            "local" for the zone of the computer that runs this.
    """
    return time_in(timezone, dt.datetime.now(dt.UTC))


def time_in(timezone: str, moment: dt.datetime) -> LocalTime:
    """A moment as a clock on the wall shows it in a time zone, named as for `get_current_time`.

    Raises:
        ValueError: no such time zone; the message names the nearest.
    """
    name, zone = _zone(timezone)
    local = moment.astimezone(zone)
    return {"timezone": name, "time": local.isoformat(timespec="seconds"), "weekday": _WEEKDAYS[local.weekday()]}


def _zone(timezone: str) -> tuple[str, dt.tzinfo | None]:
    """The name and rules of a zone; None stands for the computer's own."""
    wanted = fold(timezone)
    if wanted in _LOCAL:
        return "local", None
    if offset := _OFFSET.fullmatch(timezone.strip()):
        return _fixed(timezone, *offset.groups())
    if not _zones():
        raise RuntimeError(f"{timezone!r} needs a database of time zones: pip install 'turnstile-agent[timezones]'")
    if city := known_city(timezone):
        return city.zone, ZoneInfo(city.zone)
    if key := _zones().get(wanted):
        return key, ZoneInfo(key)
    alike = nearest(timezone, [*_zones().values(), *(name for city in CITIES for name in (city.name, city.chinese))])
    hint = f"; nearest: {', '.join(alike)}" if alike else ""
    raise ValueError(f"no time zone or known city is called {timezone!r}{hint}; expected a name like Asia/Shanghai")


def _fixed(timezone: str, sign: str, hours: str, minutes: str | None) -> tuple[str, dt.tzinfo]:
    offset = dt.timedelta(hours=int(hours), minutes=int(minutes or 0))
    if offset > dt.timedelta(hours=_MAX_OFFSET_HOURS):
        raise ValueError(f"{timezone!r} is no time zone: expected an offset of at most {_MAX_OFFSET_HOURS} hours")
    zone = dt.timezone(offset if sign == "+" else -offset)
    return str(zone), zone


@cache
def _zones() -> dict[str, str]:
    """Zone names by their folded full name and by their last part, such as "london".

    Not by the last part in Etc: Etc/GMT+8 lies eight hours *west* of Greenwich, which is never what GMT+8 means.
    """
    keys = sorted(available_timezones())
    by_city = {fold(key.rsplit("/", 1)[1]): key for key in keys if "/" in key and not key.startswith("Etc/")}
    return by_city | {fold(key): key for key in keys}
