"""How replies end: empty, cut, unfinished or oddly labelled, and what a run makes of each."""

from __future__ import annotations

import json

import pytest

from turnstile import Limits, Reply, UserTurn
from wire_case import Case, Played, Tools, calls_of, chat, play

EMPTY = {"completion_tokens": 0, "prompt_tokens": 0, "total_tokens": 0}


def last_reply(played: Played) -> Reply:
    """The newest reply that the history holds."""
    return [message for message in played.result.messages if isinstance(message, Reply)][-1]


def assert_empty(played: Played) -> None:
    """Check that a run without an answer says so, and gives none."""
    assert not played.result.ok
    assert played.reason == "empty_answer"
    assert played.result.partial == ""


async def test_empty_first_turn_not_success(case: Case) -> None:
    """An empty reply is asked again once, and is never an answer."""
    assert (await play(case)).result.output == "Hello"
    played = await play(case, exchanges=[{**chat(""), "repeat": 9}])
    assert_empty(played)
    assert len(played.requests) == 2


async def test_empty_content_stop_real_call_in_reasoning(case: Case) -> None:
    """Reasoning is never an answer, however long."""
    assert (await play(case)).result.output == "done"
    played = await play(case, exchanges=[{**case.exchanges[0], "repeat": 9}])
    assert_empty(played)
    assert len(played.requests) == 2


async def test_whitespace_only_final_answer(case: Case) -> None:
    """What a reader cannot see is no answer, and is not sent back."""
    played = await play(case)
    assert played.result.output == "ok"
    assert [message["role"] for message in played.last if message["role"] == "assistant"] == []


async def test_ctx_overflow_as_empty_200(case: Case) -> None:
    """A server that swallows an overlong request in silence is found out by the size that the error names."""
    played = await play(case, prompt="word " * 30_000)
    assert_empty(played)
    assert played.result.stop is not None
    assert "tokens" in played.result.stop.detail
    assert any(number.isdigit() and int(number) > 10_000 for number in played.result.stop.detail.split())


async def test_nudge_pollutes_history(case: Case, tools: Tools) -> None:
    """What the engine said in the user's place is marked, is said once, and roles alternate in that request."""
    played = await play(case, tools("f"))
    assert len(played.requests) == 2
    assert played.result.stop is not None
    assert played.result.stop.flags == ("empty_answer",)
    empty = chat("")
    played = await play(case, exchanges=[{**empty, "repeat": 9}], limits=Limits(nudges=2))
    assert len(played.requests) == 3
    turns = [message for message in played.result.messages if isinstance(message, UserTurn)]
    assert [turn.synthetic for turn in turns] == [False, True, True]


async def test_reasoning_ate_the_budget(case: Case) -> None:
    """A reply whose tokens all went into reasoning was cut, and says that this is why."""
    played = await play(case)
    assert (played.reason, played.result.partial) == ("truncated", "")
    assert len(played.requests) == 1
    assert played.result.stop is not None
    assert "reasoning" in played.result.stop.detail


async def test_empty_turn_after_success_not_retried(case: Case, tools: Tools) -> None:
    """Silence after a tool's result ends the run, flagged; asking again would make the model do it again."""
    played = await play(case, tools("save", x=int))
    assert (len(played.requests), len(tools.ran)) == (2, 1)
    assert played.result.ok
    assert played.result.stop is not None
    assert (played.reason, played.result.stop.flags) == ("empty_answer", ("empty_answer",))


async def test_finish_reason_eos_token(case: Case) -> None:
    """A label in a server's own words changes nothing of a good answer."""
    played = await play(case)
    assert played.result.output == "Hello"
    assert (last_reply(played).finish, last_reply(played).finish_raw) == ("stop", "eos_token")


async def test_finish_reason_null_nonstream(case: Case) -> None:
    """A whole answer without a label is an answer."""
    played = await play(case)
    assert (played.result.output, len(played.requests)) == ("Hello", 1)
    assert last_reply(played).finish == "unknown"


async def test_finish_reason_error_value(case: Case) -> None:
    """A server that labels its own reply as failed is asked again, and its word is kept."""
    assert (await play(case)).result.output == "done"
    played = await play(case, exchanges=[{**case.exchanges[0], "repeat": 9}])
    assert not played.result.ok
    assert len(played.requests) == 1 + Limits().repairs
    assert "MALFORMED_FUNCTION_CALL" in repr(played.result.stop)


async def test_length_mid_tool_arguments(case: Case, tools: Tools) -> None:
    """A call that was cut does not run, and the model is told why."""
    played = await play(case, tools("write_file", path=str, content=str))
    assert tools.ran == []
    assert "cut" in played.results[0].content
    assert calls_of(played.last[1])
    assert played.result.output == "done"


async def test_length_with_parseable_tool_call(case: Case, tools: Tools) -> None:
    """Of a reply that was cut no call runs, though its JSON may be whole; the run tries again only so often."""
    made = [tools("write_file", path=str, content=str), tools("delete_file", path=str)]
    played = await play(case, *made)
    assert [result.status for result in played.results] == ["not_run", "not_run"]
    assert all("again" in result.content for result in played.results)
    assert played.result.output == "done"
    played = await play(case, *made, exchanges=[{**case.exchanges[0], "repeat": 9}])
    assert (played.reason, len(played.requests)) == ("truncated", 1 + Limits().repairs)
    assert tools.ran == []


async def test_truncation_mislabelled_tool_calls(case: Case, tools: Tools) -> None:
    """A reply that used up its tokens inside a call was cut, whatever its label says."""
    played = await play(case, tools("write_file", path=str, content=str), settings=case.input["request"])
    assert tools.ran == []
    assert "cut" in played.results[0].content
    assert played.rows[0] == "cut_call"
    assert calls_of(played.last[1])


async def test_tool_calls_finish_with_preamble_only(case: Case) -> None:
    """An announced call that is not there is asked for once, and a preamble is no answer."""
    assert (await play(case)).result.output == "done"
    played = await play(case, exchanges=[{**case.exchanges[0], "repeat": 9}])
    assert (played.reason, len(played.requests)) == ("incomplete", 2)
    assert played.result.stop is not None
    assert "tool_calls" in played.result.stop.detail


async def test_usage_negative_or_string(case: Case) -> None:
    """A count that makes no sense is unknown, and one that is a text is read."""
    played = await play(case)
    assert played.result.output == "Hi"
    assert (played.result.usage.input_tokens, played.result.usage.output_tokens) == (1151, None)
    assert played.result.run.charged_tokens >= 1151


@pytest.mark.parametrize("usage", [None, "absent", {"prompt_tokens": None, "completion_tokens": None}, EMPTY])
async def test_usage_null_or_missing(case: Case, usage: object) -> None:
    """Tokens that nobody counted are unknown, not 0 and no reason to throw away an answer."""
    exchange = json.loads(json.dumps(case.exchanges[0]))
    exchange["body"]["usage"] = usage
    if usage == "absent":
        del exchange["body"]["usage"]
    played = await play(case, exchanges=[exchange])
    assert played.result.output == "Hi"
    assert (played.result.usage.input_tokens, played.result.usage.output_tokens) == (None, None)
    assert played.result.run.charged_tokens > 0
