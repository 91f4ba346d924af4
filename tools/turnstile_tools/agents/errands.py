"""Finds the errands in a message: the weather of which cities, the time where, and which sums.

A message is cut into parts at punctuation. In each, topics and places stand in groups: English mostly names the topic
first ("the weather in Rome and Oslo, and the time in Tokyo"), Chinese the places ("罗马和米兰的天气"). A group
that lacks one of the two takes it from its neighbours, and a message such as "And in Oslo?" from the messages before.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from turnstile import ToolCall
from turnstile.testing import call
from turnstile_tools.agents.offline import is_chinese
from turnstile_tools.agents.sums import sums_in
from turnstile_tools.cities import cities_in, city_names
from turnstile_tools.months import months_in

Topic = Literal["weather", "time"]

HERE = "local"  # what the tool calls the zone of the computer that runs this

_TOPICS: dict[Topic, re.Pattern[str]] = {
    "weather": re.compile(
        r"\b(?:weather|temperatures?|forecast|warm|cold|hot|humid|humidity|windy?|rain\w*|snow\w*|sunny|degrees)\b"
        r"|天气|气温|温度|多少度|下雨|下雪|[冷热](?=不|吗)",
        re.IGNORECASE,
    ),
    "time": re.compile(
        r"(?<!this )(?<!same )(?<!next )(?<!last )\btime\b|\bdate\b|\bwhat day\b|\bweekday\b"
        r"|几点|时间|日期|几号|(?:星期|周|礼拜)几",
        re.IGNORECASE,
    ),
}
_BREAK = re.compile(r"[?？!！;；,，。:：\n]|\.(?=\s|$)")
_THERE = re.compile(r"\bthere\b|那里|那边|那儿|当地", re.IGNORECASE)
_ZONE = re.compile(r"\b(?:UTC|GMT)(?:\s*[-+−]\s*\d{1,2}(?::\d\d)?|\b)|\b[A-Z][A-Za-z]+/[A-Z][A-Za-z_]+\b")

# Cities that are in no list of ours: with capitals after a preposition, last in an English part, first in a Chinese
# one, or all that a message names.
_CAPITALISED = r"[^\W\d_a-z][\w'’-]*(?:\s[^\W\d_a-z][\w'’-]*)*"
_LISTED = re.compile(rf"\b(?i:in|for|at|of)\s+({_CAPITALISED}(?:(?:\s*,\s*|\s*,?\s+and\s+){_CAPITALISED})*)")
_LAST = re.compile(
    r"\b(?:in|for|at|of)\s+(?!the\b|my\b)([^\W\d_][\w'’ -]*?)"
    r"(?:\s+(?:right now|now|today|tonight|tomorrow|please|too|as well|like)\b.*)?\s*$",
    re.IGNORECASE,
)
_WHEN = "现在|今天|今日|明天|后天|周末|目前|当前|today|tomorrow|tonight|later|now"
_FIRST = re.compile(
    rf"\s*(?:请问|请|麻烦|告诉我|帮我|给我|你能|能不能|可以|我?想知道|查一下|查查|查询|查|看看|那|在|一下|外面|这里|会不会|会|{_WHEN})*+"
    rf"([\u4e00-\u9fff、]{{2,}}?)(?:市|的|是|会不会|会|{_WHEN})*"
    r"(?:天气|气温|温度|多少度|几点|时间|日期|几号|星期几|周几|下雨|下雪|[冷热](?=不|吗))"
)
_AND = re.compile("、|(?<=[\u4e00-\u9fff]{2})[和与跟](?=[\u4e00-\u9fff]{2})")  # 呼和浩特 is one city
_FOLLOWING = re.compile(
    r"(?i:\W*(?:and|what about|how about|or)(?: in)? ([^\W\d_][\w'’ -]*?)\W*)|那?在?([\u4e00-\u9fff]{2,6}?)呢\W*"
)
_FILLER = re.compile(
    r"(?:\b(?:and|or|what about|how about|in|for|then|please)\b|[呢那在和与跟还有也]|\W)*", re.IGNORECASE
)


class Errand(NamedTuple):
    """One thing to find out: the weather of a city, the time in a zone, or the value of an expression.

    Attributes:
        kind: Which of them.
        about: The city, zone or expression; empty when nobody said which city.
    """

    kind: Literal["weather", "time", "sum"]
    about: str

    @property
    def call(self) -> ToolCall:
        """The tool call that does it."""
        if self.kind == "weather":
            return call("get_weather", city=self.about)
        if self.kind == "time":
            return call("get_current_time", timezone=self.about)
        return call("calculate", expression=self.about)


class _Named(NamedTuple):
    """A topic or a place that a text names, and where."""

    start: int
    topic: Topic | None
    place: str = ""


@dataclass(slots=True)
class _Group:
    """Topics and places that belong together, and where they start.

    Attributes:
        alone: Whether it has places without a topic of its own.
        there: Whether it points back to a place.
    """

    start: int
    topics: list[Topic] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    alone: bool = False
    there: bool = False


def errands_in(message: str, before: Sequence[str] = (), last_sum: str = "") -> list[Errand]:
    """What a message asks for, in its order, each once.

    Args:
        message: What the user wrote.
        before: The user's earlier messages, oldest first.
        last_sum: The result of the last sum.
    """
    sums, text = sums_in(message, last_sum)
    groups = _groups(text)
    if not any(group.topics for group in groups):
        groups = _following(text, groups, before)
    _share_topics(groups)
    _share_places(groups, before)
    found = [(each.start, Errand("sum", each.expression)) for each in sums]
    found += [(group.start, Errand(topic, name)) for group in groups for topic in group.topics for name in group.places]
    return list(dict.fromkeys(errand for _, errand in sorted(found, key=lambda each: each[0])))


def _groups(text: str) -> list[_Group]:
    """The groups of all parts of a text, in its order."""
    named = sorted(_named(text), key=lambda each: each.start)
    edges = [0, *(edge for match in _BREAK.finditer(text) for edge in match.span()), len(text)]
    groups: list[_Group] = []
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        groups += _grouped([each for each in named if start <= each.start < end], text[start:end])
    return groups


def _named(text: str) -> Iterator[_Named]:
    for topic, pattern in _TOPICS.items():
        yield from (_Named(match.start(), topic) for match in pattern.finditer(text))
    yield from (_Named(match.start(), None, match[0]) for match in _ZONE.finditer(text))
    text = _ZONE.sub(lambda match: " " * len(match[0]), text)  # so that Asia/Tokyo is not Tokyo once more
    known = dict(cities_in(text))
    yield from (_Named(start, None, city) for start, city in known.items())
    for listed in _LISTED.finditer(text):
        for match in re.finditer(_CAPITALISED, listed[1]):
            start = listed.start(1) + match.start()
            if start not in known and not months_in(match[0]):
                yield _Named(start, None, match[0])


def _grouped(named: Sequence[_Named], part: str) -> list[_Group]:
    """The groups of one part: a new one begins where what leads comes again after what follows it."""
    if not named:
        return []
    places_lead = is_chinese(part) or named[0].topic is None
    groups = [_Group(named[0].start)]
    for start, topic, place in named:
        leads = (topic is None) == places_lead
        if leads and (groups[-1].topics if places_lead else groups[-1].places):
            groups.append(_Group(start))
        if topic is None:
            groups[-1].places.append(place)
        else:
            groups[-1].topics.append(topic)
    if not any(group.places for group in groups):
        groups[-1].places = _unlisted(part)
    groups[-1].there = _THERE.search(part) is not None
    return groups


def _unlisted(part: str) -> list[str]:
    """The places of a part that names a topic and no place we know."""
    if match := _FIRST.match(part):
        return [name for name in _AND.split(match[1]) if name and not re.fullmatch(_WHEN, name)]
    return [match[1]] if (match := _LAST.search(part)) else []


def _following(text: str, groups: list[_Group], before: Sequence[str]) -> list[_Group]:
    """The groups of a message without a topic: it goes on from an earlier one if it names places and nothing else."""
    for place in [place for group in groups for place in group.places]:
        text = text.replace(place, "")
    if groups and _FILLER.fullmatch(city_names().sub("", text)):
        places = [place for group in groups for place in group.places]
    elif not groups and (match := _FOLLOWING.fullmatch(text)):
        place = match[1] or match[2]
        places = [] if re.fullmatch(_WHEN, place) else [place]
    else:
        return []
    named = (list(dict.fromkeys(each.topic for each in _named(earlier) if each.topic)) for earlier in reversed(before))
    return [_Group(0, next(filter(None, named), ["weather"]), places)]


def _share_topics(groups: Sequence[_Group]) -> None:
    """Give each group without a topic that of the group before it, or of the one after the first."""
    for index, group in enumerate(groups):
        if not group.topics:
            group.alone = True
            group.topics = groups[index - 1].topics if index else groups[1].topics


def _share_places(groups: Sequence[_Group], before: Sequence[str]) -> None:
    """Give each group without a place that of its neighbour, if it seems to mean it; else here, or the last named."""
    for index, group in enumerate(groups):
        if group.places:
            continue
        previous = groups[index - 1] if index else None
        if group.topics == ["time"] and not group.there and not (previous and previous.alone):
            group.places = [HERE]
            continue
        beside = previous.places if previous else groups[1].places if len(groups) > 1 else []
        earlier = ([each.place for each in _named(text) if not each.topic] for text in reversed(before))
        group.places = [place for place in beside if place != HERE] or next(filter(None, earlier), [""])
