"""What travellers say of a trip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile_tools.agents.trip import Trip, trip_in
from turnstile_tools.cities import known_city

SHANGHAI = known_city("Shanghai")


@pytest.mark.parametrize(
    ("text", "trip"),
    [
        (
            "I'm in Shanghai, have 4 days off in October, like nature and quiet small towns",
            Trip(month=10, days=4, tastes=("nature", "quiet", "small town"), start=SHANGHAI),
        ),
        (
            "我在上海，十月有4天假，喜欢自然和安静的小镇",
            Trip(month=10, days=4, tastes=("自然", "安静", "小镇"), start=SHANGHAI),
        ),
        ("a four-day trip, from Beijing, in May", Trip(month=5, days=4, start=known_city("Beijing"))),
        ("I may have a week in December or January", Trip(month=1, other_months=(12,), days=7)),
        ("国庆假期两周，成都出发", Trip(month=10, days=14, start=known_city("成都"))),
        ("春节二十一天", Trip(month=2, days=21)),
        ("周末去看海", Trip(days=2, tastes=("看海",))),
        ("a long weekend this summer with hot springs", Trip(month=7, days=3, tastes=("hot spring",))),
        ("Hongcun and 大理, 0 days", Trip(places=("大理", "Hongcun"))),
        (
            "I live in Chengdu and want to see Guilin in the fall",
            Trip(month=10, places=("Guilin",), start=known_city("成都")),
        ),
        ("13月", Trip()),
        ("thanks", Trip()),
    ],
)
def test_reads_a_trip(text: str, trip: Trip) -> None:
    """Each fact is found however it is written, and where the traveller lives is not where they want to go."""
    assert trip_in([text]) == trip


def test_the_newest_word_counts() -> None:
    """In a chat a traveller changes one thing and keeps the rest; a new wish takes the place of the old."""
    first = "5 days in October or May, I like food"
    assert trip_in([first, "what about June?"]) == Trip(month=6, days=5, tastes=("food",))
    assert trip_in([first, "rather Dali"]) == Trip(month=5, other_months=(10,), days=5, places=("Dali",))
    assert trip_in([first, "rather Dali", "or the sea"]).tastes == ("sea",)
    assert trip_in([]) == Trip()


@given(st.text(max_size=60) | st.text(alphabet="0123456789一二三十两天日月周 dayweknoct-May", max_size=30))
def test_any_text_is_read(text: str) -> None:
    """Whatever a traveller types, what is found lies within what the tools take."""
    trip = trip_in([text])
    assert trip.month is None or 1 <= trip.month <= 12
    assert trip.days is None or trip.days >= 1
