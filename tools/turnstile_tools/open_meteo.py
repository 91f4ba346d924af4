"""A small client for Open-Meteo: where a place is, its weather now, and its usual weather in a month.

Open-Meteo is a public HTTP API that needs no key for non-commercial use. The endpoints and parameters are those of its
documentation: https://open-meteo.com/en/docs (forecast), /en/docs/geocoding-api and /en/docs/historical-weather-api.

Addresses come from the environment, so that a proxy or one's own instance can stand in:
- `TURNSTILE_OPEN_METEO_URL`: one base for everything, such as http://127.0.0.1:8080 (its paths are /v1/forecast,
  /v1/archive and /v1/search)
- `TURNSTILE_OPEN_METEO_GEOCODING_URL`: another base for /v1/search alone, which the open-source server does not have

What goes wrong outside is one error, `WeatherUnavailable`, whose text is fit to be read by a model. Answers are taken
strictly: a field that is missing, of another type or beyond what a planet allows makes the answer unusable.
"""

import asyncio
import calendar
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Annotated, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

# One month of three daily values is about 2 kB, a geocoding answer less.
MAX_BODY = 256 * 1024
# A person waits for the answer, and the tools have something to say without it.
PATIENCE = 8.0
LAST_PORT = 65535  # ports have 16 bits (RFC 9293, section 3.1)
# Whole years in the past, so that the same question gets the same answer. They are asked for as five single months,
# since a request weighs (days / 14) calls of the free quota (https://open-meteo.com/en/pricing): 11 for these five, 130
# for five years in one piece.
CLIMATE_YEARS = range(2020, 2025)

_Celsius = Annotated[float, Field(ge=-100, le=70, allow_inf_nan=False)]
_Millimetres = Annotated[float, Field(ge=0, le=2000, allow_inf_nan=False)]
_Name = Annotated[str, Field(min_length=1, max_length=100)]


class WeatherUnavailable(Exception):
    """The weather service could not be reached, or what it answered is of no use; the text says which."""


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Place(_Answer):
    """A place that geocoding found, with its coordinates in degrees."""

    name: _Name
    latitude: float = Field(ge=-90, le=90, allow_inf_nan=False)
    longitude: float = Field(ge=-180, le=180, allow_inf_nan=False)
    country: _Name | None = None
    admin1: _Name | None = None


class CurrentWeather(_Answer):
    """Weather at one moment of local time: °C, percent, km/h and a WMO code (see `turnstile_tools.weather`)."""

    time: _Name
    temperature_2m: _Celsius
    apparent_temperature: _Celsius
    relative_humidity_2m: float = Field(ge=0, le=100)
    wind_speed_10m: float = Field(ge=0, le=500, allow_inf_nan=False)
    weather_code: int = Field(ge=0, le=99)


@dataclass(frozen=True, slots=True)
class MonthlyClimate:
    """Means of one month over several years: daily high and low in °C, and rain in mm a month."""

    high: float
    low: float
    rain_mm: float


class _Places(_Answer):
    results: tuple[Place, ...] = ()  # the key is absent when nothing was found


class _Current(_Answer):
    current: CurrentWeather


class _Daily(_Answer):
    temperature_2m_max: list[_Celsius | None] = Field(min_length=28)
    temperature_2m_min: list[_Celsius | None] = Field(min_length=28)
    precipitation_sum: list[_Millimetres | None] = Field(min_length=28)


class _Archive(_Answer):
    daily: _Daily


class _Refusal(_Answer):
    reason: str


@dataclass(frozen=True)
class Addresses:
    """The three bases of Open-Meteo's API, without a trailing slash."""

    forecast: str = "https://api.open-meteo.com"
    archive: str = "https://archive-api.open-meteo.com"
    geocoding: str = "https://geocoding-api.open-meteo.com"

    @classmethod
    def from_environment(cls) -> "Addresses":
        """The public addresses, unless the two variables named above say otherwise."""
        base = os.environ.get("TURNSTILE_OPEN_METEO_URL", "").rstrip("/")
        geocoding = os.environ.get("TURNSTILE_OPEN_METEO_GEOCODING_URL", "").rstrip("/") or base
        return cls(base or cls.forecast, base or cls.archive, geocoding or cls.geocoding)


@asynccontextmanager
async def connect(addresses: Addresses | None = None, *, patience: float = PATIENCE) -> AsyncIterator["OpenMeteo"]:
    """A client with one connection pool, closed at the end of the block; each answer may take `patience` seconds."""
    # Compression is declined so that MAX_BODY bounds what is held in memory, not only what came over the wire.
    headers = {"Accept-Encoding": "identity", "User-Agent": "turnstile-agent"}
    async with httpx.AsyncClient(headers=headers, timeout=patience, verify=_certificates()) as http:
        yield OpenMeteo(http, addresses or Addresses.from_environment(), patience)


