"""What is said in a conversation: values that cannot hold a call without its result."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.messages import Attachment, Exchange, Reply, ToolCall, ToolResult, Usage, UserTurn, flatten, parted

CALLS = (ToolCall("a", "tool", "{}"), ToolCall("b", "tool", "{}"))
RESULTS = (ToolResult("a", "tool", "1"), ToolResult("b", "tool", "2"))


@pytest.mark.parametrize("results", [(), RESULTS[:1], RESULTS[::-1], (*RESULTS, RESULTS[0])])
def test_an_exchange_has_one_result_for_each_call_in_order(results: tuple[ToolResult, ...]) -> None:
    """Every history is valid since nothing else can be made."""
    assert Exchange(Reply(calls=CALLS), RESULTS).results == RESULTS
    with pytest.raises(ValueError, match=r"one result for each call, in call order: expected \['a', 'b'\], got"):
        Exchange(Reply(calls=CALLS), results)


def test_items_are_flattened_in_the_order_of_a_request() -> None:
    """Every provider wants a reply's results directly behind it."""
    reply = Reply(calls=CALLS)

    assert flatten((UserTurn("hi"), Exchange(reply, RESULTS), Exchange(Reply("done")))) == (
        UserTurn("hi"),
        reply,
        *RESULTS,
        Reply("done"),
    )


counts = st.none() | st.integers(0, 9)
usages = st.builds(Usage, counts, counts, counts, counts)


@given(usages, usages, usages)
def test_usage_adds_up_in_any_grouping(a: Usage, b: Usage, c: Usage) -> None:
    """A total must not depend on when it was taken, and what nobody said stays unknown."""
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Usage() == a
    assert (a + b).total_tokens == a.total_tokens + b.total_tokens


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", False),
        (" \n\t", False),
        ("a", True),
        (" a ", True),
        ("\u00a0", False),
        (" \n\u200b ", False),
        ("\ufeff\u2060", False),
        ("\u200b.", True),
        ("\U0001f30d", True),
    ],
)
def test_only_visible_text_says_something(text: str, says: bool) -> None:  # noqa: FBT001 - a case of a table
    """whitespace-only-final-answer: a reply of line breaks or zero-width characters is an empty reply."""
    assert Reply(text).says_something is says


def test_values_are_frozen() -> None:
    """A run that has been taken a snapshot of must not change behind it."""
    for value, field in ((Reply(), "text"), (UserTurn("a"), "text"), (RESULTS[0], "content"), (CALLS[0], "name")):
        with pytest.raises(AttributeError):
            setattr(value, field, "other")


def test_a_prompt_is_parted_into_text_and_attachments() -> None:
    """Providers want the words and the files apart, and a journal keeps both."""
    picture = Attachment.of(b"A", "image/png", name="a.png")

    assert picture == Attachment("image/png", data="QQ==", name="a.png")
    assert parted("hi") == ("hi", ())
    assert parted(["what is", picture, "this?"]) == ("what is\nthis?", (picture,))


@pytest.mark.parametrize(
    ("fields", "got"),
    [
        ({"media_type": "png", "data": "QQ=="}, "got media_type 'png' and data"),
        ({"media_type": "image/png"}, "got media_type 'image/png' and neither"),
        ({"media_type": "image/png", "data": "QQ==", "url": "https://a"}, "and data and url"),
    ],
)
def test_an_attachment_is_bytes_or_an_address(fields: dict[str, str], got: str) -> None:
    """A provider refuses half an attachment with words that do not name it."""
    with pytest.raises(ValueError, match=got):
        Attachment(**fields)
