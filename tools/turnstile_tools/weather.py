"""The weather now in any city, from Open-Meteo."""

from typing import TypedDict

from turnstile import tool
from turnstile_tools.cities import CITIES, known_city
from turnstile_tools.matching import nearest
from turnstile_tools.open_meteo import CurrentWeather, Place, WeatherUnavailable, connect

# WMO weather interpretation codes as Open-Meteo's forecast documentation lists them (https://open-meteo.com/en/docs).
CONDITIONS = {
    0: ("clear sky", "晴"),
    1: ("mainly clear", "大致晴朗"),
    2: ("partly cloudy", "局部多云"),
    3: ("overcast", "阴"),
    45: ("fog", "雾"),
    48: ("freezing fog", "雾凇"),
    51: ("light drizzle", "小毛毛雨"),
    53: ("drizzle", "毛毛雨"),
    55: ("heavy drizzle", "大毛毛雨"),
    56: ("light freezing drizzle", "轻微冻毛毛雨"),
    57: ("freezing drizzle", "冻毛毛雨"),
    61: ("light rain", "小雨"),
    63: ("rain", "中雨"),
    65: ("heavy rain", "大雨"),
    66: ("light freezing rain", "轻微冻雨"),
    67: ("freezing rain", "冻雨"),
    71: ("light snow", "小雪"),
    73: ("snow", "中雪"),
    75: ("heavy snow", "大雪"),
    77: ("snow grains", "米雪"),
    80: ("light showers", "小阵雨"),
    81: ("showers", "阵雨"),
    82: ("violent showers", "强阵雨"),
    85: ("light snow showers", "小阵雪"),
    86: ("snow showers", "阵雪"),
    95: ("thunderstorm", "雷阵雨"),
    96: ("thunderstorm with hail", "雷阵雨伴冰雹"),
    99: ("thunderstorm with heavy hail", "雷阵雨伴大冰雹"),
}


class CityWeather(TypedDict):
    """Weather of a city at one moment of its local time; conditions in English and Chinese."""

    city: str
    country: str
    time: str
    conditions: str
    conditions_chinese: str
    temperature_c: float
    feels_like_c: float
    humidity_percent: float
    wind_kmh: float
    source: str


@tool(access="read", timeout=20)
async def get_weather(city: str) -> CityWeather | str:
    """Get the current weather of a city. When the weather service cannot be reached, the result says so.

    Args:
        city: Name of the city in English or Chinese, such as Beijing; a country may follow, as in Paris, France.
    """
    known = known_city(city)
    try:
        async with connect() as service:
            place = await service.locate(known.name if known else city)
            if place is None:
                raise ValueError(_not_found(city))
            return _report(place, await service.current(place))
    except WeatherUnavailable as error:
        return str(error)


def _report(place: Place, now: CurrentWeather) -> CityWeather:
    english, chinese = CONDITIONS.get(now.weather_code, (f"weather code {now.weather_code}",) * 2)
    return {
        "city": place.name,
        "country": ", ".join(part for part in (place.admin1, place.country) if part and part != place.name),
        "time": now.time,
        "conditions": english,
        "conditions_chinese": chinese,
        "temperature_c": now.temperature_2m,
        "feels_like_c": now.apparent_temperature,
        "humidity_percent": now.relative_humidity_2m,
        "wind_kmh": now.wind_speed_10m,
        "source": "Open-Meteo",
    }


def _not_found(city: str) -> str:
    alike = nearest(city, (name for each in CITIES for name in (each.name, each.chinese)))
    hint = f"; nearest: {', '.join(alike)}" if alike else ""
    return f"no city called {city!r} was found{hint}; try its English name, or add the country as in Paris, France"
