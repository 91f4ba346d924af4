"""The bundled agents, run to the end with their offline scripts, their real tools and a weather service on loopback."""

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

import pytest

from turnstile import Exchange, Limits, Reply, Result, ToolResult, UserTurn
from turnstile.models import PROVIDERS
from turnstile.testing import assert_path
from turnstile_tools.agents import assistant, mini, travel

Serve = Callable[[Mapping[str, object]], str]

TRAVEL = "I'm in Shanghai, have 4 days off in October, like nature and quiet small towns"
TRAVEL_CHINESE = "我在上海，十月有4天假，喜欢自然和安静的小镇"
MINI = (
    "What time is it? Also compute (1024 + 768) * 2, and tell me the weather in Beijing and Shanghai.",
    "现在几点？再算一下 (1024 + 768) * 2，告诉我北京和上海的天气。",
)
# In each language: the question, the cities as it calls them, and the form of the answers on time and weather.
AT_ONCE = {
    "english": (
        MINI[0],
        ("Beijing", "Shanghai"),
        r"It is \d\d:\d\d on \w+day, \d{4}-\d\d-\d\d, here \(UTC.*\)\.",
        (
            "{1}, China: partly cloudy, 18.3 °C (feels like 17 °C), humidity 41 %, wind 7.4 km/h, at 2025-10-03 20:00 "
            "local time. Source: Open-Meteo."
        ),
    ),
    "chinese": (
        MINI[1],
        ("北京", "上海"),
        r"这里现在是 \d{4}-\d\d-\d\d 星期[一二三四五六日] \d\d:\d\d（UTC.*）。",
        (
            "{0}（{1}, China）：局部多云，18.3 °C（体感 17 °C），湿度 41%，风速 7.4 km/h，当地时间 2025-10-03 20:00。"
            "来源：Open-Meteo。"
        ),
    ),
}
TWO_ROUNDS = "await_model execute_tools append_results await_model execute_tools append_results await_model done"
ONE_ROUND = "await_model execute_tools append_results await_model done"


async def ask(
    module: ModuleType, *questions: str, history: Iterable[Any] = (), limits: Limits | None = None
) -> Result[str]:
    """The last of some runs of one conversation, each checked to be valid."""
    model = module.offline_model()
    said = tuple(history)
    result: Result[str] | None = None
    for question in questions:
        result = await module.agent.run(question, model=model, history=said, limits=limits)
        said = result.messages
        check(result)
    assert result is not None
    return result


def check(result: Result[str]) -> None:
    """A run is valid when each call of a reply is answered directly after it, in order, once, and a reply ends it."""
    waiting: list[str] = []
    ids: list[str] = []
    for message in result.messages:
        if isinstance(message, ToolResult):
            assert waiting
            assert message.call_id == waiting.pop(0)
            continue
        assert not waiting
        if isinstance(message, Reply):
            waiting = [call.id for call in message.calls]
            ids += waiting
    assert not waiting
    assert len(ids) == len(set(ids))
    assert not result.ok or isinstance(result.messages[-1], Reply)


def calls(result: Result[str]) -> list[list[tuple[str, Any]]]:
    """The calls of each reply of the last run that made any, with their arguments."""
    items = result.run.history[len(result.run.start.history) :]
    replies = [item.reply for item in items if isinstance(item, Exchange) and item.reply.calls]
    return [[(call.name, json.loads(call.arguments)) for call in reply.calls] for reply in replies]


@pytest.mark.parametrize(
    ("module", "turns", "tools"),
    [
        (travel, 8, ["search_destinations", "get_weather", "get_attractions"]),
        (assistant, 10, ["get_weather", "calculate", "get_current_time"]),
        (mini, 10, ["get_weather", "calculate", "get_current_time"]),
    ],
    ids=["travel", "assistant", "mini"],
)
def test_agents_are_what_the_entry_points_name(module: ModuleType, turns: int, tools: list[str]) -> None:
    """The command line finds them by these names, and each brings its model, which no other run shares."""
    agent = module.agent
    assert entry_points(group="turnstile.agents")[agent.name].load() is agent
    assert (agent.limits.turns, [spec.name for spec in agent.toolbox.specs]) == (turns, tools)
    assert all(spec.parameters["properties"] for spec in agent.toolbox.specs)
    assert agent.model is None
    assert module.offline_model() is not module.offline_model()
    assert module.offline_model().name == f"offline:{agent.name}"


def test_two_agents_have_a_provider_that_they_are_made_for() -> None:
    """With both keys set, the bundled agents show both protocols at work."""
    assert (mini.PREFERS, assistant.PREFERS) == ("anthropic", "dashscope")
    assert {mini.PREFERS, assistant.PREFERS} <= {provider.name for provider in PROVIDERS}


