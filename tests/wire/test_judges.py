"""The providers' own clients as judges: they send what we send, and read what `WireServer` plays as we do.

Each judge runs the loop that its documentation shows: it appends the reply as it came, and then the results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from turnstile import Agent, Reply
from turnstile.models import AnthropicMessages, OpenAIChat
from turnstile.testing import FrozenClock, WireRequest, WireServer
from wire_case import Body, Tools, chat, text, turn, use

anthropic = pytest.importorskip("anthropic", reason="the anthropic client is not installed")
openai = pytest.importorskip("openai", reason="the openai client is not installed")

INSTRUCTIONS = "Be brief."
FOLLOW_UP = "And in Rome? 大理 🐢"
LIMIT = 1000


def asks(*cities: str, words: str | None = None) -> Body:
    """A reply of a chat completions server that calls the tool for each city."""
    calls = [
        {
            "id": f"call_{city.encode().hex()}",
            "type": "function",
            "function": {"name": "get_weather", "arguments": json.dumps({"city": city})},
        }
        for city in cities
    ]
    return _completed(chat(words, finish="tool_calls", tool_calls=calls))


def says(words: str, **message: Any) -> Body:
    """A reply of a chat completions server that answers."""
    return _completed(chat(words, **message))


def _completed(exchange: Body) -> Body:
    body = {"object": "chat.completion", "created": 1, "model": "m", **exchange["body"]}
    return {**exchange, "body": {**body, "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}}}


def uses(*cities: str, before: Sequence[Body] = ()) -> Body:
    """A reply of the Messages API that calls the tool for each city."""
    return turn(
        *before, *(use(f"toolu_{city.encode().hex()}", "get_weather", city=city) for city in cities), reason="tool_use"
    )


CHATS = {
    "an answer": [says("Hello")],
    "one call": [asks("Oslo"), says("Sunny")],
    "text beside calls": [asks("Oslo", "Bergen", words="Let me look."), says("Sunny in both")],
    "several rounds": [asks("Oslo"), asks("大理"), asks("Rome", "Paris"), says("Sunny everywhere")],
}
THOUGHT = {"type": "thinking", "thinking": "Which city?", "signature": "c2ln"}
SEALED = {"type": "redacted_thinking", "data": "ENC"}
MESSAGES = {
    "an answer": [turn(text("Hello"))],
    "one call": [uses("Oslo"), turn(text("Sunny"))],
    "text beside calls": [uses("Oslo", "Bergen", before=[text("Let me look.")]), turn(text("Sunny in both"))],
    "several rounds": [uses("Oslo"), uses("大理"), uses("Rome", "Paris"), turn(text("Sunny everywhere"))],
    "thinking": [uses("Oslo", before=[THOUGHT, SEALED, text("Hm.")]), turn(THOUGHT, text("Sunny"))],
}


def weather(city: str) -> str:
    """What the tool returns."""
    return f"{city}: 26 °C"


async def ours(client: Any, tools: Tools, exchanges: Sequence[Body], server: WireServer) -> list[Any]:
    """The bodies that we send: a question and a follow-up."""
    agent = Agent(
        client,
        instructions=INSTRUCTIONS,
        tools=[tools("get_weather", weather, city=str)],
        clock=FrozenClock(),
        settings={"max_tokens": LIMIT},
    )
    first = await agent.run("Is it warm?")
    second = await agent.run(FOLLOW_UP, history=first.messages)
    await client.aclose()
    assert second.ok
    return bodies(server.requests)


def bodies(requests: Sequence[WireRequest]) -> list[Any]:
    """The requests' bodies."""
    return [request.body for request in requests]


