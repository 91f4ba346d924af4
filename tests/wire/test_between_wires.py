"""One conversation over several servers: what each wants back goes back to it alone, and the rest to all."""

from __future__ import annotations

from typing import Any

from turnstile import Agent, Attachment
from turnstile.models import AnthropicMessages, OpenAIChat
from turnstile.ports import ModelClient
from turnstile.testing import FrozenClock, WireServer
from wire_case import Body, Tools, blocks, chat, check_chat, check_turns, text, turn, use

REFUSED = {"status": 401, "body": {"error": {"type": "authentication_error", "message": "expired"}}}
THOUGHT = {"type": "thinking", "thinking": "Which?", "signature": "c2ln"}
PICTURE = Attachment.of(b"\x89PNG\r\n", "image/png", "dot.png")


def messages(server: WireServer, place: int = -1) -> list[Any]:
    """The messages of a request."""
    body: Any = server.requests[place].body
    found: list[Any] = body["messages"]
    return found


async def test_a_fallback_goes_on_where_the_first_model_stopped(tools: Tools) -> None:
    """A run changes from one protocol to the other amid its calls, and back again with all that was signed."""
    first = [turn(THOUGHT, text("Let me look."), use("toolu_1", city="Oslo"), reason="tool_use"), REFUSED]
    signed = {"google": {"thought_signature": "SIG"}}
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"city":"Rome"}'}}
    second = [chat(None, finish="tool_calls", tool_calls=[{**call, "extra_content": signed}]), chat("Both sunny.")]
    with WireServer([*first, turn(text("Bye"))]) as one, WireServer([*second, chat("Bye")]) as other:
        models: list[ModelClient] = [AnthropicMessages("a", base_url=one.url), OpenAIChat("o", base_url=other.url)]
        agent = Agent(models, tools=[tools("f", city=str)], clock=FrozenClock())
        result = await agent.run(["What is this?", PICTURE])
        assert result.output == "Both sunny."
        assert tools.ran == [("f", {"city": "Oslo"}), ("f", {"city": "Rome"})]
        for model in models:
            await agent.run("Thanks", model=model, history=result.messages)
            await model.aclose()
    for request in range(3):
        check_chat(messages(other, request))
    check_turns(messages(one))
    assert "c2ln" not in repr(other.requests)
    assert "SIG" not in repr(one.requests)
    assert blocks(messages(one)[1]) == [THOUGHT, text("Let me look."), use("toolu_1", city="Oslo")]
    assert messages(other)[3]["tool_calls"][0]["extra_content"] == signed
    assert "dot.png" not in messages(other)[0]["content"]
    assert [kind_of(part) for part in messages(other)[0]["content"]] == ["text", "image_url"]
    assert sorted(block["type"] for block in blocks(messages(one)[0])) == ["image", "text"]


def kind_of(part: Body) -> str:
    """What a part of a message is."""
    kind: str = part["type"]
    return kind
