"""Pydantic AI: ``Agent.run`` with a ``FunctionModel``, or with its ``OpenAIChatModel`` over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from work import API_KEY, CONNECTIONS, PROMPT, TIMEOUT, Job, Listen, Once, Unsupported, make_tool

COLD = """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
async def add(a: int, b: int) -> int:
    "Add two integers."
    return a + b
provider = OpenAIProvider(base_url="http://127.0.0.1:9/v1", api_key="sk-bench")
agent = Agent(OpenAIChatModel("bench", provider=provider), tools=[add])
"""


def build(job: Job) -> Once:
    """One run of an agent that was made once."""
    if job.journal:
        raise Unsupported("no journal in a file")
    from pydantic_ai import Agent
    from pydantic_ai.usage import UsageLimits

    agent = Agent(server_model(job) if job.url else script_model(job), tools=[make_tool(job)])
    limits = UsageLimits(request_limit=None)

    async def once() -> str:
        return str((await agent.run(PROMPT, usage_limits=limits)).output)

    return once


def listen(job: Job) -> Listen:
    """The text of a streamed run, piece by piece as it comes."""
    from pydantic_ai import Agent

    agent = Agent(server_model(job), tools=[make_tool(job)])

    async def once(heard: Callable[[str], object]) -> None:
        async with agent.run_stream(PROMPT) as result:
            async for text in result.stream_text(delta=True, debounce_by=None):
                heard(text)

    return once


async def leave(job: Job) -> Once:
    """Not here."""
    raise Unsupported("no journal in a file")


def script_model(job: Job) -> Any:
    """The model scripted in process."""
    from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.usage import RequestUsage

    usage = RequestUsage(input_tokens=10, output_tokens=5)  # without it, the whole history is counted on every call

    async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await job.give_way()
        wanted = job.calls_of((len(messages) - 1) // 2)
        calls: list[ModelResponsePart] = [ToolCallPart("add", arguments, tool_call_id=id_) for id_, arguments in wanted]
        return ModelResponse(parts=calls or [TextPart(job.answer)], usage=usage)

    return FunctionModel(reply)


def server_model(job: Job) -> Any:
    """The model server, over the vendor's client."""
    import httpx2
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    http = httpx2.AsyncClient(limits=limits, timeout=TIMEOUT)
    client = AsyncOpenAI(base_url=job.url, api_key=API_KEY, http_client=http, max_retries=0)
    return OpenAIChatModel(job.model, provider=OpenAIProvider(openai_client=client))
