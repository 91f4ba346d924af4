"""The table of well-known cities."""

from zoneinfo import ZoneInfo

import pytest

from turnstile_tools.cities import CITIES, City, known_city


@pytest.mark.parametrize("city", CITIES, ids=lambda city: city.name)
def test_every_city_has_both_names_and_a_real_zone(city: City) -> None:
    """A misspelt zone would only fail on the day that someone asks for that city."""
    assert ZoneInfo(city.zone).key == city.zone
    assert known_city(city.name.upper()) == known_city(city.chinese) == known_city(f"{city.chinese}市") == city


def test_destinations_are_cities_too() -> None:
    """Asking the assistant for the weather of a bundled destination works in Chinese."""
    assert known_city("腾冲") == City("Tengchong", "腾冲", "Asia/Shanghai")
    assert known_city("Nowhere") is None
