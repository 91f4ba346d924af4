"""Tools for planning a trip in China: where to go in a month, what weather to expect, what to see in so many days."""

from typing import TypedDict

from turnstile import tool
from turnstile_tools.destinations import Attraction, Destination, catalogue
from turnstile_tools.months import parse_month
from turnstile_tools.open_meteo import CLIMATE_YEARS, MonthlyClimate, WeatherUnavailable, connect

MOST_SUGGESTIONS = 5
MOST_DAYS = 14
HALVES_A_DAY = 2


class Suggestion(TypedDict):
    """A destination that fits, with what it has of the preferences; hours are rough, from door to door."""

    name: str
    name_chinese: str
    province: str
    province_chinese: str
    matches: list[str]
    matches_chinese: list[str]
    in_season: bool
    best_months: list[int]
    summary: str
    summary_chinese: str
    rough_hours_from_shanghai: int
    route: str
    route_chinese: str


class Suggestions(TypedDict):
    """The month and preferences as they were understood, and the best suggestions first."""

    month: int
    preferences: list[str]
    destinations: list[Suggestion]


class ExpectedWeather(TypedDict):
    """What a month is usually like: mean daily high and low in °C, mean rain in mm a month, and where that is from."""

    destination: str
    destination_chinese: str
    month: int
    mean_high_c: float
    mean_low_c: float
    rain_mm: float
    source: str
    source_chinese: str


class Sight(TypedDict):
    """One sight of a day; two half days fill a day."""

    name: str
    name_chinese: str
    half_days: int
    why: str
    why_chinese: str


class Plan(TypedDict):
    """The sights of each day in order, and what did not fit; days left empty have no sights of ours."""

    destination: str
    destination_chinese: str
    days: list[list[Sight]]
    left_out: list[str]
    left_out_chinese: list[str]


@tool(access="read")
def search_destinations(month: str | int, preference: str) -> Suggestions:
    """Find Chinese destinations that suit a month and a traveller's preferences, the best first.

    Args:
        month: Month of travel, such as 10, October or 10月.
        preference: What the traveller likes, in English or Chinese, such as "nature and quiet small towns"; places that
            it names come first. Leave it empty to search by month alone.
    """
    number = parse_month(month)
    wanted = catalogue().preferences_in(preference)
    named = catalogue().named_in(preference)
    if preference.strip() and not wanted and not named:
        known = ", ".join(f"{key.replace('_', ' ')} ({tag.chinese})" for key, tag in catalogue().tags.items())
        raise ValueError(
            f"no known preference in {preference!r}; known: {known}; leave it empty to search by month alone"
        )
    fitting = [place for place in catalogue().destinations if place in named or set(wanted) & set(place.tags)]
    if not preference.strip():
        fitting = list(catalogue().destinations)
    fitting.sort(key=lambda place: (place not in named, _rank(place, number, wanted)))
    return {
        "month": number,
        "preferences": list(wanted),
        "destinations": [_suggestion(place, number, wanted) for place in fitting[:MOST_SUGGESTIONS]],
    }


@tool(access="read", timeout=20)
async def get_weather(destination: str, month: str | int) -> ExpectedWeather:
    """Get the usual weather of a destination in a month: mean daily high and low, and rain.

    Comes from Open-Meteo's archive, or from a bundled table when that cannot be reached; the source says which.

    Args:
        destination: Name of one of the destinations that search_destinations knows, in English or Chinese.
        month: Month of travel, such as 10, October or 10月.
    """
    place, number = catalogue().find(destination), parse_month(month)
    try:
        async with connect() as service:
            measured = await service.monthly(place.latitude, place.longitude, number)
        first, last = CLIMATE_YEARS[0], CLIMATE_YEARS[-1]
        sources = f"Open-Meteo archive, {first} to {last}", f"Open-Meteo 历史数据，{first} 至 {last} 年"
        return _expected(place, number, measured, sources)
    except WeatherUnavailable as error:
        english = f"offline: from the bundled table of approximate means ({place.climate.basis}); {error}"
        chinese = f"离线：取自内置的气候概数表；{error}"
        return _expected(place, number, _bundled(place, number), (english, chinese))


@tool(access="read")
def get_attractions(destination: str, days: int) -> Plan:
    """Plan the sights of a destination over some days, the most rewarding first.

    Args:
        destination: Name of one of the destinations that search_destinations knows, in English or Chinese.
        days: Full days on the spot, 1 to 14, without the days of travel.
    """
    place = catalogue().find(destination)
    if not 1 <= days <= MOST_DAYS:
        raise ValueError(f"days is out of range: expected 1 to {MOST_DAYS}, got {days!r}")
    planned, left_out = _plan(place.attractions, days)
    return {
        "destination": place.name,
        "destination_chinese": place.chinese,
        "days": [[_sight(sight) for sight in day] for day in planned],
        "left_out": [sight.name for sight in left_out],
        "left_out_chinese": [sight.chinese for sight in left_out],
    }


def _rank(place: Destination, month: int, wanted: tuple[str, ...]) -> tuple[float, int]:
    """Smaller is better: the share of preferences met, being in season worth half of them all; then the shorter way."""
    met = len(set(wanted) & set(place.tags)) / len(wanted) if wanted else 0
    return -(met + (0.5 if catalogue().in_season(place, month, wanted) else 0)), place.hours_from_shanghai


def _suggestion(place: Destination, month: int, wanted: tuple[str, ...]) -> Suggestion:
    matches = [tag for tag in (wanted or place.tags) if tag in place.tags]
    return {
        "name": place.name,
        "name_chinese": place.chinese,
        "province": place.province,
        "province_chinese": place.province_chinese,
        "matches": [tag.replace("_", " ") for tag in matches],
        "matches_chinese": [catalogue().tags[tag].chinese for tag in matches],
        "in_season": catalogue().in_season(place, month, wanted),
        "best_months": list(place.best_months),
        "summary": place.summary,
        "summary_chinese": place.summary_chinese,
        "rough_hours_from_shanghai": place.hours_from_shanghai,
        "route": place.route,
        "route_chinese": place.route_chinese,
    }


def _expected(place: Destination, month: int, climate: MonthlyClimate, sources: tuple[str, str]) -> ExpectedWeather:
    return {
        "destination": place.name,
        "destination_chinese": place.chinese,
        "month": month,
        "mean_high_c": round(climate.high),
        "mean_low_c": round(climate.low),
        "rain_mm": round(climate.rain_mm),
        "source": sources[0],
        "source_chinese": sources[1],
    }


def _bundled(place: Destination, month: int) -> MonthlyClimate:
    table = place.climate
    return MonthlyClimate(high=table.high[month - 1], low=table.low[month - 1], rain_mm=table.rain_mm[month - 1])


def _plan(attractions: tuple[Attraction, ...], days: int) -> tuple[list[list[Attraction]], list[Attraction]]:
    """Each sight, in its order of worth, on the first day with room for it; and those for which none has room."""
    planned: list[list[Attraction]] = [[] for _ in range(days)]
    left_out: list[Attraction] = []
    for sight in attractions:
        room = (day for day in planned if sum(other.half_days for other in day) + sight.half_days <= HALVES_A_DAY)
        day = next(room, None)
        (left_out if day is None else day).append(sight)
    return planned, left_out


def _sight(sight: Attraction) -> Sight:
    return {
        "name": sight.name,
        "name_chinese": sight.chinese,
        "half_days": sight.half_days,
        "why": sight.why,
        "why_chinese": sight.why_chinese,
    }
