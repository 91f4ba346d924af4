"""Which items a request carries: whole ones, led by a question, and never without the one that is being answered."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.core.budget import CHARS_PER_TOKEN
from turnstile.core.context import KeepAll, LastTokens, LastTurns
from turnstile.core.errors import ConfigurationError
from turnstile.core.history import History, size_of
from turnstile.core.messages import Exchange, Item, Reply, ToolCall, ToolResult, UserTurn

QUESTION = UserTurn("question")
SYNTHETIC = UserTurn("go on", synthetic=True)
TEXT = Exchange(Reply("text"))
CALL = Exchange(Reply(calls=(ToolCall("a", "tool", "{}"),)), (ToolResult("a", "tool", "fine"),))

# A run's history has a question in it: its prompt. What stood before it may begin with anything.
histories = st.tuples(*[st.lists(st.sampled_from([QUESTION, SYNTHETIC, TEXT, CALL]), max_size=5)] * 2).map(
    lambda parts: History([*parts[0], QUESTION, *parts[1]])
)
cuts = histories.flatmap(lambda history: st.tuples(st.just(history), st.integers(0, len(history) - 1)))
policies = st.just(KeepAll()) | st.builds(LastTurns, st.integers(1, 4)) | st.builds(LastTokens, st.integers(1, 60))
Policy = KeepAll | LastTokens | LastTurns


@given(policies, cuts)
def test_the_question_that_is_being_answered_is_kept(policy: Policy, cut: tuple[History, int]) -> None:
    """A model that no longer sees the question cannot answer it."""
    history, start = cut

    newest = history.question_before(len(history))

    assert newest is not None
    assert history[newest] in policy.select(history, start)


@given(policies, cuts)
def test_a_window_never_begins_with_a_reply_or_results(policy: Policy, cut: tuple[History, int]) -> None:
    """Providers refuse a conversation that does not begin with its user."""
    history, start = cut
    selected = policy.select(history, start)

    assert isinstance(selected[0], UserTurn) or selected is history


@given(policies, cuts)
def test_a_selection_holds_whole_items_in_their_order(policy: Policy, cut: tuple[History, int]) -> None:
    """No call is parted from its result, and nothing is said in another order than it was."""
    history, start = cut

    selected = list(policy.select(history, start))

    assert selected[1:] == list(history)[len(history) - len(selected) + 1 :]
    assert selected[0] in history


@given(histories)
def test_the_whole_history_is_sent_as_it_is(history: History) -> None:
    """Without a need to leave anything out, nothing is copied."""
    assert KeepAll().select(history, 0) is history


@pytest.mark.parametrize(
    ("turns", "start", "expected"),
    [
        (1, 0, [6, 7]),
        (2, 0, [2, 3, 4, 5, 6, 7]),
        (3, 0, [0, 1, 2, 3, 4, 5, 6, 7]),
        (9, 0, [0, 1, 2, 3, 4, 5, 6, 7]),
        (2, 4, [4, 5, 6, 7]),
        (9, 5, [2, 5, 6, 7]),
        (2, 7, [6, 7]),
    ],
)
def test_the_last_turns_are_those_of_the_user(turns: int, start: int, expected: list[int]) -> None:
    """What the engine says in the user's place begins no turn, and what no longer fits stays left out."""
    said: list[Item] = [QUESTION, TEXT, UserTurn("second"), CALL, SYNTHETIC, TEXT, UserTurn("third"), CALL]

    selected = LastTurns(turns).select(History(said), start)

    assert list(selected) == [said[index] for index in expected]


def test_a_window_that_begins_with_the_engines_words_is_led_by_the_question() -> None:
    """A nudge without the question that it is about says nothing."""
    history = History([QUESTION, TEXT, SYNTHETIC, CALL])

    assert list(KeepAll().select(history, 2)) == [QUESTION, SYNTHETIC, CALL]


def test_a_history_without_any_question_is_sent_from_its_start_on() -> None:
    """There is nothing to lead it with, and nothing to raise about."""
    assert list(KeepAll().select(History([TEXT, CALL]), 1)) == [CALL]


def test_no_turn_at_all_is_refused() -> None:
    """The question itself is one turn."""
    with pytest.raises(ConfigurationError, match="LastTurns keeps at least 1 user turn; got 0"):
        LastTurns(0)
    with pytest.raises(ConfigurationError, match="LastTokens keeps at least 1 token; got 0"):
        LastTokens(0)


@given(cuts, st.integers(20, 100))
def test_the_last_tokens_fit_into_their_room_and_fill_half_of_it(cut: tuple[History, int], tokens: int) -> None:
    """A window is within its budget, and never cut down to a few items by one that is too large."""
    history, start = cut

    selected = LastTokens(tokens).select(history, start)

    rest = [item for item in selected if not (isinstance(item, UserTurn) and item is selected[0])]
    assert sum(map(size_of, rest)) <= tokens * CHARS_PER_TOKEN
    if len(selected) < len(KeepAll().select(history, start)):
        largest = max(map(size_of, history))
        assert sum(map(size_of, selected)) + largest > tokens * CHARS_PER_TOKEN / 2


def test_a_window_of_tokens_keeps_its_beginning_while_it_can() -> None:
    """A prompt cache reads what begins alike, so a window that moved with each item would pay for all of it anew."""
    history = History([QUESTION])
    beginnings = []
    for number in range(40):
        history = history.append(UserTurn(f"{number:084}"))  # 100 characters by the estimate
        beginnings.append(len(history) - len(LastTokens(334).select(history, 0)))
    moves = sum(first != second for first, second in pairwise(beginnings))
    assert 0 < moves <= 40 * 100 / (334 * CHARS_PER_TOKEN / 2)
