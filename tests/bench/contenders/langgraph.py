"""LangGraph: a ``StateGraph`` over ``MessagesState`` with an agent node, its ``ToolNode`` and a conditional edge."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from work import API_KEY, CONNECTIONS, PROMPT, TIMEOUT, Job, Listen, Once, make_tool

COLD = """
from langchain_openai import ChatOpenAI
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
@tool
async def add(a: int, b: int) -> int:
    "Add two integers."
    return a + b
model = ChatOpenAI(model="bench", base_url="http://127.0.0.1:9/v1", api_key="sk-bench").bind_tools([add])
async def agent(state): return {"messages": [await model.ainvoke(state["messages"])]}
graph = StateGraph(MessagesState)
graph.add_node("agent", agent)
graph.add_node("tools", ToolNode([add]))
graph.add_edge(START, "agent")
graph.add_conditional_edges("agent", tools_condition)
graph.add_edge("tools", "agent")
app = graph.compile()
"""


def build(job: Job) -> Once:
    """One run of a graph that was compiled once; with a journal, each in a thread of its own."""
    graph = graph_of(job)
    apps: list[Any] = [] if job.journal else [graph.compile()]

    async def once() -> str:
        if not apps:
            apps.append(graph.compile(checkpointer=await saver_in(job.journal)))
        config = {"recursion_limit": 2 * job.rounds + 10, "configurable": {"thread_id": uuid.uuid4().hex}}
        state = await apps[0].ainvoke({"messages": [{"role": "user", "content": PROMPT}]}, config)
        return str(state["messages"][-1].content)

    return once


def listen(job: Job) -> Listen:
    """A graph's stream of messages, token by token."""
    graph = graph_of(job).compile()

    async def once(heard: Callable[[str], object]) -> None:
        start = {"messages": [{"role": "user", "content": PROMPT}]}
        async for message, _ in graph.astream(start, stream_mode="messages"):
            if message.content:
                heard(message.content)

    return once


async def leave(job: Job) -> Once:
    """A run that its limit of steps ends early, and which its checkpointer brings back."""
    from langgraph.errors import GraphRecursionError

    graph, thread = graph_of(job), {"thread_id": uuid.uuid4().hex}

    async def go_on(start: object, steps: int) -> str:
        saver = await saver_in(job.journal)
        try:
            app = graph.compile(checkpointer=saver)
            state = await app.ainvoke(start, {"recursion_limit": steps, "configurable": thread})
            return str(state["messages"][-1].content)
        finally:
            await saver.conn.close()

    with suppress(GraphRecursionError):
        await go_on({"messages": [{"role": "user", "content": PROMPT}]}, 2 * job.rounds)
    return lambda: go_on(None, 10)


async def saver_in(file: str) -> Any:
    """LangGraph's own keeper of checkpoints in SQLite, for asynchronous runs."""
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    saver = AsyncSqliteSaver(await aiosqlite.connect(file))
    await saver.setup()
    return saver


def graph_of(job: Job) -> Any:
    """The graph: ask the model, run its tools, until it asks for none."""
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    add = tool(make_tool(job))
    model = server_model(job).bind_tools([add]) if job.url else script_model(job)

    async def agent(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph


def script_model(job: Job) -> Any:
    """The model scripted in process."""
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Script(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "script"

        def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
            wanted = job.calls_of((len(messages) - 1) // (1 + job.calls))
            calls = [{"name": "add", "args": json.loads(arguments), "id": call_id} for call_id, arguments in wanted]
            message = AIMessage(content="" if calls else job.answer, tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=message)])

        async def _agenerate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
            await job.give_way()
            return self._generate(messages)

    return Script()


def server_model(job: Job) -> Any:
    """The model server, over the client that its OpenAI integration uses."""
    import httpx2
    from langchain_openai import ChatOpenAI

    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    client = httpx2.AsyncClient(limits=limits, timeout=TIMEOUT)
    return ChatOpenAI(
        model=job.model, base_url=job.url, api_key=API_KEY, http_async_client=client, max_retries=0, stream_usage=False
    )
