"""smolagents: ``ToolCallingAgent``, which blocks, with its logging off.

It ends with a call of its own tool ``final_answer``, and shows the model its history as text, so a request looks
different from the others'.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from work import API_KEY, PAUSE, PROMPT, Job, Ledger, Listen, Once, Unsupported

COLD = """
from smolagents import OpenAIModel, Tool, ToolCallingAgent
class Add(Tool):
    name = "add"
    description = "Add two integers."
    inputs = {"a": {"type": "integer", "description": "a"}, "b": {"type": "integer", "description": "b"}}
    output_type = "integer"
    def forward(self, a: int, b: int) -> int:
        return a + b
model = OpenAIModel("bench", api_base="http://127.0.0.1:9/v1", api_key="sk-bench")
agent = ToolCallingAgent(tools=[Add()], model=model, verbosity_level=-1)
"""


def build(job: Job) -> Once:
    """One run of an agent; it holds the run's memory, so runs at once need one each."""
    if job.tool == "async_sleep":
        raise Unsupported("no asynchronous tools")
    if job.journal:
        raise Unsupported("no journal")
    model = server_model(job) if job.url else script_model(job)
    agent = agent_of(job, model)
    return lambda: str((agent if job.at_once == 1 else agent_of(job, model)).run(PROMPT))


def listen(job: Job) -> Listen:
    """The pieces among all that a streamed run tells."""
    from smolagents.models import ChatMessageStreamDelta

    agent = agent_of(job, server_model(job), stream_outputs=True)

    def once(heard: Callable[[str], object]) -> None:
        for event in agent.run(PROMPT, stream=True):
            if isinstance(event, ChatMessageStreamDelta) and event.content:
                heard(event.content)

    return once


async def leave(job: Job) -> Once:
    """Not here."""
    raise Unsupported("no journal")


def agent_of(job: Job, model: Any, **options: Any) -> Any:
    """An agent that prints nothing."""
    from smolagents import ToolCallingAgent
    from smolagents.monitoring import LogLevel

    return ToolCallingAgent(
        tools=[make_add(job)], model=model, verbosity_level=LogLevel.OFF, max_steps=job.rounds + 5, **options
    )


def make_add(job: Job) -> Any:
    """The tool `add`."""
    from smolagents import Tool

    class Add(Tool):
        name = "add"
        description = "Add two integers."
        inputs = {"a": {"type": "integer", "description": "a"}, "b": {"type": "integer", "description": "b"}}  # noqa: RUF012
        output_type = "integer"

        def forward(self, a: int, b: int) -> int:
            Ledger.calls += 1
            if job.tool == "thread_sleep":
                time.sleep(PAUSE)
            return a + b

    return Add()


def script_model(job: Job) -> Any:
    """The model scripted in process."""
    from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole, Model

    class Script(Model):
        def generate(self, messages: list[ChatMessage], *args: Any, **options: Any) -> ChatMessage:
            steps = sum(message.role == MessageRole.TOOL_RESPONSE for message in messages)
            wanted = [("add", *call) for call in job.calls_of(steps)]
            calls = wanted or [("final_answer", "call_final", json.dumps({"answer": job.answer}))]
            return ChatMessage(
                role=MessageRole.ASSISTANT,
                content="",
                tool_calls=[
                    ChatMessageToolCall(
                        id=call_id,
                        type="function",
                        function=ChatMessageToolCallFunction(name=name, arguments=json.loads(arguments)),
                    )
                    for name, call_id, arguments in calls
                ],
            )

    return Script()


def server_model(job: Job) -> Any:
    """The model server, over the vendor's client."""
    from smolagents import OpenAIModel

    return OpenAIModel(job.model, api_base=job.url, api_key=API_KEY, client_kwargs={"max_retries": 0})