@pytest.mark.parametrize("name", CHATS)
async def test_we_send_what_the_openai_client_sends(name: str, tools: Tools) -> None:
    """Every request of a conversation is equal in meaning, so a server cannot tell us apart."""
    exchanges = [*CHATS[name], says("Bye")]
    with WireServer(exchanges) as server:
        sent = await ours(OpenAIChat("m", base_url=server.url, stream=False), tools, exchanges, server)
    with WireServer(exchanges) as server:
        judge = openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0)
        messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}]
        for prompt in ("Is it warm?", FOLLOW_UP):
            messages.append({"role": "user", "content": prompt})
            while True:
                completion = await judge.chat.completions.create(
                    model="m", messages=messages, tools=sent[0]["tools"], max_tokens=LIMIT
                )
                message = completion.choices[0].message
                messages.append(message)
                if not message.tool_calls:
                    break
                for call in message.tool_calls:
                    content = weather(**json.loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        await judge.close()
        expected = bodies(server.requests)
    assert [meaning(body) for body in sent] == [meaning(body) for body in expected]


@pytest.mark.parametrize("name", MESSAGES)
async def test_we_send_what_the_anthropic_client_sends(name: str, tools: Tools) -> None:
    """Every request of a conversation is equal in meaning, but for the cache markers that we add."""
    exchanges = [*MESSAGES[name], turn(text("Bye"))]
    with WireServer(exchanges) as server:
        sent = await ours(AnthropicMessages("m", base_url=server.url, stream=False), tools, exchanges, server)
    with WireServer(exchanges) as server:
        judge = anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0)
        messages: list[Any] = []
        tool = {key: part for key, part in sent[0]["tools"][0].items() if key != "cache_control"}
        for prompt in ("Is it warm?", FOLLOW_UP):
            messages.append({"role": "user", "content": prompt})
            while True:
                message = await judge.messages.create(
                    model="m", system=INSTRUCTIONS, messages=messages, tools=[tool], max_tokens=LIMIT
                )
                messages.append({"role": "assistant", "content": message.content})
                if message.stop_reason != "tool_use":
                    break
                called = [block for block in message.content if block.type == "tool_use"]
                results = [
                    {"type": "tool_result", "tool_use_id": block.id, "content": weather(**block.input)}
                    for block in called
                ]
                messages.append({"role": "user", "content": results})
        await judge.close()
        expected = bodies(server.requests)
    assert [meaning(body) for body in sent] == [meaning(body) for body in expected]


def meaning(part: Any, key: str = "") -> Any:
    """A body without what says nothing: nulls, cache markers, the form of a text, the spelling of arguments."""
    if isinstance(part, Mapping):
        kept = {name: inner for name, inner in part.items() if inner is not None and name not in _SAYS_NOTHING}
        return {name: meaning(inner, name) for name, inner in kept.items()}
    if isinstance(part, list):
        return [meaning(inner) for inner in part]
    if key == "arguments":
        return json.loads(part)
    return [{"type": "text", "text": part}] if key in {"content", "system"} else part


_SAYS_NOTHING = {"cache_control"}


