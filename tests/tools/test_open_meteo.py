"""The weather client against a server on loopback, on good days and bad."""

import json
import re
from collections.abc import Callable, Mapping
from urllib.parse import parse_qs, urlsplit

import pytest

from turnstile_tools.open_meteo import (
    MAX_BODY,
    Addresses,
    CurrentWeather,
    Place,
    WeatherUnavailable,
    connect,
)

Serve = Callable[[Mapping[str, object]], str]

BEIJING = Place(name="Beijing", latitude=39.9, longitude=116.4, country="China")
PLACES = {"results": [{"name": "Beijing", "latitude": 39.9, "longitude": 116.4, "country": "China", "id": 1816670}]}
CURRENT: dict[str, object] = {
    "time": "2025-10-03T20:00",
    "interval": 900,
    "temperature_2m": 18,
    "apparent_temperature": 17.2,
    "relative_humidity_2m": 41,
    "wind_speed_10m": 7.4,
    "weather_code": 2,
}


def _ok(body: object) -> tuple[int, bytes]:
    return 200, json.dumps(body).encode()


def _month(days: int, **changed: object) -> tuple[int, bytes]:
    daily = {
        "temperature_2m_max": [20.0] * days,
        "temperature_2m_min": [10.0] * days,
        "precipitation_sum": [1.5] * days,
    }
    return _ok({"daily": daily | changed})


async def test_place_is_found(serve: Serve, asked: list[str]) -> None:
    """The best match is taken, and the answer's other fields are let be."""
    serve({"/v1/search": _ok(PLACES)})
    async with connect() as service:
        assert await service.locate("Běijīng & co") == BEIJING
    assert parse_qs(urlsplit(asked[0]).query)["name"] == ["Běijīng & co"]


@pytest.mark.parametrize("body", [{"generationtime_ms": 0.5}, {"results": []}])
async def test_unknown_place_is_none(serve: Serve, body: object) -> None:
    """Open-Meteo leaves the key out when nothing was found; that is an answer, not a failure."""
    serve({"/v1/search": _ok(body)})
    async with connect() as service:
        assert await service.locate("Nowhere") is None


async def test_current_weather(serve: Serve, asked: list[str]) -> None:
    """Each field that is read is asked for, in the place's own time."""
    serve({"/v1/forecast": _ok({"current": CURRENT})})
    async with connect() as service:
        assert await service.current(BEIJING) == CurrentWeather.model_validate(CURRENT)
    query = parse_qs(urlsplit(asked[0]).query)
    assert set(query["current"][0].split(",")) == set(CurrentWeather.model_fields) - {"time"}
    assert (query["latitude"], query["longitude"], query["timezone"]) == (["39.9"], ["116.4"], ["auto"])


async def test_monthly_climate_is_the_mean_of_five_years(serve: Serve, asked: list[str]) -> None:
    """Rain is a sum over the month, temperatures are means, and February ends on the right day."""
    serve({"/v1/archive": _month(29, temperature_2m_max=[19.0, None] + [20.0] * 27)})
    async with connect() as service:
        climate = await service.monthly(25.02, 98.49, 2)
    assert climate.high == pytest.approx((19 + 27 * 20) / 28)
    assert climate.low == pytest.approx(10)
    assert climate.rain_mm == pytest.approx(1.5 * 29)
    ends = sorted(parse_qs(urlsplit(path).query)["end_date"][0] for path in asked)
    assert ends == ["2020-02-29", "2021-02-28", "2022-02-28", "2023-02-28", "2024-02-29"]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((500, b"<h1>Internal Server Error</h1>"), "HTTP 500 from .*/v1/forecast$"),
        (
            (429, b'{"error":true,"reason":"Minutely API request\\n limit exceeded."}'),
            "HTTP 429 .*: Minutely API request limit",
        ),
        ((400, b'{"error":true,"reason":" "}'), "HTTP 400 from .*/v1/forecast$"),
        ((302, b""), "HTTP 302"),
        ((200, b""), "unexpected answer .*: Invalid JSON"),
        ((200, b"<html>captive portal</html>"), "unexpected answer .*: Invalid JSON"),
        ((200, b"\xff\xfe"), "unexpected answer"),
        ((200, b"[]"), "unexpected answer"),
        (_ok({"current": None}), "unexpected answer .*: current"),
        (
            _ok({"current": CURRENT | {"temperature_2m": "18"}}),
            "current.temperature_2m: Input should be a valid number",
        ),
        (_ok({"current": CURRENT | {"temperature_2m": 451}}), "current.temperature_2m: .*less than or equal to 70"),
        ((200, json.dumps({"current": CURRENT | {"temperature_2m": float("nan")}}).encode()), "current.temperature_2m"),
        ((200, b"[" * 100_000), "unexpected answer"),
        ((200, b" " * (MAX_BODY + 1)), f"over {MAX_BODY} bytes"),
    ],
)
async def test_odd_answers_are_one_clear_error(serve: Serve, reply: tuple[int, bytes], message: str) -> None:
    """Whatever comes back, the model reads one line that says which service failed and how."""
    url = serve({"/v1/forecast": reply})
    async with connect() as service:
        with pytest.raises(WeatherUnavailable, match=rf"^weather service failed: .*{message}") as error:
            await service.current(BEIJING)
    assert url in str(error.value)
    assert "\n" not in str(error.value)


