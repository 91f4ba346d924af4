"""What the travel script proposes: which places, the calls that this takes, and the answer in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from turnstile import ToolCall
from turnstile.testing import call
from turnstile_tools.agents.offline import Talk
from turnstile_tools.agents.trip import Trip
from turnstile_tools.destinations import catalogue
from turnstile_tools.months import MONTH_NAMES
from turnstile_tools.travel import HALVES_A_DAY, MOST_DAYS, ExpectedWeather, Plan, Sight, Suggestion, Suggestions

CANDIDATES = 3
ASSUMED_DAYS = 3
HALF_DAY_HOURS = 5  # a way of up to so many hours costs half a day, a longer one a day
HOME = "Shanghai"  # where the catalogue's travel times begin


@dataclass(frozen=True, slots=True)
class Proposal:
    """A place for a trip, with alternatives.

    Attributes:
        talk: The conversation, which has the results of the calls.
        trip: What the traveller said; the month is known.
        wanted: The tastes that the search understood.
        best: The place recommended.
        others: The alternatives.
    """

    talk: Talk
    trip: Trip
    wanted: list[str]
    best: Suggestion
    others: list[Suggestion]

    @classmethod
    def of(cls, talk: Talk, trip: Trip, found: Suggestions) -> Self:
        """The places of a search that the days off are enough for, and first any place that the traveller named."""
        places, days = found["destinations"], trip.days or ASSUMED_DAYS
        near = [place for place in places if days > _days_of_travel(place)] or sorted(places, key=_days_of_travel)
        best = places[0] if trip.places else near[0]
        others = [place for place in near if place is not best]
        return cls(talk, trip, found["preferences"], best, others[: CANDIDATES - 1])

    @property
    def calls(self) -> list[ToolCall]:
        """The weather of all places, and the sights of the best."""
        return [*map(self._weather_call, (self.best, *self.others)), self._sights_call]

    def text(self) -> str:
        """The answer, once the calls have their results."""
        parts = (self._choice(), self._assumptions(), self._plan(), self._weather(), self._alternatives(), self._hint())
        return "\n\n".join(filter(None, parts))

    def _choice(self) -> str:
        best, says = self.best, self.talk.says
        name, province, summary = self._name(best), self._in(best, "province"), self._in(best, "summary")
        liked = says(", ", "、").join(self._in(best, "matches"))
        taste = says(f", with {liked} in mind", f"，喜欢{liked}") if self.wanted else ""
        text = says(
            f"For {_count(self._days)} off in {self._month}{taste}, I suggest {name} in {province}: {summary}.",
            f"{self._month}有 {self._days} 天假{taste}，推荐去{province}的{name}：{summary}。",
        )
        tags = catalogue().tags
        lacking = [key for key in self.wanted if tags[key].chinese not in best["matches_chinese"]]
        if lacking:
            english, chinese = ", ".join(lacking).replace("_", " "), "、".join(tags[key].chinese for key in lacking)
            text += says(f" It is not known for {english}.", f"{chinese}方面则不突出。")
        if not best["in_season"]:
            text += says(f" {self._month} is not the best time for it.", f"不过{self._month}不是最好的时节。")
        return text

    def _assumptions(self) -> str:
        """What was taken for granted because it was not said, or could not be used."""
        trip, says, month = self.trip, self.talk.says, self._month
        lines = []
        if trip.other_months:
            lines.append(
                says(f"You named several months; this is for {month}.", f"您提到了不止一个月份，这里按{month}安排。")
            )
        if trip.days is None:
            lines.append(
                says(
                    f"You gave no number of days; I assumed {self._days}.", f"您没有说天数，我按 {self._days} 天安排。"
                )
            )
        if not trip.tastes and not trip.places:
            lines.append(says("I found no taste that I know in your words.", "没有看出我认得的喜好，只按月份挑选。"))
        if trip.start is None:
            lines.append(says(f"I assumed that you start from {HOME}.", "假定您从上海出发。"))
        elif trip.start.name != HOME:
            start = trip.start
            lines.append(
                says(
                    f"My travel times are from {HOME}, not {start.name}.",
                    f"路上时间以上海为起点，不是{start.chinese}。",
                )
            )
        return says(" ", "").join(lines)

    def _plan(self) -> str:
        travel, says = _days_of_travel(self.best), self.talk.says
        hours, route = self.best["rough_hours_from_shanghai"], self._in(self.best, "route")
        way = says(
            f"The way there: {route}, roughly {hours} hours from {HOME}, door to door.",
            f"怎么去：{route}，从上海出发全程大约 {hours} 小时。",
        )
        each = says("half a day", "半天") if hours <= HALF_DAY_HOURS else says("a day", "一天")
        if self._days <= travel:
            way += says(
                f" With {each} each way, {_count(self._days)} off is not enough; this is for one day there:",
                f"往返各算{each}，{self._days} 天假不够用，下面按当地 1 天安排：",
            )
        elif self._days - travel > MOST_DAYS:
            way += says(f" I plan {MOST_DAYS} days there at most:", f"当地最多排 {MOST_DAYS} 天：")
        else:
            way += says(
                f" With {each} each way, that leaves {_count(self._days_there)} there:",
                f"往返各算{each}，当地有 {self._days_there} 天：",
            )
        plan: Plan | None = self.talk.facts(self._sights_call)
        if plan is None:
            return f"{way}\n{self.talk.result(self._sights_call).content}"
        lines = [way, *(self._day(number, sights) for number, sights in enumerate(plan["days"], start=1) if sights)]
        if not plan["days"][-1]:
            lines.append(says("- The days after that: free", "- 之后：自由安排"))
        left_out = says(", ", "、").join(self._in(plan, "left_out"))
        if left_out:
            lines.append(says(f"No time for: {left_out}.", f"时间不够的：{left_out}。"))
        return "\n".join(lines)

    def _day(self, number: int, sights: list[Sight]) -> str:
        says = self.talk.says
        seen = [
            self._in(sight, "name")
            + (says(" (all day)", "（一整天）") if sight["half_days"] == HALVES_A_DAY else "")
            + says(": ", "：")
            + self._in(sight, "why")
            for sight in sights
        ]
        return says(f"- Day {number}: ", f"- 第 {number} 天：") + says("; ", "；").join(seen)

    def _weather(self) -> str:
        label = self.talk.says(f"Weather in {self._month}: ", f"{self._month}天气：")
        weather: ExpectedWeather | None = self.talk.facts(self._weather_call(self.best))
        if weather is None:
            return label + self.talk.result(self._weather_call(self.best)).content
        source = self._in(weather, "source")
        return label + self._figures(weather) + self.talk.says(f". Source: {source}.", f"。来源：{source}。")

    def _alternatives(self) -> str:
        """The other places with their weather, and its source without what kept a better one away, said once above."""
        says = self.talk.says
        lines = []
        for place in self.others:
            hours, summary = place["rough_hours_from_shanghai"], self._in(place, "summary")
            line = says(
                f"- {self._name(place)}, roughly {hours} hours: {summary}",
                f"- {self._name(place)}，大约 {hours} 小时：{summary}",
            )
            weather: ExpectedWeather | None = self.talk.facts(self._weather_call(place))
            if weather is None:
                line += says("; ", "；") + self.talk.result(self._weather_call(place)).content
            else:
                source = self._in(weather, "source").partition(says("; weather service", "；weather service"))[0]
                line += says("; ", "；") + self._figures(weather) + says(f" ({source})", f"（{source}）")
            lines.append(line)
        return "\n".join([says("Alternatives:", "备选："), *lines]) if lines else ""

    def _hint(self) -> str:
        return self.talk.says(
            "(The offline script wrote this from what the tools returned; no model was asked. With a provider's key in "
            "the environment, such as OPENAI_API_KEY, a model plans more freely.)",
            "（以上由离线脚本根据工具返回的内容写成，没有询问模型。"
            "在环境变量里设好某家服务的密钥，如 OPENAI_API_KEY，就由模型来规划。）",
        )

    def _figures(self, weather: ExpectedWeather) -> str:
        low, high, rain = (f"{weather[key]:g}" for key in ("mean_low_c", "mean_high_c", "rain_mm"))
        return self.talk.says(
            f"usually {low} to {high} °C, about {rain} mm of rain in the month",
            f"平均 {low} 到 {high} °C，全月降水约 {rain} 毫米",
        )

    def _name(self, place: Suggestion) -> str:
        return self.talk.says(f"{place['name']} ({place['name_chinese']})", place["name_chinese"])

    @property
    def _days(self) -> int:
        return self.trip.days or ASSUMED_DAYS

    @property
    def _days_there(self) -> int:
        return min(max(self._days - _days_of_travel(self.best), 1), MOST_DAYS)

    @property
    def _month(self) -> str:
        month = self.trip.month or 1
        return self.talk.says(MONTH_NAMES[month - 1], f"{month}月")

    @property
    def _sights_call(self) -> ToolCall:
        return call("get_attractions", destination=self._in(self.best, "name"), days=self._days_there)

    def _weather_call(self, place: Suggestion) -> ToolCall:
        return call("get_weather", destination=self._in(place, "name"), month=self.trip.month)

    def _in(self, item: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 - a text or a list of them
        """A field of a result in the user's language."""
        return item[self.talk.says(key, f"{key}_chinese")]


def _days_of_travel(place: Suggestion) -> int:
    """Days off that the way there and back costs."""
    return 1 if place["rough_hours_from_shanghai"] <= HALF_DAY_HOURS else 2


def _count(days: int) -> str:
    return "1 day" if days == 1 else f"{days} days"
