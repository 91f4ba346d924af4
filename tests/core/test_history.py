"""The history: it only grows, forks share nothing that either can see, and no call is parted from its result."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.errors import UsageError
from turnstile.core.history import CHARS_PER_IMAGE, CHARS_PER_ITEM, History, size_of
from turnstile.core.messages import Attachment, Exchange, Item, Message, Reply, ToolCall, ToolResult, UserTurn


def asking(*ids: str) -> Reply:
    """A reply that calls a tool for each id."""
    return Reply(calls=tuple(ToolCall(id_, "tool", "{}") for id_ in ids))


def result(call_id: str) -> ToolResult:
    """What came of a call."""
    return ToolResult(call_id, "tool", "fine")


items = st.lists(
    st.sampled_from(
        [
            UserTurn("a"),
            UserTurn("go on", synthetic=True),
            Exchange(Reply("text")),
            Exchange(asking("a"), (result("a"),)),
            Exchange(asking("b", "c"), (result("b"), result("c"))),
        ]
    ),
    max_size=6,
)


@given(items)
def test_a_history_is_the_sequence_of_its_items(said: list[Item]) -> None:
    """Whoever selects from it uses it as any other sequence."""
    history = History(said)

    assert list(history) == said
    assert len(history) == len(said)
    assert history[:] == tuple(said)
    assert [history[index] for index in range(-len(said), len(said))] == said + said
    assert history == History().append(*said)
    assert repr(history) == f"History({said!r})"


@pytest.mark.parametrize("index", [2, -3])
def test_an_index_beyond_its_end_is_an_error(index: int) -> None:
    """The list behind it may be longer, and what another fork said must not be seen."""
    history = History([UserTurn("a"), UserTurn("b")])
    history.append(UserTurn("c"))

    with pytest.raises(IndexError, match=f"history has 2 items; there is no item {index}"):
        history[index]


@given(st.lists(st.tuples(st.integers(0, 5), items), max_size=8))
def test_forks_do_not_see_each_other(appends: list[tuple[int, list[Item]]]) -> None:
    """Sharing is an economy, and must not show: each history holds what was appended to it and nothing else."""
    histories: list[tuple[History, list[Item]]] = [(History(), [])]
    for which, more in appends:
        history, said = histories[which % len(histories)]
        histories.append((history.append(*more), said + more))

    for history, said in histories:
        assert list(history) == said
        assert history.size() == sum(map(size_of, said))
        assert questions(history) == [
            i for i, item in enumerate(said) if isinstance(item, UserTurn) and not item.synthetic
        ]


def questions(history: History) -> list[int]:
    """Where the user's questions stand, found from the end."""
    found: list[int] = []
    index: int | None = len(history)
    while index is not None:
        index = history.question_before(index)
        found += [] if index is None else [index]
    return found[::-1]


@given(items, st.integers(0, 7))
def test_its_size_is_that_of_its_items(said: list[Item], start: int) -> None:
    """Estimates of a request's tokens stand on it, and it is kept up rather than counted."""
    assert History(said).size(start) == sum(map(size_of, said[start:]))


def test_the_size_of_an_item_counts_all_that_is_sent() -> None:
    """What is not counted would be spent unseen."""
    call = ToolCall("id", "name", "arguments")
    reply = Reply("text", (call,), reasoning="not sent", native="sent back")
    attachments = (Attachment.of(b"12345", "text/plain"), Attachment("image/png", url="https://example.com/a"))

    assert size_of(UserTurn("question")) == len("question") + CHARS_PER_ITEM
    assert size_of(UserTurn("", attachments=attachments)) == CHARS_PER_ITEM + 6 + CHARS_PER_IMAGE
    assert size_of(Exchange(reply, (ToolResult("id", "name", "content"),))) == (
        len("text" + "sent back" + "name" + "arguments" + "content") + 3 * CHARS_PER_ITEM
    )


def test_appending_shares_and_a_fork_copies() -> None:
    """A run of a thousand turns must not copy its history a thousand times."""
    first = History([UserTurn("a")])
    longer = first.append(UserTurn("b"))
    fork = first.append(UserTurn("c"))

    assert longer._items is first._items
    assert fork._items is not first._items
    assert (list(longer), list(fork)) == ([UserTurn("a"), UserTurn("b")], [UserTurn("a"), UserTurn("c")])


def test_histories_of_equal_items_are_equal() -> None:
    """Runs are compared, and a history is part of a run."""
    one, other = History([UserTurn("a")]), History([UserTurn("a")])

    assert one == other
    assert hash(one) == hash(other)
    assert hash(History()) == hash(History())
    assert one != History([UserTurn("b")])
    assert one != [UserTurn("a")]


def test_it_knows_whether_it_ends_with_results() -> None:
    """An empty reply right after results is an ending; anywhere else it is asked again."""
    assert not History().ends_with_results
    assert not History([UserTurn("a")]).ends_with_results
    assert not History([Exchange(Reply("text"))]).ends_with_results
    assert History([Exchange(asking("a"), (result("a"),))]).ends_with_results


@given(items)
def test_single_messages_are_put_together_again(said: list[Item]) -> None:
    """A stored conversation comes back as messages."""
    history = History(said)

    assert History.of(history.messages) == history
    assert History.of(said) == history


@given(items)
def test_its_messages_pair_each_call_with_its_result(said: list[Item]) -> None:
    """Providers refuse anything else."""
    messages = History(said).messages

    for before, message in pairwise((*messages, UserTurn(""))):
        if isinstance(before, Reply) and before.calls:
            assert isinstance(message, ToolResult)
    asked = [call.id for message in messages if isinstance(message, Reply) for call in message.calls]
    assert asked == [message.call_id for message in messages if isinstance(message, ToolResult)]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([asking("a", "b"), result("a")], r"the calls \['b'\] have no result"),
        ([asking("a")], r"the calls \['a'\] have no result"),
        ([asking("a"), UserTurn("and?")], r"the calls \['a'\] have no result"),
        ([asking("a"), Reply("next")], r"the calls \['a'\] have no result"),
        ([result("a")], r"the result of call 'a' has no call; the calls that wait for one here are \[\]"),
        ([Reply("text"), result("a")], "the result of call 'a' has no call"),
        ([asking("a"), result("x")], r"the result of call 'x' has no call; the calls .* are \['a'\]"),
        ([asking("a"), result("a"), result("a")], "the result of call 'a' has no call"),
        ([asking("a"), result("a"), UserTurn("and?"), result("a")], "the result of call 'a' has no call"),
        ([Exchange(asking("a"), (result("a"),)), result("a")], "the result of call 'a' has no call"),
        ([asking("a", "b"), result("b"), result("a")], "the result of call 'b' stands before that of 'a'"),
        ([{"role": "user", "content": "hi"}], "a history holds UserTurn, Reply, ToolResult and Exchange; got {'role'"),
    ],
)
def test_messages_that_do_not_pair_are_refused(messages: list[Message], problem: str) -> None:
    """A history that a provider would refuse is refused where it comes in, by the ids that are wrong."""
    with pytest.raises(UsageError, match=problem):
        History.of(messages)


def test_the_results_of_very_many_calls_find_their_places() -> None:
    """A caller's history may be long in one reply, too; looking at all calls for each result took minutes for these."""
    reply = asking(*map(str, range(50_000)))

    assert History.of([reply, *(result(call.id) for call in reply.calls)])[0] == Exchange(
        reply, tuple(result(call.id) for call in reply.calls)
    )