@cache
def _certificates() -> ssl.SSLContext:
    """What httpx trusts by default, read once: it takes 40 ms, in which no other tool gets on."""
    return httpx.create_ssl_context()


_AnswerT = TypeVar("_AnswerT", bound=_Answer)


@dataclass(frozen=True, slots=True)
class OpenMeteo:
    """The three questions; each raises `WeatherUnavailable` when there is no usable answer. Made by `connect`."""

    http: httpx.AsyncClient
    addresses: Addresses
    patience: float

    async def locate(self, name: str) -> Place | None:
        """The best known place of that name, or None. A country may follow: "Paris, France"."""
        url = f"{self.addresses.geocoding}/v1/search"
        found = await self._ask(url, {"name": name, "count": "1", "language": "en", "format": "json"}, _Places)
        return found.results[0] if found.results else None

    async def current(self, place: Place) -> CurrentWeather:
        """The weather at a place now."""
        fields = ",".join(name for name in CurrentWeather.model_fields if name != "time")
        params = {**_coordinates(place.latitude, place.longitude), "current": fields}
        return (await self._ask(f"{self.addresses.forecast}/v1/forecast", params, _Current)).current

    async def monthly(self, latitude: float, longitude: float, month: int) -> MonthlyClimate:
        """What a month (1 to 12) was like at that point on average, from the archive of `CLIMATE_YEARS`."""
        params = [
            {
                **_coordinates(latitude, longitude),
                "start_date": f"{year}-{month:02}-01",
                "end_date": f"{year}-{month:02}-{calendar.monthrange(year, month)[1]}",
                "daily": ",".join(_Daily.model_fields),
            }
            for year in CLIMATE_YEARS
        ]
        url = f"{self.addresses.archive}/v1/archive"
        try:
            async with asyncio.TaskGroup() as group:
                answers = [group.create_task(self._ask(url, each, _Archive)) for each in params]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # the first says enough; the other requests were given up with it
        years = [answer.result().daily for answer in answers]
        return MonthlyClimate(
            high=_mean([value for year in years for value in year.temperature_2m_max], url),
            low=_mean([value for year in years for value in year.temperature_2m_min], url),
            rain_mm=_mean([value for year in years for value in year.precipitation_sum], url)
            * calendar.monthrange(CLIMATE_YEARS[-1], month)[1],
        )

    async def _ask(self, url: str, params: Mapping[str, str], shape: type[_AnswerT]) -> _AnswerT:
        try:
            _check_port(url)
            # httpx limits each read; a server that drips would go on for ever.
            async with asyncio.timeout(self.patience):
                status, body = await self._read(url, params)
        except (TimeoutError, httpx.TimeoutException):
            raise WeatherUnavailable(
                f"weather service unreachable: no answer from {url} in {self.patience:g} s"
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # idna's errors are of the last kind
            raise WeatherUnavailable(
                f"weather service unreachable: {url}: {str(error) or type(error).__name__}"
            ) from error
        if status != httpx.codes.OK:
            raise WeatherUnavailable(f"weather service failed: HTTP {status} from {url}{_reason(body)}")
        try:
            return shape.model_validate_json(body)
        except ValidationError as error:
            raise WeatherUnavailable(
                f"weather service failed: unexpected answer from {url}: {_first(error)}"
            ) from error

    async def _read(self, url: str, params: Mapping[str, str]) -> tuple[int, bytes]:
        body = bytearray()
        async with self.http.stream("GET", url, params=dict(params)) as response:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MAX_BODY:
                    raise WeatherUnavailable(f"weather service failed: over {MAX_BODY} bytes from {url}")
        return response.status_code, bytes(body)


def _check_port(url: str) -> None:
    """Refuse a port that does not exist, which httpx lets through to the socket, where it fails inside a task group."""
    port = httpx.URL(url).port
    if port is not None and not 0 <= port <= LAST_PORT:
        raise httpx.InvalidURL(f"no port {port}: expected 0 to {LAST_PORT}")


def _coordinates(latitude: float, longitude: float) -> dict[str, str]:
    return {"latitude": str(latitude), "longitude": str(longitude), "timezone": "auto"}


def _mean(values: list[float | None], url: str) -> float:
    """The mean of the days there are; the archive marks a missing day with null."""
    known = [value for value in values if value is not None]
    if len(known) * 2 < len(values):
        raise WeatherUnavailable(f"weather service failed: {len(known)} of {len(values)} days from {url}")
    return fmean(known)


def _reason(body: bytes) -> str:
    """What Open-Meteo says is wrong, as `{"error": true, "reason": "…"}`, cut to a line."""
    try:
        reason = _Refusal.model_validate_json(body).reason
    except ValidationError:
        return ""
    return f": {' '.join(reason.split())[:200]}" if reason.strip() else ""


def _first(error: ValidationError) -> str:
    """The first thing wrong with an answer, without the answer itself."""
    wrong = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, wrong["loc"]))
    return f"{where}: {wrong['msg']}" if where else wrong["msg"]
