"""The floor: a loop written by hand over plain dicts and httpx.

Its journal is a table of messages, with a commit a turn. The calls of a reply run one after another when it has one
alone, else side by side: asynchronous ones under ``asyncio.gather``, blocking ones in asyncio's own thread pool.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from work import API_KEY, CONNECTIONS, PROMPT, TIMEOUT, TOOL_SCHEMA, Job, Listen, Once, Unsupported, make_tool

COLD = """
import asyncio, json, httpx
client = httpx.AsyncClient(base_url="http://127.0.0.1:9")
async def add(a: int, b: int) -> int: return a + b
tools = {"add": add}
"""

Message = dict[str, Any]
Ask = Callable[[list[Message]], Awaitable[Message]]


def build(job: Job) -> Once:
    """One run: a list of messages, and a loop around it."""
    ask = ask_server(job) if job.url else ask_script(job)
    keep = keep_in(job.journal) if job.journal else None
    add = make_tool(job)
    tools = {"add": add if inspect.iscoroutinefunction(add) else partial(asyncio.to_thread, add)}

    async def answer(call: Message) -> Message:
        function = call["function"]
        result = await tools[function["name"]](**json.loads(function["arguments"]))
        return {"role": "tool", "tool_call_id": call["id"], "content": str(result)}

    async def once() -> str:
        messages: list[Message] = [{"role": "user", "content": PROMPT}]
        kept = 0
        while True:
            message = await ask(messages)
            messages.append(message)
            calls = message.get("tool_calls", ())
            if len(calls) == 1:
                messages.append(await answer(calls[0]))
            elif calls:
                messages += await asyncio.gather(*map(answer, calls))
            if keep:
                keep(messages[kept:])
                kept = len(messages)
            if not calls:
                return str(message["content"])

    return once


def listen(job: Job) -> Listen:
    """The lines of a response, each read as JSON."""
    client = client_of()
    url = job.url + "/chat/completions"
    prompt = [{"role": "user", "content": PROMPT}]
    body = {"model": job.model, "messages": prompt, "tools": TOOL_SCHEMA, "stream": True}

    async def once(heard: Callable[[str], object]) -> None:
        async with client.stream("POST", url, json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    choices = json.loads(line.removeprefix("data: "))["choices"]
                    if choices and (text := choices[0]["delta"].get("content")):
                        heard(text)

    return once


async def leave(job: Job) -> Once:
    """Not here: its messages are kept, and nothing reads them again."""
    raise Unsupported("no resume")


def keep_in(file: str) -> Callable[[list[Message]], None]:
    """Keeps messages in a file, each a row, with one commit that waits for the disk."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS messages (number INTEGER PRIMARY KEY, body TEXT)")

    def keep(messages: list[Message]) -> None:
        with connection:
            rows = [(json.dumps(message),) for message in messages]
            connection.executemany("INSERT INTO messages (body) VALUES (?)", rows)

    return keep


def ask_script(job: Job) -> Ask:
    """The model scripted in process."""

    async def ask(messages: list[Message]) -> Message:
        await job.give_way()
        return message_of(job, (len(messages) - 1) // (1 + job.calls))

    return ask


def message_of(job: Job, number: int) -> Message:
    """The reply of that number, as OpenAI's API would give it."""
    calls = [
        {"id": call_id, "type": "function", "function": {"name": "add", "arguments": arguments}}
        for call_id, arguments in job.calls_of(number)
    ]
    if not calls:
        return {"role": "assistant", "content": job.answer}
    return {"role": "assistant", "content": None, "tool_calls": calls}


def ask_server(job: Job) -> Ask:
    """The model server over httpx."""
    client = client_of()
    url = job.url + "/chat/completions"

    async def ask(messages: list[Message]) -> Message:
        response = await client.post(url, json={"model": job.model, "messages": messages, "tools": TOOL_SCHEMA})
        response.raise_for_status()
        message: Message = response.json()["choices"][0]["message"]
        return message

    return ask


def client_of() -> Any:
    """An HTTP client."""
    import httpx

    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    return httpx.AsyncClient(limits=limits, timeout=TIMEOUT, headers={"Authorization": f"Bearer {API_KEY}"})