@pytest.mark.usefixtures("service")
async def test_travel_in_english() -> None:
    """The request of the issue: searched, then weather and sights in one reply, then a plan of what they returned."""
    result = await ask(travel, TRAVEL)
    assert_path(result, TWO_ROUNDS)
    assert calls(result) == [
        [("search_destinations", {"month": 10, "preference": "nature, quiet, small town"})],
        [
            ("get_weather", {"destination": "Wuyuan", "month": 10}),
            ("get_weather", {"destination": "Huangshan", "month": 10}),
            ("get_weather", {"destination": "Tengchong", "month": 10}),
            ("get_attractions", {"destination": "Wuyuan", "days": 3}),
        ],
    ]
    for part in (
        "For 4 days off in October, with nature, quiet, small town in mind, I suggest Wuyuan (婺源) in Jiangxi: White",
        "high-speed train to Wuyuan, roughly 4 hours from Shanghai, door to door. With half a day each way, that ",
        "- Day 1: Huangling (all day): Hillside village",
        "- Day 2: Sixi and Yancun: ",
        "; Rainbow Bridge: ",
        "- Day 3: Wangkou: ",
        "No time for: Wolong Valley.",
        "usually 12 to 23 °C, about 62 mm of rain in the month. Source: Open-Meteo archive, 2020 to 2024.",
        "Alternatives:\n- Huangshan (黄山), roughly 4 hours: ",
        "\n- Tengchong (腾冲), roughly 7 hours: ",
        "(The offline script wrote this",
    ):
        assert part in result.output


@pytest.mark.usefixtures("service")
async def test_travel_in_chinese() -> None:
    """The same request in Chinese gets the same plan, and not a word of it in English but names."""
    result = await ask(travel, TRAVEL_CHINESE)
    assert_path(result, TWO_ROUNDS)
    assert calls(result)[0] == [("search_destinations", {"month": 10, "preference": "自然、安静、小镇"})]
    assert calls(result)[1][-1] == ("get_attractions", {"destination": "婺源", "days": 3})
    for part in (
        "10月有 4 天假，喜欢自然、安静、小镇，推荐去江西的婺源：",
        "怎么去：高铁直达婺源站，从上海出发全程大约 4 小时。往返各算半天，当地有 3 天：",
        "- 第 1 天：篁岭（一整天）：",
        "时间不够的：卧龙谷。",
        "10月天气：平均 12 到 23 °C，全月降水约 62 毫米。来源：Open-Meteo 历史数据，2020 至 2024 年。",
        "备选：\n- 黄山，大约 4 小时：",
        "（以上由离线脚本",
    ):
        assert part in result.output
    assert set(re.findall(r"[A-Za-z_]{2,}", result.output)) == {"Open", "Meteo", "OPENAI_API_KEY"}


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("question", "source"),
    [
        (TRAVEL, "Source: offline: from the bundled table of approximate means (Wuyuan county town, about 80 m); "),
        (TRAVEL_CHINESE, "来源：离线：取自内置的气候概数表；"),
    ],
)
async def test_travel_without_a_network(question: str, source: str) -> None:
    """The plan stands on the bundled table, and says once that the service could not be reached."""
    result = await ask(travel, question)
    assert_path(result, TWO_ROUNDS)
    assert f"{source}weather service unreachable: http://127.0.0.1" in result.output
    assert result.output.count("weather service unreachable") == 1
    assert all(line.count("(") == line.count(")") for line in result.output.splitlines())


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("question", "place", "days", "parts"),
    [
        ("6 days in January for hot springs", "Arxan", 4, ["With a day each way, that leaves 4 days there:"]),
        (
            "2 days in May for food and the sea",
            "Qingdao",
            1,
            ["I assumed that you start from Shanghai.", "leaves 1 day "],
        ),
        ("Snow in July, I live in Beijing", "Harbin", 2, ["July is not the", "not Beijing.", "I assumed 3"]),
        ("9 days in March or April", "Wuzhen", 8, ["You named several months; this is for March.", "I found no taste"]),
        ("Guilin for 1 day in June", "Guilin", 1, ["1 day off is not enough; this is for one day there:"]),
        ("1 day in May, quiet", "Huangshan", 1, ["1 day off is not enough", "Alternatives:"]),
        ("Dali, 30 days in April", "Dali", 14, ["I plan 14 days there at most:", "- The days after that: free"]),
        ("sea and desert in June, 8 days", "Qingdao", 7, ["It is not known for desert."]),
        ("五月去看海吃美食，两天", "青岛", 1, ["假定您从上海出发。", "当地有 1 天"]),
        ("七月想看雪，从北京出发", "哈尔滨", 2, ["不过7月不是最好的时节。", "不是北京。", "我按 3 天安排。"]),
        ("三月或四月，9天", "乌镇", 8, ["您提到了不止一个月份，这里按3月安排。", "没有看出我认得的喜好"]),
        ("桂林一天，六月", "桂林", 1, ["1 天假不够用，下面按当地 1 天安排："]),
        ("四月去大理三十天", "大理", 14, ["当地最多排 14 天：", "- 之后：自由安排"]),
        ("六月8天，想看海和沙漠", "青岛", 7, ["沙漠方面则不突出。"]),
    ],
)
async def test_travel_reads_the_question(question: str, place: str, days: int, parts: list[str]) -> None:
    """Another month, taste or number of days is another plan; what was not said, or cannot be had, is said openly."""
    result = await ask(travel, question)
    assert_path(result, TWO_ROUNDS)
    assert calls(result)[1][-1] == ("get_attractions", {"destination": place, "days": days})
    for part in parts:
        assert part in result.output


