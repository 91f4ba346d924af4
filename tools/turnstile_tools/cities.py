"""Well-known cities in English and Chinese, with their time zones.

Two gaps are filled here. The time zone database names a zone after one city (all of China is Asia/Shanghai), and
Open-Meteo's geocoding puts villages of the same name before Beijing when asked for "北京" (open-meteo/geocoding-api,
issue 20), so Chinese names are looked up by their English ones.
"""

import re
from functools import cache
from typing import NamedTuple

from turnstile_tools.destinations import catalogue
from turnstile_tools.matching import fold


class City(NamedTuple):
    """A city's English and Chinese names and its IANA time zone."""

    name: str
    chinese: str
    zone: str


_CHINA = "Asia/Shanghai"

CITIES = (
    City("Beijing", "北京", _CHINA),
    City("Shanghai", "上海", _CHINA),
    City("Guangzhou", "广州", _CHINA),
    City("Shenzhen", "深圳", _CHINA),
    City("Hangzhou", "杭州", _CHINA),
    City("Nanjing", "南京", _CHINA),
    City("Suzhou", "苏州", _CHINA),
    City("Wuhan", "武汉", _CHINA),
    City("Xi'an", "西安", _CHINA),
    City("Chongqing", "重庆", _CHINA),
    City("Tianjin", "天津", _CHINA),
    City("Kunming", "昆明", _CHINA),
    City("Lhasa", "拉萨", _CHINA),
    City("Urumqi", "乌鲁木齐", _CHINA),
    City("Hohhot", "呼和浩特", _CHINA),
    City("Hong Kong", "香港", "Asia/Hong_Kong"),
    City("Macau", "澳门", "Asia/Macau"),
    City("Taipei", "台北", "Asia/Taipei"),
    City("Tokyo", "东京", "Asia/Tokyo"),
    City("Osaka", "大阪", "Asia/Tokyo"),
    City("Seoul", "首尔", "Asia/Seoul"),
    City("Singapore", "新加坡", "Asia/Singapore"),
    City("Bangkok", "曼谷", "Asia/Bangkok"),
    City("Delhi", "德里", "Asia/Kolkata"),
    City("Mumbai", "孟买", "Asia/Kolkata"),
    City("Bangalore", "班加罗尔", "Asia/Kolkata"),
    City("Dubai", "迪拜", "Asia/Dubai"),
    City("Sydney", "悉尼", "Australia/Sydney"),
    City("Moscow", "莫斯科", "Europe/Moscow"),
    City("Berlin", "柏林", "Europe/Berlin"),
    City("Munich", "慕尼黑", "Europe/Berlin"),
    City("Paris", "巴黎", "Europe/Paris"),
    City("London", "伦敦", "Europe/London"),
    City("New York", "纽约", "America/New_York"),
    City("Washington", "华盛顿", "America/New_York"),
    City("Boston", "波士顿", "America/New_York"),
    City("Chicago", "芝加哥", "America/Chicago"),
    City("San Francisco", "旧金山", "America/Los_Angeles"),
    City("Seattle", "西雅图", "America/Los_Angeles"),
    City("Los Angeles", "洛杉矶", "America/Los_Angeles"),
)


@cache
def known_cities() -> tuple[City, ...]:
    """The cities above, and the bundled destinations."""
    return (*CITIES, *(City(place.name, place.chinese, _CHINA) for place in catalogue().destinations))


def known_city(name: str) -> City | None:
    """The known city of that English or Chinese name, or None."""
    wanted = fold(name).removesuffix("市")
    return next((city for city in known_cities() if wanted in (fold(city.name), city.chinese)), None)


def cities_in(text: str) -> list[tuple[int, str]]:
    """Where a text names which known city, in the language it uses; English names count as whole words."""
    found = [(match.start(), match[0]) for match in city_names().finditer(text)]
    return [
        (place, city.chinese if name == city.chinese else city.name)
        for place, name in found
        if (city := known_city(name.replace("’", "'")))
    ]


@cache
def city_names() -> re.Pattern[str]:
    """Matches the name of any known city."""
    english = "|".join(re.escape(city.name).replace("'", "['’]?").replace(r"\ ", r"\s+") for city in known_cities())
    chinese = "|".join(re.escape(city.chinese) for city in known_cities())
    return re.compile(rf"(?<![a-z])(?:{english})(?![a-z])|{chinese}", re.IGNORECASE)
