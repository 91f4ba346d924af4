"""Calls that come in pieces: whatever index, id or name a piece lacks or repeats, each call is put together once."""

from __future__ import annotations

from turnstile import ToolResult
from wire_case import Case, Tools, calls_of, chat, play


def ids(message: dict[str, list[dict[str, str]]]) -> list[str]:
    """The ids of a message's calls."""
    return [call["id"] for call in message["tool_calls"]]


async def test_delta_arguments_null_then_text(case: Case, tools: Tools) -> None:
    """Null says nothing, wherever it stands."""
    played = await play(case, tools("f"))
    assert tools.ran == [("f", {})]
    assert played.result.output == "done"


async def test_delta_head_index_collides_tail_correct(case: Case, tools: Tools) -> None:
    """A call's head under another's index doesn't merge them."""
    played = await play(case, tools("f", k=str), tools("g", k=str))
    assert sorted(tools.ran) == [("f", {"k": "A"}), ("g", {"k": "B"})]
    assert played.result.output == "done"


async def test_delta_id_and_name_in_separate_chunks(case: Case, tools: Tools) -> None:
    """An id and a name may come one after the other."""
    played = await play(case, tools("f"))
    assert tools.ran == [("f", {})]
    assert ids(played.last[1]) == ["c1"]


async def test_delta_id_changes_mid_call(case: Case, tools: Tools) -> None:
    """Another id without a name, amid a call's arguments, begins no new call."""
    played = await play(case, tools("f", a=int))
    assert tools.ran == [("f", {"a": 1})]
    assert len(ids(played.last[1])) == 1


async def test_delta_id_empty_on_continuation(case: Case, tools: Tools) -> None:
    """An empty id is none."""
    played = await play(case, tools("bash", cmd=str))
    assert tools.ran == [("bash", {"cmd": "ls"})]
    assert ids(played.last[1]) == ["c1"]


async def test_delta_invalid_index_type(case: Case, tools: Tools) -> None:
    """An index that is a text tells calls apart as well as a number."""
    await play(case, tools("f", a=int), tools("g"))
    assert sorted(tools.ran) == [("f", {"a": 1}), ("g", {})]


async def test_delta_name_fragmented(case: Case, tools: Tools) -> None:
    """A name in pieces is put together; one that is repeated is not."""
    await play(case, tools("get_weather"), tools("get_"))
    assert tools.ran == [("get_weather", {})]
    text = "\n".join(case.exchanges[0]["sse"]).replace('"get_"', '"get_weather"').replace('"weather"', '"get_weather"')
    repeated = {**case.exchanges[0], "sse": text.split("\n")}
    await play(case, tools("get_weather"), exchanges=[repeated, chat()])
    assert tools.ran == [("get_weather", {})] * 2


async def test_delta_no_id_at_all_stream(case: Case, tools: Tools) -> None:
    """A call without an id gets one, streamed or not."""
    streamed = await play(case, tools("get_time"))
    call = {"type": "function", "function": {"name": "get_time", "arguments": "{}"}}
    whole = await play(case, tools("get_time"), exchanges=[chat(None, finish="tool_calls", tool_calls=[call]), chat()])
    assert tools.ran == [("get_time", {})] * 2
    assert streamed.last == whole.last
    results = [message for message in streamed.result.messages if isinstance(message, ToolResult)]
    assert all(result.call_id for result in results)


async def test_delta_same_index_for_distinct_calls(case: Case, tools: Tools) -> None:
    """Another id at an index is another call."""
    played = await play(case, tools("read_file", path=str))
    assert sorted(given["path"] for _, given in tools.ran) == ["a", "b"]
    assert ids(played.last[1]) == ["c1", "c2"]
    assert [given["path"] for _, given in calls_of(played.last[1])] == ["a", "b"]


async def test_gemini_thought_signature_on_trailing_delta(case: Case, tools: Tools) -> None:
    """A signature that comes behind its call belongs to it, and begins no other."""
    played = await play(case, tools("f"))
    assert tools.ran == [("f", {})]
    (call,) = played.last[1]["tool_calls"]
    assert call["extra_content"] == {"google": {"thought_signature": "SIG"}}


async def test_gemini_thought_signature_echo(case: Case, tools: Tools) -> None:
    """A signature goes back as it came, and to no other server."""
    played = await play(case, tools("f"))
    received = case.exchanges[0]["body"]["choices"][0]["message"]["tool_calls"][0]["extra_content"]
    assert played.last[1]["tool_calls"][0]["extra_content"] == received
    again = await play(case, history=played.result.messages, exchanges=[chat()])  # a server on another port
    assert "extra_content" not in again.last[1]["tool_calls"][0]


async def test_tool_call_as_text_in_content(case: Case, tools: Tools) -> None:
    """A call written into the text is told of, and run only where that is asked for and it is one."""
    made = tools("get_weather", city=str)
    played = await play(case, made)
    assert tools.ran == []
    assert played.result.stop is not None
    assert "suspected_text_tool_call" in played.result.stop.flags
    run = {"text_tool_calls": "run"}
    played = await play(case, made, options=run)
    assert tools.ran == [("get_weather", {"city": "Oslo"})]
    assert all(ids(played.last[1]))
    for words in (
        "Write <tool_call> to call a tool.",
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
    ):
        played = await play(case, made, exchanges=[chat(words)], options=run)
        assert played.result.output == words
    assert len(tools.ran) == 1