@pytest.mark.usefixtures("service")
async def test_travel_goes_on() -> None:
    """In a chat the traveller changes one thing at a time, and small talk brings no second plan."""
    result = await ask(travel, "4 days, nature", "In October", "what about May?")
    assert calls(result)[0] == [("search_destinations", {"month": 5, "preference": "nature"})]
    assert "For 4 days off in May, with nature in mind" in result.output
    assert "This is an offline script" in (await ask(travel, "thanks", history=result.messages)).output


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("4 days, nature", "In which month would you like to travel?"),
        ("4天，喜欢自然", "您想在几月出行？"),
        ("Hello", "This is an offline script, not a model. Tell it the month, your days off"),
        ("你好", "这是离线脚本，不是模型。请告诉它月份"),
    ],
)
async def test_travel_asks_for_what_it_needs(question: str, answer: str) -> None:
    """A month cannot be guessed; and whoever says hello learns what the script can do."""
    result = await ask(travel, question)
    assert_path(result, "await_model done")
    assert result.output.startswith(answer)


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("turns", "part"),
    [
        (1, "The search brought nothing: not run: "),
        (2, "Weather in October: not run: "),
    ],
)
async def test_travel_at_its_limit(turns: int, part: str) -> None:
    """At the turn limit a run stops with every call answered, or wraps up from what there is."""
    failed = await ask(travel, TRAVEL, limits=Limits(turns=turns))
    assert not failed.ok
    assert failed.stop is not None
    assert failed.stop.reason == "max_turns"
    wrapped = await ask(travel, TRAVEL, limits=Limits(turns=turns, on_exhausted="wrap_up"))
    assert part in wrapped.output
    assert wrapped.stop is not None
    assert wrapped.stop.exhausted == "max_turns"


@pytest.mark.usefixtures("service")
async def test_three_turns_are_enough_for_travel() -> None:
    """The plan needs three replies, so its limit of eight leaves room for a model that corrects itself."""
    assert (await ask(travel, TRAVEL, limits=Limits(turns=3))).ok


@pytest.mark.parametrize("module", [mini, assistant], ids=["mini", "assistant"])
@pytest.mark.parametrize("language", ["english", "chinese"])
async def test_all_tools_are_asked_for_at_once(
    module: ModuleType, language: str, serve: Serve, replies: dict[str, object]
) -> None:
    """Four calls stand in one reply and run at once: the service answers only when both cities have been asked for."""
    both = threading.Barrier(2)

    find = replies["/v1/search"]

    def when_both_are_here(path: str) -> object:
        both.wait(timeout=60)
        return find(path) if callable(find) else find

    serve(replies | {"/v1/search": when_both_are_here})
    question, names, time, weather = AT_ONCE[language]
    result = await ask(module, question)
    assert_path(result, ONE_ROUND)
    assert calls(result) == [
        [
            ("get_current_time", {"timezone": "local"}),
            ("calculate", {"expression": "(1024 + 768) * 2"}),
            *(("get_weather", {"city": name}) for name in names),
        ]
    ]
    told, *others = result.output.splitlines()
    assert re.fullmatch(time, told)
    lines = [weather.format(*pair) for pair in zip(names, ("Beijing", "Shanghai"), strict=True)]
    assert others == ["(1024 + 768) * 2 = 3584", *lines]


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("module", [mini, assistant], ids=["mini", "assistant"])
@pytest.mark.parametrize(
    ("question", "missing"),
    [
        (MINI[0], "No weather for Beijing: weather service unreachable: http"),
        (MINI[1], "查不到北京的天气：weather service unr"),
    ],
)
async def test_without_a_network_the_rest_is_answered(module: ModuleType, question: str, missing: str) -> None:
    """A service that cannot be reached is a fact to tell, and the other errands are done."""
    result = await ask(module, question)
    assert_path(result, ONE_ROUND)
    _, total, *weather = result.output.splitlines()
    assert total == "(1024 + 768) * 2 = 3584"
    assert weather[0].startswith(missing)
    assert len(weather) == 2