def chunks(*deltas: Mapping[str, Any], finish: str = "stop", usage: Mapping[str, int] | None = None) -> Body:
    """A stream of a chat completions server."""
    start = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    parts = [{**start, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    parts.append({**start, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if usage:
        parts.append({**start, "choices": [], "usage": usage})
    return {"status": 200, "sse": [*(f"data: {json.dumps(part)}" for part in parts), "data: [DONE]"]}


def piece(index: int, arguments: str, **head: Any) -> dict[str, Any]:
    """A piece of a call."""
    named = {"name": head.pop("name")} if "name" in head else {}
    return {"tool_calls": [{"index": index, **head, "function": {**named, "arguments": arguments}}]}


USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
HEADS = [{"id": f"call_{n}", "type": "function", "name": "get_weather"} for n in range(2)]
PLAYED_CHATS = {
    "an answer": says("Hello"),
    "calls": asks("Oslo", "大理", words="Let me look."),
    "a refusal": says("", refusal="I cannot."),
    "cut": _completed(chat("Half of", finish="length")),
    "a stream": chunks({"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"}, usage=USAGE),
    "a stream of calls": chunks(
        piece(0, "", **HEADS[0]),
        piece(0, '{"city":'),
        piece(0, '"Oslo"}'),
        piece(1, "", **HEADS[1]),
        piece(1, '{"city":"大理"}'),
        finish="tool_calls",
        usage=USAGE,
    ),
    "a stream that refuses": chunks({"refusal": "I can"}, {"refusal": "not."}),
    "a stream that is cut": chunks({"content": "Half of"}, finish="length", usage=USAGE),
}


@pytest.mark.parametrize("name", PLAYED_CHATS)
async def test_we_read_what_the_openai_client_reads(name: str) -> None:
    """Text, calls, ending and tokens are the same to both."""
    exchange, streams = PLAYED_CHATS[name], "sse" in PLAYED_CHATS[name]
    with WireServer([exchange, exchange]) as server:
        reply = await ask(OpenAIChat("m", base_url=server.url, stream=streams))
        judge = openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0)
        messages = [{"role": "user", "content": "q"}]
        if streams:
            async with judge.chat.completions.stream(model="m", messages=messages) as stream:
                async for _ in stream:
                    pass
                completion = stream.current_completion_snapshot
        else:
            completion = await judge.chat.completions.create(model="m", messages=messages)
        await judge.close()
    choice = completion.choices[0]
    message = choice.message
    assert reply.text == (message.content or message.refusal or "")
    assert reply.finish_raw == choice.finish_reason
    assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
        (call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
    ]
    counted = (reply.usage.input_tokens, reply.usage.output_tokens) if reply.usage else None
    usage = completion.usage
    assert counted == ((usage.prompt_tokens, usage.completion_tokens) if usage else None)


def events(*blocks: tuple[Body, Sequence[Body]], reason: str = "end_turn") -> Body:
    """A stream of the Messages API: each block as it starts, and its deltas."""
    start: Body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    usage = {"input_tokens": 12, "output_tokens": 1}
    parts: list[Body] = [{"type": "message_start", "message": {**start, "stop_sequence": None, "usage": usage}}]
    for index, (block, deltas) in enumerate(blocks):
        parts.append({"type": "content_block_start", "index": index, "content_block": block})
        parts += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        parts.append({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": reason, "stop_sequence": None}
    parts += [{"type": "message_delta", "delta": ending, "usage": {"output_tokens": 5}}, {"type": "message_stop"}]
    return {"status": 200, "sse": [f"event: {part['type']}\ndata: {json.dumps(part)}" for part in parts]}


def written(*pieces: str) -> list[Body]:
    """Text in pieces."""
    return [{"type": "text_delta", "text": piece} for piece in pieces]


def given(*pieces: str) -> list[Body]:
    """Arguments in pieces."""
    return [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]


THINKING = [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "c2ln"}]
PLAYED_MESSAGES = {
    "an answer": turn(text("Hello")),
    "calls": uses("Oslo", "大理", before=[THOUGHT, text("Let me look.")]),
    "cut": turn(text("Half of"), reason="max_tokens"),
    "a stream": events((text(""), written("Hel", "lo"))),
    "a stream of calls": events(
        ({"type": "thinking", "thinking": "", "signature": ""}, THINKING),
        (text(""), written("Let me look.")),
        (use("t1", "get_weather"), given("", '{"city":', '"Oslo"}')),
        (use("t2", "now"), given("")),
        reason="tool_use",
    ),
    "a stream that is cut": events((text(""), written("Half of")), reason="max_tokens"),
}


@pytest.mark.parametrize("name", PLAYED_MESSAGES)
async def test_we_read_what_the_anthropic_client_reads(name: str) -> None:
    """Text, reasoning, calls, ending and tokens are the same to both."""
    exchange, streams = PLAYED_MESSAGES[name], "sse" in PLAYED_MESSAGES[name]
    with WireServer([exchange, exchange]) as server:
        reply = await ask(AnthropicMessages("m", base_url=server.url, stream=streams))
        judge = anthropic.AsyncAnthropic(base_url=server.url, api_key="k", max_retries=0)
        request: Any = {"model": "m", "messages": [{"role": "user", "content": "q"}], "max_tokens": LIMIT}
        if streams:
            async with judge.messages.stream(**request) as stream:
                message = await stream.get_final_message()
        else:
            message = await judge.messages.create(**request)
        await judge.close()
    assert reply.text == "".join(block.text for block in message.content if block.type == "text")
    assert reply.reasoning == "".join(block.thinking for block in message.content if block.type == "thinking")
    assert reply.finish_raw == message.stop_reason
    assert [(call.id, call.name, json.loads(call.arguments)) for call in reply.calls] == [
        (block.id, block.name, block.input) for block in message.content if block.type == "tool_use"
    ]
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (
        message.usage.input_tokens,
        message.usage.output_tokens,
    )


async def ask(client: Any) -> Reply:
    """One question to a client of ours."""
    from turnstile import UserTurn
    from turnstile.ports import ModelRequest

    reply = await client.reply(ModelRequest("", [UserTurn("q")]), lambda delta: None)
    await client.aclose()
    assert isinstance(reply, Reply)
    return reply
