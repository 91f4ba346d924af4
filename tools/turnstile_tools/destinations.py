"""The bundled destinations: about twenty places in China, checked when they are first read.

The facts stand in `data/destinations.toml`, which says at its top what they are worth. A file that breaks a rule below
is refused as a whole, with pydantic's list of what is wrong where.
"""

import tomllib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from turnstile_tools.matching import fold, mentions, nearest

MONTHS_A_YEAR = 12

Text = Annotated[str, Field(min_length=1)]
Month = Annotated[int, Field(ge=1, le=MONTHS_A_YEAR)]


def _rising(months: tuple[int, ...]) -> tuple[int, ...]:
    if list(months) != sorted(set(months)):
        raise ValueError(f"months must rise without repeats, got {months!r}")
    return months


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Climate(_Frozen):
    """Twelve approximate monthly means of a place, January first: daily high and low in °C, rain in mm a month."""

    basis: Text
    high: tuple[Annotated[int, Field(ge=-40, le=45)], ...] = Field(min_length=MONTHS_A_YEAR, max_length=MONTHS_A_YEAR)
    low: tuple[Annotated[int, Field(ge=-50, le=35)], ...] = Field(min_length=MONTHS_A_YEAR, max_length=MONTHS_A_YEAR)
    rain_mm: tuple[Annotated[int, Field(ge=0, le=900)], ...] = Field(min_length=MONTHS_A_YEAR, max_length=MONTHS_A_YEAR)

    @model_validator(mode="after")
    def _nights_are_cooler(self) -> Self:
        for month, (high, low) in enumerate(zip(self.high, self.low, strict=True), start=1):
            if low >= high:
                raise ValueError(f"month {month}: the low must be below the high, got {low} and {high}")
        return self


class Attraction(_Frozen):
    """One sight: its names, how many half days it takes at an easy pace (1 or 2), and why one goes."""

    name: Text
    chinese: Text
    half_days: int = Field(ge=1, le=2)
    why: Text
    why_chinese: Text


class Destination(_Frozen):
    """One place to travel to; times from Shanghai are rough guesses from door to door."""

    name: Text
    chinese: Text
    aliases: tuple[Text, ...]
    province: Text
    province_chinese: Text
    latitude: float = Field(ge=18, le=54)  # the mainland with Hainan
    longitude: float = Field(ge=73, le=135)
    best_months: Annotated[tuple[Month, ...], Field(min_length=1), AfterValidator(_rising)]
    tags: tuple[Text, ...] = Field(min_length=1)
    hours_from_shanghai: int = Field(ge=1, le=24)
    route: Text
    route_chinese: Text
    summary: Text
    summary_chinese: Text
    sources: tuple[Text, ...] = Field(min_length=1)
    climate: Climate
    attractions: tuple[Attraction, ...] = Field(min_length=3)

    @property
    def names(self) -> tuple[str, ...]:
        """Everything this place is called, the English name first."""
        return (self.name, self.chinese, *self.aliases)


class Tag(_Frozen):
    """One kind of preference: its Chinese name, the words by which a free text means it, and when it is to be had."""

    chinese: Text
    months: Annotated[tuple[Month, ...], Field(min_length=1), AfterValidator(_rising)] = tuple(range(1, 13))
    words: tuple[Text, ...] = Field(min_length=1)


class Catalogue(_Frozen):
    """All destinations in the file's order, and the preferences they are tagged with."""

    tags: dict[str, Tag]
    destinations: tuple[Destination, ...]

    @model_validator(mode="after")
    def _names_lead_to_one_place(self) -> Self:
        owners: dict[str, str] = {}
        for place in self.destinations:
            for name in place.names:
                if owners.setdefault(fold(name), place.name) != place.name:
                    raise ValueError(f"{name!r} names both {owners[fold(name)]!r} and {place.name!r}")
            if unknown := set(place.tags) - set(self.tags):
                raise ValueError(f"{place.name!r} has tags that are not defined: {sorted(unknown)!r}")
        return self

    def find(self, name: str) -> Destination:
        """The one destination that a text names, in English or Chinese: "Dali", "云南大理", "Hongcun, Anhui".

        Raises:
            ValueError: none is named, or more than one; the message lists the nearest and all choices.
        """
        found = self.named_in(name)
        if len(found) == 1:
            return found[0]
        if found:
            raise ValueError(f"{name!r} names more than one destination: {_list(found)}; ask for one of them")
        alike = nearest(name, (known for place in self.destinations for known in place.names))
        hint = f"; nearest: {', '.join(alike)}" if alike else ""
        raise ValueError(f"no destination is called {name!r}{hint}; known: {_list(self.destinations)}")

    def named_in(self, text: str) -> list[Destination]:
        """All destinations that a text names, in English or Chinese, in the file's order."""
        return [place for place in self.destinations if any(mentions(text, known) for known in place.names)]

    def in_season(self, place: Destination, month: int, wanted: Iterable[str]) -> bool:
        """Whether a month is good for a place and for what is wanted of it: Harbin is fine in July, but not for ice."""
        months = (self.tags[tag].months for tag in wanted if tag in place.tags)
        return month in place.best_months and all(month in those for those in months)

    def preferences_in(self, text: str) -> tuple[str, ...]:
        """The tags that a free text asks for, in the file's order. What it says it dislikes is not understood."""
        return tuple(key for key, tag in self.tags.items() if any(mentions(text, word) for word in (key, *tag.words)))


def parse_catalogue(text: str) -> Catalogue:
    """A checked catalogue from TOML text.

    Raises:
        ValueError: the text is not TOML (`tomllib.TOMLDecodeError`) or breaks a rule (`pydantic.ValidationError`).
    """
    return Catalogue.model_validate(tomllib.loads(text))


@cache
def catalogue() -> Catalogue:
    """The bundled catalogue, read and checked once."""
    return parse_catalogue((resources.files("turnstile_tools") / "data/destinations.toml").read_text("utf-8"))


def _list(places: Iterable[Destination]) -> str:
    return ", ".join(f"{place.name} ({place.chinese})" for place in places)
