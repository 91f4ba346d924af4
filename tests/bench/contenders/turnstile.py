"""Turnstile, with the JSON log on, written to a file line by line, and its journal in memory, unless it is measured."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from work import API_KEY, CONNECTIONS, PROMPT, TIMEOUT, Job, Listen, Once, make_tool

if TYPE_CHECKING:
    from turnstile import Agent, Reply
    from turnstile.ports import Delta, ModelClient, ModelRequest, Store

COLD = """
from turnstile import Agent
from turnstile.models import OpenAIChat
async def add(a: int, b: int) -> int:
    "Add two integers."
    return a + b
agent = Agent(OpenAIChat("bench", base_url="http://127.0.0.1:9/v1", api_key="sk-bench"), tools=[add])
"""


def build(job: Job) -> Once:
    """One run of an agent that was made once."""
    from turnstile.stores import SQLiteStore

    agent = agent_of(job, SQLiteStore(job.journal) if job.journal else None)

    async def once() -> str:
        return (await agent.run(PROMPT)).output

    return once


def listen(job: Job) -> Listen:
    """What a run tells while it goes on."""
    from turnstile.ports import Delta

    agent = agent_of(job, None)

    async def once(heard: Callable[[str], object]) -> None:
        async with agent.start(PROMPT) as run:
            async for notice in run.events():
                if isinstance(notice, Delta):
                    heard(notice.text)

    return once


async def leave(job: Job) -> Once:
    """A run that is left where it would ask for its last reply."""
    from turnstile.stores import SQLiteStore

    async with SQLiteStore(job.journal) as store, agent_of(job, store).start(PROMPT) as run:
        while run.snapshot.turns < job.rounds or run.state != "await_model":
            await run.step()

    async def resume() -> str:
        async with SQLiteStore(job.journal) as store, await agent_of(job, store).resume(run.run_id) as again:
            return (await again.finish()).output

    return resume


def agent_of(job: Job, store: Store | None) -> Agent[str]:
    """An agent with its log on."""
    from turnstile import Agent, Limits
    from turnstile.log import JsonLog

    log = JsonLog(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115 - open as long as the process
    model = server_model(job) if job.url else Script(job)
    limits = Limits(turns=job.rounds + 1)
    return Agent(model, tools=[make_tool(job)], limits=limits, observers=[log], store=store)


class Script:
    """The model scripted in process; unlike `ScriptedModel` it keeps no request."""

    name = "script"
    price = None

    def __init__(self, job: Job) -> None:
        from turnstile import Reply, ToolCall, Usage

        def say(number: int) -> Reply:
            usage = Usage(input_tokens=10, output_tokens=5)
            calls = tuple(ToolCall(call_id, "add", arguments) for call_id, arguments in job.calls_of(number))
            return Reply(calls=calls, finish="tool_calls", usage=usage) if calls else Reply(job.answer, usage=usage)

        self._job = job
        self._say = say

    async def reply(self, request: ModelRequest, progress: Callable[[Delta], None]) -> Reply:
        """The reply of the round that the history has reached."""
        await self._job.give_way()
        return self._say(len(request.items) - 1)

    async def aclose(self) -> None:
        """Nothing to let go of."""


def server_model(job: Job) -> ModelClient:
    """The model server; it streams where the job is to be streamed, as the others do."""
    from turnstile.models import OpenAIChat

    return OpenAIChat(
        job.model,
        base_url=job.url,
        api_key=API_KEY,
        timeout=TIMEOUT,
        connections=CONNECTIONS,
        stream=bool(job.chunks),
    )