@pytest.mark.usefixtures("service")
async def test_assistant_goes_on() -> None:
    """In a chat, places, subjects and results carry over from message to message, and so does the language."""
    result = await ask(assistant, "Is it warm in Beijing?", "And in Tokyo?")
    assert calls(result) == [[("get_weather", {"city": "Tokyo"})]]
    result = await ask(assistant, "What time is it there?", history=result.messages)
    assert re.match(r"It is \d\d:\d\d on \w+day, \d{4}-\d\d-\d\d, in Tokyo \(UTC\+09:00\)\.$", result.output)
    result = await ask(assistant, "6 * 7", "times 2", "再减去4", history=result.messages)
    assert result.output == "84 - 4 = 80"
    result = await ask(assistant, "东京现在几点？", history=result.messages)
    assert re.match(r"东京现在是 \d{4}-\d\d-\d\d 星期[一二三四五六日] \d\d:\d\d（UTC\+09:00）。$", result.output)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Hello", "This is an offline script, not a model. It tells the weather"),
        ("讲个笑话", "这是离线脚本，不是模型。它能查城市当前天气"),
        ("What's the weather?", "Which city's weather would you like to know?"),
        ("今天天气怎么样？", "请问要查哪座城市的天气？"),
    ],
)
async def test_assistant_says_what_it_can_do(question: str, answer: str) -> None:
    """Whoever asks for more than a script can do, or too little, learns what it can do or needs."""
    result = await ask(assistant, question)
    assert_path(result, "await_model done")
    assert result.output.startswith(answer)


async def test_assistant_tells_what_a_tool_refused(serve: Serve, replies: dict[str, object]) -> None:
    """A sum without a value or a place that nobody knows is told in the tool's words, beside what could be done."""
    serve(replies | {"/v1/search": (200, b"{}")})
    result = await ask(assistant, "1/0, the time in Atlantis and the weather in Bejing tomorrow?")
    total, time, weather, note = result.output.splitlines()
    assert total == "1/0 → ValueError: cannot compute '1/0': division by zero"
    assert time.startswith("No time for Atlantis: ValueError: no time zone or known city is called 'Atlantis'")
    assert weather.startswith("No weather for Bejing: ValueError: no city called 'Bejing' was found; nearest: Beijing")
    assert note == "My tool knows the weather now; it makes no forecast."


async def test_mini_forgets_what_slid_out_of_its_window() -> None:
    """Its requests stay small however long the chat grows: the last few messages, each with all that followed it."""
    model = mini.offline_model()
    said: tuple[Any, ...] = ()
    for number in range(mini.WINDOW + 2):
        result = await mini.agent.run(f"{number} + 1", model=model, history=said)
        said = result.messages
        check(result)
    texts = [item.text for item in model.requests[-1].items if isinstance(item, UserTurn)]
    assert texts == [f"{number} + 1" for number in range(2, mini.WINDOW + 2)]


async def test_words_from_the_side_are_answered_too() -> None:
    """What is said while tools run joins the question, and what was done for it is not done again."""
    model = assistant.offline_model()
    async with assistant.agent.start("6 * 7", model=model) as run:
        await run.until("execute_tools")
        run.inject("and 2 + 2")
        result = await run.finish()
    check(result)
    assert result.output.splitlines() == ["6 * 7 = 42", "2 + 2 = 4"]
    assert [len(reply) for reply in calls(result)] == [1, 1]


async def test_a_cancelled_question_stays_unanswered() -> None:
    """After Ctrl-C the chat goes on with the next question, not with the one that was given up."""
    model = assistant.offline_model()
    async with assistant.agent.start("6 * 7", model=model) as run:
        await run.until("execute_tools")
        run.cancel("enough")
        cancelled = await run.finish()
    check(cancelled)
    assert (await ask(assistant, "2 + 2", history=cancelled.messages)).output == "2 + 2 = 4"


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("module", "question"), [(travel, TRAVEL), (travel, TRAVEL_CHINESE), (mini, "北京和上海的天气，2 + 2")]
)
async def test_same_question_same_run(module: ModuleType, question: str) -> None:
    """A script draws nothing at random, so what a demonstration showed once it shows again."""
    runs = [await ask(module, question) for _ in range(3)]
    assert len({run.output for run in runs}) == 1
    assert len({tuple(transition.row for transition in run.transitions) for run in runs}) == 1
