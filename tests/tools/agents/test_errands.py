"""Errands found in what people type."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile_tools.agents.errands import Errand, errands_in


def _short(errands: list[Errand]) -> list[str]:
    return [f"{errand.kind} {errand.about}".strip() for errand in errands]


@pytest.mark.parametrize(
    ("message", "errands"),
    [
        (
            "What time is it? Also compute (1024 + 768) * 2, and tell me the weather in Beijing and Shanghai.",
            ["time local", "sum (1024 + 768) * 2", "weather Beijing", "weather Shanghai"],
        ),
        (
            "现在几点？再算一下 (1024 + 768) * 2，告诉我北京和上海的天气。",
            ["time local", "sum (1024 + 768) * 2", "weather 北京", "weather 上海"],
        ),
        ("What's the weather in Tokyo and what time is it there?", ["weather Tokyo", "time Tokyo"]),
        ("time in Tokyo and weather in London", ["time Tokyo", "weather London"]),
        ("time and weather in Tokyo", ["time Tokyo", "weather Tokyo"]),
        ("Beijing weather? Shanghai?", ["weather Beijing", "weather Shanghai"]),
        ("For Beijing and Shanghai, what's the weather?", ["weather Beijing", "weather Shanghai"]),
        ("In Tokyo, what time is it?", ["time Tokyo"]),
        ("I'm in Paris. What's the weather?", ["weather Paris"]),
        ("What time is it in Tokyo? And the weather?", ["time Tokyo", "weather Tokyo"]),
        ("What time is it? And the weather?", ["time local", "weather"]),
        ("The weather? In Oslo, please.", ["weather Oslo"]),
        ("The temperature! What time is it in Tokyo?", ["weather Tokyo", "time Tokyo"]),
        ("Is it warm in Beijing in October?", ["weather Beijing"]),
        ("weather in Rome, Milan and Paris", ["weather Rome", "weather Milan", "weather Paris"]),
        ("how hot is it in rome right now?", ["weather rome"]),
        ("what day is it in UTC+8 and Asia/Tokyo", ["time UTC+8", "time Asia/Tokyo"]),
        ("东京几点，北京和上海的天气怎么样", ["time 东京", "weather 北京", "weather 上海"]),
        ("北京现在几点，天气怎么样？", ["time 北京", "weather 北京"]),
        ("北京天气怎么样？上海呢？", ["weather 北京", "weather 上海"]),
        ("北京的天气和时间", ["weather 北京", "time 北京"]),
        ("天气：北京、上海", ["weather 北京", "weather 上海"]),
        ("你能告诉我罗马和米兰的天气吗", ["weather 罗马", "weather 米兰"]),
        ("呼伦贝尔冷不冷", ["weather 呼伦贝尔"]),
        ("今天星期几", ["time local"]),
        ("今天会不会下雨", ["weather"]),
        ("Beijing", ["weather Beijing"]),
        ("2 + 2 and 2 + 2", ["sum 2 + 2"]),
        ("Next time", []),
        ("Tell me about Beijing", []),
        ("Hello", []),
        ("", []),
    ],
)
def test_finds_the_errands_of_a_message(message: str, errands: list[str]) -> None:
    """People ask for several things at once, in the order of their language, and say shared words once."""
    assert _short(errands_in(message)) == errands


@pytest.mark.parametrize(
    ("message", "errands"),
    [
        ("And in Shanghai?", ["weather Shanghai"]),
        ("what about Rome", ["weather Rome"]),
        ("上海呢？", ["weather 上海"]),
        ("罗马呢", ["weather 罗马"]),
        ("And the time there?", ["time Beijing"]),
        ("那里几点", ["time Beijing"]),
        ("What's the weather?", ["weather Beijing"]),
        ("How about tomorrow?", ["weather Beijing"]),
        ("Thanks", []),
        ("Tell me the history of Beijing", []),
    ],
)
def test_goes_on_from_earlier_messages(message: str, errands: list[str]) -> None:
    """A chat is more than its last line; but a new subject is not answered with the weather."""
    assert _short(errands_in(message, ["Hello", "Is it warm in Beijing?", "Thanks"])) == errands


@given(st.text(max_size=60) | st.text(alphabet="天气时间在北京和上海几点呢，。 weathrtimnBjgand?.,+12", max_size=40))
def test_any_text_is_read(message: str) -> None:
    """Whatever a user types leads to errands, each with a call that a tool can be given."""
    for errand in errands_in(message, [message]):
        assert errand.call.name in {"get_weather", "get_current_time", "calculate"}
