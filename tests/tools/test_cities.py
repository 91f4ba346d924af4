"""The table of well-known cities."""

from zoneinfo import ZoneInfo

import pytest

from turnstile_tools.cities import CITIES, City, cities_in, known_city


@pytest.mark.parametrize("city", CITIES, ids=lambda city: city.name)
def test_every_city_has_both_names_and_a_real_zone(city: City) -> None:
    """A misspelt zone would only fail on the day that someone asks for that city."""
    assert ZoneInfo(city.zone).key == city.zone
    assert known_city(city.name.upper()) == known_city(city.chinese) == known_city(f"{city.chinese}市") == city


def test_destinations_are_cities_too() -> None:
    """Asking the assistant for the weather of a bundled destination works in Chinese."""
    assert known_city("腾冲") == City("Tengchong", "腾冲", "Asia/Shanghai")
    assert known_city("Nowhere") is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("from XI’AN to new  york", [(5, "Xi'an"), (14, "New York")]),
        ("呼和浩特和Hong Kong，香港", [(0, "呼和浩特"), (5, "Hong Kong"), (15, "香港")]),
        ("Daliesque Parisian dalis", []),
    ],
)
def test_cities_are_found_in_a_text(text: str, named: list[tuple[int, str]]) -> None:
    """The offline scripts look for cities in what people type, and answer in the language they typed."""
    assert cities_in(text) == named
