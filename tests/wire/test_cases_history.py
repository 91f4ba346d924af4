"""Histories as they are sent: valid for strict servers, whatever was left out of them or put into them."""

from __future__ import annotations

from typing import Any

import pytest

from turnstile import Exchange, KeepAll, LastTokens, LastTurns, Reply, ToolCall, ToolResult, UsageError, UserTurn
from turnstile.core.history import History
from turnstile.core.messages import Message
from turnstile.testing import WireRequest
from wire_case import Body, Case, Tools, chat, check_chat, play, said

OVERFLOW = {"status": 400, "body": {"error": {"code": "context_length_exceeded", "message": "too long"}}}


async def test_assistant_content_null_vs_empty_per_provider(case: Case) -> None:
    """What stands where a reply has only calls is one switch; the rest of a history is the same under each."""
    history: list[Message] = [*said(case.messages), UserTurn("and?"), Reply("text", (ToolCall("c2", "f", "{}"),))]
    history += [ToolResult("c2", "f", "ok"), UserTurn("so?"), Reply("plain")]
    sent: dict[str, list[Body]] = {}
    for option in ("null", "empty", "omit"):
        played = await play(case, history=history, exchanges=[chat()], options={"empty_content": option})
        sent[option] = played.last
    assert [sent[option][1].get("content", "no key") for option in sent] == [None, "", "no key"]
    assert all(message["content"] for messages in sent.values() for message in (messages[4], messages[7]))
    played = await play(case, history=history, exchanges=[chat()])
    assert played.last == sent["null"]


async def test_assistant_empty_content_no_tools_in_history(case: Case) -> None:
    """A reply that says nothing is not sent, and the neighbours are joined where a server wants roles to alternate."""
    history: list[Message] = [UserTurn("a"), Reply(""), UserTurn("b"), Reply("c")]
    played = await play(case, history=history, exchanges=[chat()])
    assert [message["content"] for message in played.last] == ["a", "b", "c", "q"]
    played = await play(case, history=history, exchanges=[chat()], options={"merge_consecutive": True})
    assert [message["content"] for message in played.last] == ["a\n\nb", "c", "q"]


async def test_tool_result_without_any_call_in_input(case: Case) -> None:
    """A result that answers nothing is refused before a request, by its id."""
    with pytest.raises(UsageError, match="cX"):
        await play(case, history=said(case.messages))


async def test_trim_orphans_tool_message(case: Case) -> None:
    """Whatever is left out, no call is parted from its result, and what the user asked stays."""
    history = History.of(said(case.messages))
    for start in range(len(history) + 1):
        kept = KeepAll().select(history, start)
        assert kept[0] == UserTurn("u")
        assert all(isinstance(item, UserTurn) or item.results for item in kept)
    for tokens in range(1, 120):
        kept = LastTokens(tokens).select(history, 0)
        assert kept[0] == UserTurn("u")
        assert all(isinstance(item, UserTurn) or item.results for item in kept)
    for context in (LastTurns(1), LastTurns(2), LastTokens(1), LastTokens(30)):
        played = await play(case, instructions="s", history=history, exchanges=[OVERFLOW, chat()], context=context)
        for body in played.bodies:
            assert body["messages"][0] == {"role": "system", "content": "s"}
            assert body["messages"][-1] == {"role": "user", "content": "q"}


async def test_trim_when_tail_is_tool_result(case: Case, tools: Tools) -> None:
    """In the middle of a loop the newest call stays together with its result, led by the question."""
    calls: list[Any] = [message for message in case.messages if "tool_calls" in message]
    replies = [chat(None, tool_calls=message["tool_calls"]) for message in calls]
    results = iter(["AAAA", "BBBB"])
    exchanges = [*replies, OVERFLOW, chat()]
    played = await play(case, tools("f", lambda: next(results)), instructions="s", exchanges=exchanges)
    assert [message["role"] for message in played.last] == ["system", "user", "assistant", "tool"]
    assert played.last[-1]["content"] == "BBBB"
    assert played.result.output == "done"


