"""The travel tools."""

import json
from collections.abc import Callable, Mapping

import pytest

from turnstile_tools.destinations import Destination, catalogue
from turnstile_tools.travel import MOST_DAYS, get_attractions, get_weather, search_destinations

Serve = Callable[[Mapping[str, object]], str]


@pytest.mark.parametrize(
    ("month", "preference"),
    [("October", "nature and quiet small towns"), ("10月", "自然、安静的小镇"), (10, "QUIET small towns in nature")],
)
def test_the_request_of_the_issue_works_in_both_languages(month: str | int, preference: str) -> None:
    """Four days from Shanghai in October: places with all three wishes, in season, the nearest first."""
    found = search_destinations(month, preference)
    assert (found["month"], found["preferences"]) == (10, ["nature", "quiet", "small_town"])
    best = found["destinations"][:3]
    assert [place["name"] for place in best] == ["Wuyuan", "Huangshan", "Tengchong"]
    assert all(place["in_season"] and len(place["matches"]) == 3 for place in best)
    assert best[0]["matches_chinese"] == ["自然", "安静", "小镇"]


def test_month_alone_is_enough() -> None:
    """With no wish every place in season is as good as another, and all it offers is shown."""
    found = search_destinations("May", " ")
    assert found["preferences"] == []
    assert all(place["in_season"] for place in found["destinations"])
    assert found["destinations"][0]["matches"]


def test_wish_out_of_season_is_said_to_be() -> None:
    """Whoever asks for snow in July hears where there is snow, and that it is not then."""
    found = search_destinations(7, "snow")["destinations"]
    assert found
    assert not any(place["in_season"] for place in found)


def test_places_that_are_named_come_first() -> None:
    """A traveller who has a place in mind needs the way there too, though another one suits the month better."""
    assert [place["name"] for place in search_destinations(1, "凤凰 or Dali")["destinations"]] == ["Dali", "Fenghuang"]
    found = search_destinations(10, "Wuzhen, nature and quiet")["destinations"]
    assert [place["name"] for place in found[:2]] == ["Wuzhen", "Wuyuan"]


def test_unknown_wish_is_answered_with_the_choices() -> None:
    """An empty list would read as if there were no such place."""
    with pytest.raises(ValueError, match=r"no known preference in 'romance'; known: nature \(自然\), quiet"):
        search_destinations(5, "romance")


async def test_weather_comes_from_the_archive(serve: Serve) -> None:
    """The source is named with the figures, so that nobody takes a mean for a forecast."""
    daily = {"temperature_2m_max": [22.6] * 31, "temperature_2m_min": [12.4] * 31, "precipitation_sum": [2.0] * 31}
    serve({"/v1/archive": (200, json.dumps({"daily": daily}).encode())})
    assert await get_weather("腾冲", "十月") == {
        "destination": "Tengchong",
        "destination_chinese": "腾冲",
        "month": 10,
        "mean_high_c": 23,
        "mean_low_c": 12,
        "rain_mm": 62,
        "source": "Open-Meteo archive, 2020 to 2024",
        "source_chinese": "Open-Meteo 历史数据，2020 至 2024 年",
    }


@pytest.mark.usefixtures("offline")
async def test_offline_weather_is_from_the_table_and_says_so() -> None:
    """The agent goes on without a network, and the user can tell."""
    answer = await get_weather("Tengchong", 10)
    assert (answer["mean_high_c"], answer["mean_low_c"], answer["rain_mm"]) == (23, 13, 150)
    assert answer["source"].startswith("offline: from the bundled table")
    assert "weather service unreachable" in answer["source"]
    assert answer["source_chinese"].startswith("离线：取自内置的气候概数表；weather service unreachable")


async def test_weather_refuses_before_it_asks() -> None:
    """An unknown place or month is told at once, with the choices."""
    with pytest.raises(ValueError, match="no destination is called 'Atlantis'"):
        await get_weather("Atlantis", 10)
    with pytest.raises(ValueError, match="expected one month"):
        await get_weather("Dali", "someday")


@pytest.mark.parametrize("place", catalogue().destinations, ids=lambda place: place.name)
@pytest.mark.parametrize("days", [1, 3, MOST_DAYS])
def test_plan_fits_and_forgets_nothing(place: Destination, days: int) -> None:
    """No day holds more than two half days, and each sight is either planned once or named as left out."""
    plan = get_attractions(place.chinese, days)
    assert plan["destination"] == place.name
    assert len(plan["days"]) == days
    assert all(sum(sight["half_days"] for sight in day) <= 2 for day in plan["days"])
    planned = [sight["name"] for day in plan["days"] for sight in day]
    assert sorted(planned + plan["left_out"]) == sorted(sight.name for sight in place.attractions)
    assert place.attractions[0].name in planned, "the best is never left out"


@pytest.mark.parametrize("days", [0, -1, MOST_DAYS + 1])
def test_days_are_bounded(days: int) -> None:
    """A plan for no day or for a year is a misunderstanding."""
    with pytest.raises(ValueError, match=f"days is out of range: expected 1 to 14, got {days}"):
        get_attractions("Dali", days)
