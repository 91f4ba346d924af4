"""How the offline scripts read a conversation."""

from typing import Literal

import pytest

from turnstile import Exchange, Reply, ToolCall, ToolResult, UserTurn
from turnstile.testing import call
from turnstile_tools.agents.offline import MOST_READ, Talk, is_chinese

WANTED = call("calculate", expression="1 + 1")


def _called(status: Literal["ok", "error", "not_run", "unknown"] = "ok", content: str = "2") -> Exchange:
    made = ToolCall("a", WANTED.name, WANTED.arguments)
    return Exchange(Reply(calls=(made,)), (ToolResult("a", WANTED.name, content, status),))


@pytest.mark.parametrize(
    ("text", "chinese"),
    [
        ("Weather in 北京?", False),
        ("北京", True),
        ("Beijing天气", True),
        ("帮我算 max(1, 2)", True),
        ("Погода", False),
        ("1 + 1", False),
    ],
)
def test_language_of_a_text(text: str, chinese: bool) -> None:  # noqa: FBT001 - a column of the table
    """A Chinese name in an English sentence does not make it Chinese."""
    assert is_chinese(text) is chinese


def test_language_is_that_of_the_newest_words() -> None:
    """A sum has no language, so what was said before it decides; what the engine says does not count."""
    items = [UserTurn("你好"), UserTurn("1 + 1"), UserTurn("Please go on.", synthetic=True)]
    assert Talk(items).says("yes", "是") == "是"
    assert Talk([]).says("yes", "是") == "yes"


def test_calls_are_made_once() -> None:
    """After a restart a script must not ask again for what it has, and it asks for nothing while tools are off."""
    asked = [UserTurn("1 + 1")]
    assert Talk(asked).lacks([WANTED, WANTED]) == [WANTED]
    assert Talk([*asked, _called()]).lacks([WANTED]) == []
    assert Talk(asked, tools_on=False).lacks([WANTED]) == []
    assert Talk(asked, tools_on=False).result(WANTED).content == "calculate was not run, since tools are off"


def test_a_new_question_gets_new_results() -> None:
    """The weather of yesterday's question is old; its results are not taken for this one's."""
    talk = Talk([UserTurn("1 + 1"), _called(), Exchange(Reply("2")), UserTurn("1 + 1")])
    assert (talk.asked, talk.asked_before, talk.last("calculate")) == (["1 + 1"], ["1 + 1"], "2")
    assert talk.lacks([WANTED]) == [WANTED]


def test_words_that_come_in_between_belong_to_the_question() -> None:
    """What the user adds while tools run is answered together with what they asked first."""
    talk = Talk([UserTurn("1 + 1"), _called(), UserTurn("and 2 + 2")])
    assert talk.asked == ["1 + 1", "and 2 + 2"]
    assert talk.lacks([WANTED]) == []


@pytest.mark.parametrize("status", ["not_run", "unknown"])
def test_a_run_that_was_stopped_is_over(status: Literal["not_run", "unknown"]) -> None:
    """What the user cancelled is not done after all together with their next question."""
    talk = Talk([UserTurn("1 + 1"), _called(status), UserTurn("Hello")])
    assert (talk.asked, talk.last("calculate")) == (["Hello"], "")


def test_of_a_book_the_beginning_is_read() -> None:
    """A pasted file must not keep the event loop busy while it is searched for the names of cities."""
    assert Talk([UserTurn("1 + 1" + " " * MOST_READ + "2 + 2")]).asked[0].strip() == "1 + 1"


def test_facts_are_objects() -> None:
    """A tool may say in words that it has no answer, and then there are no facts to write of."""
    asked = [UserTurn("1 + 1")]
    assert Talk([*asked, _called(content='{"value": 2}')]).facts(WANTED) == {"value": 2}
    assert Talk([*asked, _called()]).facts(WANTED) is None
    assert Talk([*asked, _called("error", '{"value": 2}')]).facts(WANTED) is None
    assert Talk(asked).facts(WANTED) is None