async def test_huge_result_at_trim_boundary(case: Case) -> None:
    """One giant result does not take the small turns after it along."""
    call = Exchange(Reply("", (ToolCall("c1", "f", "{}"),)), (ToolResult("c1", "f", "x" * 1_900_000),))
    small = [turn for n in range(12) for turn in (UserTurn(f"question {n}"), Reply(f"answer {n}"))]

    def within(request: WireRequest) -> Body:
        return chat() if len(request.content) < 40_000 * 3 else OVERFLOW

    history = [UserTurn("user"), call, *small]
    for context, requests in ((LastTokens(40_000), 1), (KeepAll(), 2)):
        played = await play(case, prompt="now", history=history, exchanges=[within, within], context=context)
        assert len(played.requests) == requests
        assert played.result.output == "done"
        assert {"role": "assistant", "content": "answer 11"} in played.last
        assert {"role": "assistant", "content": "answer 6"} in played.last


async def test_ctx_zero_usage_disables_auto_trim(case: Case) -> None:
    """A server that counts nothing doesn't keep a window from being held: it is held by our own estimate."""
    old = [turn for n in range(100) for turn in (UserTurn(f"{n} " + "question " * 20), Reply("answer " * 20))]
    replies = [{**case.exchanges[0], "repeat": 3}]
    history: tuple[Message, ...] = tuple(old)
    for _ in range(3):
        played = await play(case, history=history, exchanges=replies, context=LastTokens(1000))
        assert played.result.output == "ok"
        assert len(played.requests) == 1
        assert 1000 < len(played.requests[0].content) < 1000 * 4
        history = played.result.messages


async def test_deepseek_reasoning_on_plain_assistant_too(case: Case) -> None:
    """A server that wants reasoning back wants it with every message of the model's, empty where there was none."""
    history = [*said(case.messages), Reply("b", reasoning="because")]
    played = await play(case, history=history, exchanges=[chat()], options={"reasoning_echo": "always"})
    assert [m["reasoning_content"] for m in played.last if m["role"] == "assistant"] == ["", "because"]


async def test_empty_tools_array(case: Case) -> None:
    """No tools is said by saying nothing of tools."""
    played = await play(case, exchanges=[chat()])
    assert played.bodies[0].keys().isdisjoint({"tools", "tool_choice", "parallel_tool_calls", "functions"})


async def test_parallel_tool_calls_without_tools(case: Case) -> None:
    """Settings about tools go with tools only."""
    settings = case.input["options"]
    played = await play(case, exchanges=[chat()], settings=settings)
    assert played.bodies[0].keys().isdisjoint({"tools", *settings})


async def test_internal_fields_leak_into_messages(case: Case, tools: Tools) -> None:
    """Of a reply only what the protocol takes goes back."""
    first = await play(case)
    second = await play(case, history=first.result.messages, exchanges=[chat()])
    assert second.last[1] == {"role": "assistant", "content": "a"}


async def test_successive_user_messages(case: Case) -> None:
    """Roles alternate where a server wants it, nothing is lost, and the history stays as it was."""
    history = [*said(case.messages), Reply("f", (ToolCall("c1", "t", "{}"),)), ToolResult("c1", "t", "r"), Reply("g")]
    played = await play(
        case, instructions="s", history=history, exchanges=[chat()], options={"merge_consecutive": True}
    )
    sent = [(message["role"], message["content"]) for message in played.last]
    assert sent[:4] == [("system", "s"), ("user", "a\n\nb"), ("assistant", "c\n\nd"), ("user", "e")]
    assert sent[4:] == [("assistant", "f"), ("tool", "r"), ("assistant", "g"), ("user", "q")]
    assert played.result.messages[: len(history)] == tuple(history)


async def test_schema_noarg_missing_properties(case: Case, tools: Tools) -> None:
    """A tool without parameters is an object without properties, in so many words."""
    played = await play(case, *(tools(each["name"]) for each in case.input["tools"]), exchanges=[chat()])
    for each in played.bodies[0]["tools"]:
        parameters = each["function"]["parameters"]
        assert (parameters["type"], parameters["properties"]) == ("object", {})


def test_the_check_of_every_request_sees_what_is_wrong() -> None:
    """The tests here stand on this check."""
    calls: list[Body] = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]
    result = {"role": "tool", "tool_call_id": "a", "content": "x"}
    asking: Body = {"role": "assistant", "content": "", "tool_calls": calls}
    check_chat([asking, result])
    wrongs: list[list[Body]] = [
        [asking],
        [result],
        [asking, result, asking, result],
        [{"role": "assistant", "content": " "}],
    ]
    for wrong in wrongs:
        with pytest.raises(AssertionError):
            check_chat(wrong)
