"""The assistant's weather tool."""

import json
from collections.abc import Callable, Mapping

import pytest

from turnstile_tools.weather import CONDITIONS, get_weather

Serve = Callable[[Mapping[str, object]], str]

CURRENT: dict[str, object] = {
    "time": "2025-10-03T20:00",
    "temperature_2m": 18.3,
    "apparent_temperature": 17.2,
    "relative_humidity_2m": 41,
    "wind_speed_10m": 7.4,
    "weather_code": 2,
}


def _service(place: dict[str, object] | None, **changed: object) -> dict[str, object]:
    found = {"results": [{"latitude": 39.9, "longitude": 116.4} | place]} if place else {}
    current = {"current": CURRENT | changed}
    return {
        "/v1/search": (200, json.dumps(found).encode()),
        "/v1/forecast": (200, json.dumps(current).encode()),
    }


async def test_reports_the_weather_of_a_city(serve: Serve) -> None:
    """The answer names the place that was found, so that the wrong Paris is noticed."""
    serve(_service({"name": "Paris", "country": "United States", "admin1": "Texas"}))
    assert await get_weather("Paris") == {
        "city": "Paris",
        "country": "Texas, United States",
        "time": "2025-10-03T20:00",
        "conditions": "partly cloudy",
        "conditions_chinese": "局部多云",
        "temperature_c": 18.3,
        "feels_like_c": 17.2,
        "humidity_percent": 41,
        "wind_kmh": 7.4,
        "source": "Open-Meteo",
    }


async def test_chinese_names_are_asked_for_in_english(serve: Serve, asked: list[str]) -> None:
    """Geocoding puts villages before the capital when asked for it in Chinese."""
    serve(_service({"name": "Beijing", "country": "China", "admin1": "Beijing"}))
    answer = await get_weather("北京")
    assert isinstance(answer, dict)
    assert answer["country"] == "China"
    assert "name=Beijing&" in asked[0]


async def test_unknown_code_is_passed_on(serve: Serve) -> None:
    """A code that the table lacks is better shown than hidden."""
    serve(_service({"name": "Oslo"}, weather_code=42))
    answer = await get_weather("Oslo")
    assert isinstance(answer, dict)
    assert (answer["conditions"], answer["country"]) == ("weather code 42", "")


async def test_unknown_city_is_an_error_with_the_nearest(serve: Serve) -> None:
    """The model corrects a misspelling in its next call."""
    serve(_service(None))
    with pytest.raises(ValueError, match="no city called 'Bejing' was found; nearest: Beijing"):
        await get_weather("Bejing")
    with pytest.raises(ValueError, match="no city called 'zzzz' was found; try its English name"):
        await get_weather("zzzz")


@pytest.mark.usefixtures("offline")
async def test_offline_is_a_result_not_an_error() -> None:
    """The agent goes on and tells the user, as for any other fact."""
    answer = await get_weather("Beijing")
    assert isinstance(answer, str)
    assert answer.startswith("weather service unreachable: http://127.0.0.1")


def test_every_condition_has_two_languages() -> None:
    """The scripted answers speak the language of the question."""
    assert all(english.isascii() and not chinese.isascii() for english, chinese in CONDITIONS.values())