async def test_month_with_most_days_missing_is_no_climate(serve: Serve) -> None:
    """A mean of a handful of days would look as good as a real one."""
    serve({"/v1/archive": _month(31, precipitation_sum=[None] * 31)})
    async with connect() as service:
        with pytest.raises(WeatherUnavailable, match="0 of 155 days"):
            await service.monthly(25.02, 98.49, 10)


async def test_silent_server_is_given_up_on(serve: Serve) -> None:
    """A server that takes the request and never answers must not hold the run."""
    serve({"/v1/forecast": None})
    async with connect(patience=0.05) as service:
        with pytest.raises(WeatherUnavailable, match=r"unreachable: no answer from .*/v1/forecast in 0.05 s"):
            await service.current(BEIJING)


@pytest.mark.usefixtures("offline")
async def test_refused_connection_is_unreachable() -> None:
    """Without a network the tools still have something true to say."""
    async with connect() as service:
        with pytest.raises(WeatherUnavailable, match="weather service unreachable: http://127"):
            await service.current(BEIJING)


@pytest.mark.parametrize(
    ("base", "problem"),
    [
        ("not a url", "missing an 'http://' or 'https://' protocol"),
        ("ftp://127.0.0.1", "unsupported protocol 'ftp://'"),
        ("http://127.0.0.1:port", "Invalid port: 'port'"),
        ("http://127.0.0.1:65536", "no port 65536: expected 0 to 65535"),
        ("http://127.0.0.1:-1", "no port -1: expected 0 to 65535"),
        ("http://xn--", "Malformed A-label"),
    ],
)
async def test_wrong_address_is_named(base: str, problem: str) -> None:
    """A slip in the variable shows up in the message instead of as a crash."""
    async with connect(Addresses(base, base, base)) as service:
        with pytest.raises(WeatherUnavailable, match=re.escape(problem)) as error:
            await service.current(BEIJING)
        with pytest.raises(WeatherUnavailable, match=re.escape(problem)):
            await service.monthly(25.02, 98.49, 2)
    assert base in str(error.value)


def test_addresses_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """One variable moves everything; a second moves geocoding alone, which one's own server does not have."""
    assert Addresses.from_environment() == Addresses()
    monkeypatch.setenv("TURNSTILE_OPEN_METEO_URL", "http://127.0.0.1:1/")
    assert Addresses.from_environment() == Addresses(*["http://127.0.0.1:1"] * 3)
    monkeypatch.setenv("TURNSTILE_OPEN_METEO_GEOCODING_URL", "http://127.0.0.1:2")
    assert Addresses.from_environment().geocoding == "http://127.0.0.1:2"
    monkeypatch.delenv("TURNSTILE_OPEN_METEO_URL")
    assert Addresses.from_environment() == Addresses(geocoding="http://127.0.0.1:2")
