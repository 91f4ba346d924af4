"""OpenAI Agents SDK: ``Runner.run`` with a model of our own, or with its chat completions model over HTTP.

Tracing is off, since its exporter would call the vendor.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from work import API_KEY, CONNECTIONS, PROMPT, TIMEOUT, Job, Listen, Once, Unsupported, make_tool

COLD = """
from openai import AsyncOpenAI
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
@function_tool
async def add(a: int, b: int) -> int:
    "Add two integers."
    return a + b
client = AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="sk-bench")
agent = Agent(name="bench", model=OpenAIChatCompletionsModel("bench", client), tools=[add])
"""


def build(job: Job) -> Once:
    """One run of an agent that was made once."""
    from agents import RunConfig, Runner, SQLiteSession

    agent = agent_of(job)
    config = RunConfig(tracing_disabled=True)

    async def once() -> str:
        session = SQLiteSession(uuid.uuid4().hex, job.journal) if job.journal else None
        result = await Runner.run(agent, PROMPT, max_turns=None, run_config=config, session=session)
        return str(result.final_output)

    return once


def listen(job: Job) -> Listen:
    """The raw events of a streamed run."""
    from agents import RunConfig, Runner

    agent = agent_of(job)
    config = RunConfig(tracing_disabled=True)

    async def once(heard: Callable[[str], object]) -> None:
        async for event in Runner.run_streamed(agent, PROMPT, run_config=config).stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                heard(event.data.delta)

    return once


async def leave(job: Job) -> Once:
    """Not here."""
    raise Unsupported("keeps messages, not where a run stands")


def agent_of(job: Job) -> Any:
    """An agent with the tool `add`."""
    from agents import Agent, function_tool, set_tracing_disabled

    set_tracing_disabled(disabled=True)
    model = server_model(job) if job.url else script_model(job)
    return Agent(name="bench", model=model, tools=[function_tool(make_tool(job))])


def script_model(job: Job) -> Any:
    """The model scripted in process."""
    from agents import Model, ModelResponse, Usage
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    def output(number: int) -> list[Any]:
        wanted = job.calls_of(number)
        if not wanted:
            text = ResponseOutputText(text=job.answer, type="output_text", annotations=[], logprobs=[])
            return [ResponseOutputMessage(id="m", role="assistant", status="completed", type="message", content=[text])]
        return [
            ResponseFunctionToolCall(type="function_call", name="add", call_id=call_id, arguments=arguments)
            for call_id, arguments in wanted
        ]

    class Script(Model):
        async def get_response(self, *args: Any, **given: Any) -> ModelResponse:
            await job.give_way()
            number = 0 if isinstance(given["input"], str) else (len(given["input"]) - 1) // (2 * job.calls)
            return ModelResponse(output=output(number), usage=Usage(requests=1), response_id=None)

        def stream_response(self, *args: Any, **options: Any) -> Any:
            message = "this script is not streamed"
            raise AssertionError(message)

    return Script()


def server_model(job: Job) -> Any:
    """The model server, over the vendor's client."""
    import httpx2
    from agents import OpenAIChatCompletionsModel
    from openai import AsyncOpenAI

    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    http = httpx2.AsyncClient(limits=limits, timeout=TIMEOUT)
    return OpenAIChatCompletionsModel(
        job.model, AsyncOpenAI(base_url=job.url, api_key=API_KEY, http_client=http, max_retries=0)
    )
