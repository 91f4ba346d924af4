"""The script that `assistant` and `mini` share: weather, sums and times, all asked for in one reply."""

import datetime as dt
import re

from turnstile_tools.agents.errands import HERE, Errand, errands_in
from turnstile_tools.agents.offline import Said, Talk
from turnstile_tools.times import LocalTime
from turnstile_tools.weather import CityWeather

_TO_COME = re.compile(r"\b(?:tomorrow|forecast|weekend|next|this week)\b|明天|后天|周末|下周|预报", re.IGNORECASE)
_WEEKDAYS = "一二三四五六日"


def answer(talk: Talk) -> Said:
    """The calls that the user's errands need, or their results in words."""
    errands: list[Errand] = []
    before = talk.asked_before
    for text in talk.asked:
        errands += errands_in(text, before, talk.last("calculate"))
        before = [*before, text]
    if not errands:
        return _abilities(talk)
    if lacking := talk.lacks([errand.call for errand in errands if errand.about]):
        return lacking
    lines = [_line(talk, errand) for errand in dict.fromkeys(errands)]
    if any(errand.kind == "weather" for errand in errands) and any(map(_TO_COME.search, talk.asked)):
        lines.append(
            talk.says("My tool knows the weather now; it makes no forecast.", "我的工具只查当前天气，不做预报。")
        )
    return "\n".join(lines)


def _line(talk: Talk, errand: Errand) -> str:
    if not errand.about:
        return talk.says("Which city's weather would you like to know?", "请问要查哪座城市的天气？")
    if errand.kind == "weather":
        return _weather(talk, errand)
    return _time(talk, errand) if errand.kind == "time" else _sum(talk, errand)


def _weather(talk: Talk, errand: Errand) -> str:
    found: CityWeather | None = talk.facts(errand.call)
    if found is None:
        return (
            talk.says(f"No weather for {errand.about}: ", f"查不到{errand.about}的天气：")
            + talk.result(errand.call).content
        )
    where = ", ".join(part for part in (found["city"], found["country"]) if part)
    degrees, felt, humidity, wind = (
        f"{found[key]:g}" for key in ("temperature_c", "feels_like_c", "humidity_percent", "wind_kmh")
    )
    clock = found["time"].replace("T", " ")
    return talk.says(
        f"{where}: {found['conditions']}, {degrees} °C (feels like {felt} °C), humidity {humidity} %, "
        f"wind {wind} km/h, at {clock} local time. Source: {found['source']}.",
        f"{errand.about}（{where}）：{found['conditions_chinese']}，{degrees} °C（体感 {felt} °C），湿度 {humidity}%，"
        f"风速 {wind} km/h，当地时间 {clock}。来源：{found['source']}。",
    )


def _time(talk: Talk, errand: Errand) -> str:
    found: LocalTime | None = talk.facts(errand.call)
    if found is None:
        return (
            talk.says(f"No time for {errand.about}: ", f"查不到{errand.about}的时间：")
            + talk.result(errand.call).content
        )
    moment = dt.datetime.fromisoformat(found["time"])
    offset, zone = f"UTC{found['time'][-6:]}", found["timezone"]
    return talk.says(
        f"It is {moment:%H:%M} on {found['weekday']}, {moment.date()}, "
        f"{'here' if zone == HERE else f'in {errand.about}'} ({offset}).",
        f"{'这里' if zone == HERE else errand.about}现在是 {moment.date()} 星期{_WEEKDAYS[moment.weekday()]} "
        f"{moment:%H:%M}（{offset}）。",
    )


def _sum(talk: Talk, errand: Errand) -> str:
    result = talk.result(errand.call)
    return f"{errand.about} {'=' if result.status == 'ok' else '→'} {result.content}"


def _abilities(talk: Talk) -> str:
    return talk.says(
        "This is an offline script, not a model. It tells the weather of a city now and the time anywhere, and "
        'computes, several at once: "What time is it in Tokyo? Compute (1024 + 768) * 2, and tell me the weather in '
        'Beijing." '
        "With a provider's key in the environment, such as OPENAI_API_KEY, a model answers anything.",
        "这是离线脚本，不是模型。它能查城市当前天气、各地时间，也能做算术，可以一次问几样："
        "“东京现在几点？算一下 (1024 + 768) * 2，再告诉我北京的天气。”"
        "在环境变量里设好某家服务的密钥（如 OPENAI_API_KEY），就由模型来回答。",
    )
