"""Burr: a state machine of asynchronous actions.

It has no model client and no tools of its own, so those are the bare loop's; what is measured is the engine around
them. The conversation grows by ``state.append`` and ``state.extend``, as its documentation does it.
"""

from __future__ import annotations

import inspect
import json
import uuid
from typing import Any

from contenders.bare import ask_script, ask_server
from work import PROMPT, Job, Listen, Once, Unsupported, make_tool

COLD = """
import httpx
from burr.core import ApplicationBuilder, Condition, State, action, default
client = httpx.AsyncClient(base_url="http://127.0.0.1:9")
@action(reads=["messages"], writes=["messages"])
async def model(state: State) -> State: return state
@action(reads=["messages"], writes=["messages"])
async def tools(state: State) -> State: return state
@action(reads=["messages"], writes=[])
async def done(state: State) -> State: return state
app = (ApplicationBuilder().with_actions(model, tools, done)
    .with_transitions(
        ("model", "tools", Condition.expr("len(messages) > 2")), ("model", "done", default), ("tools", "model"))
    .with_state(messages=[]).with_entrypoint("model").build())
"""


def build(job: Job) -> Once:
    """One run of an application made anew from a shared graph."""
    if job.calls > 1:
        raise Unsupported("no tools of its own")
    from burr.core import ApplicationBuilder

    graph = graph_of(job)
    persister = persister_in(job.journal) if job.journal else None

    async def once() -> str:
        builder = ApplicationBuilder().with_graph(graph).with_entrypoint("model")
        if persister:
            builder = builder.with_identifiers(app_id=uuid.uuid4().hex).with_state_persister(persister)
        app = builder.with_state(messages=[{"role": "user", "content": PROMPT}]).build()
        _, _, state = await app.arun(halt_after=["done"])
        return str(state["messages"][-1]["content"])

    return once


def listen(job: Job) -> Listen:
    """Not here: a stream would be the bare loop's."""
    raise Unsupported("no model client of its own")


async def leave(job: Job) -> Once:
    """A run whose steps are taken one by one, and which its persister brings back."""
    from burr.core import ApplicationBuilder

    graph, persister, name = graph_of(job), persister_in(job.journal), uuid.uuid4().hex
    first = ApplicationBuilder().with_graph(graph).with_entrypoint("model").with_identifiers(app_id=name)
    first = first.with_state_persister(persister).with_state(messages=[{"role": "user", "content": PROMPT}])
    app = first.build()
    for _ in range(2 * job.rounds):
        await app.astep()

    async def resume() -> str:
        kept = persister_in(job.journal)
        again = ApplicationBuilder().with_graph(graph).with_identifiers(app_id=name).with_state_persister(kept)
        again = again.initialize_from(kept, resume_at_next_action=True, default_state={}, default_entrypoint="model")
        _, _, state = await again.build().arun(halt_after=["done"])
        return str(state["messages"][-1]["content"])

    return resume


def persister_in(file: str) -> Any:
    """Burr's own keeper of states in SQLite."""
    from burr.core.persistence import SQLitePersister

    persister = SQLitePersister.from_values(file)
    persister.initialize()
    return persister


def graph_of(job: Job) -> Any:
    """The graph: ask the model, run its tools, until it asks for none."""
    from burr.core import GraphBuilder, State, action, default
    from burr.core.action import Condition

    ask = ask_server(job) if job.url else ask_script(job)
    tool = make_tool(job)

    async def model(state: State) -> State:
        return state.append(messages=await ask(state["messages"]))

    async def tools(state: State) -> State:
        results = []
        for call in state["messages"][-1]["tool_calls"]:
            result = tool(**json.loads(call["function"]["arguments"]))
            if inspect.isawaitable(result):
                result = await result
            results.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})
        return state.extend(messages=results)

    async def done(state: State) -> State:
        return state

    wants_tools = Condition(
        ["messages"], lambda state: bool(state["messages"][-1].get("tool_calls")), name="wants_tools"
    )
    changes = action(reads=["messages"], writes=["messages"])
    return (
        GraphBuilder()
        .with_actions(model=changes(model), tools=changes(tools), done=action(reads=["messages"], writes=[])(done))
        .with_transitions(("model", "tools", wants_tools), ("model", "done", default), ("tools", "model"))
        .build()
    )
