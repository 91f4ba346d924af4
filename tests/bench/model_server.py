"""A model on loopback that plays a script: OpenAI's chat completions over HTTP/1.1, cheap enough to measure by.

The model's name is the script: ``rounds-10-calls-1`` answers ten times with one tool call, then with the text
``done:10``. How far a conversation is, the number of assistant messages in the request says; counting them in the bytes
keeps the cost of a request low and flat. A request that offers a tool named ``final_answer`` (smolagents) gets its
ending as a call of it.

Usage: ``python model_server.py`` prints the port that it took.
"""

from __future__ import annotations

import asyncio
import json
import re
from functools import lru_cache

from work import Job

MODEL = re.compile(rb'"model":\s*"rounds-(\d+)-calls-(\d+)"')
LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
HEAD_END = b"\r\n\r\n"


class Connection(asyncio.Protocol):
    """One client's connection, kept alive."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what answers are written to."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is now complete."""
        self._received += data
        while (head := self._received.find(HEAD_END)) >= 0:
            length = LENGTH.search(self._received, 0, head)
            end = head + len(HEAD_END) + (int(length.group(1)) if length else 0)
            if len(self._received) < end:
                return
            body = bytes(self._received[head + len(HEAD_END) : end])
            del self._received[:end]
            self._transport.write(answer(body))


def answer(body: bytes) -> bytes:
    """The whole response to a request."""
    script = MODEL.search(body)
    if not script:
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    number = max(body.count(b'"role":"assistant"'), body.count(b'"role": "assistant"'))
    return response(int(script.group(1)), int(script.group(2)), number, ends_with_call=b'"final_answer"' in body)


@lru_cache(4096)
def response(rounds: int, calls: int, number: int, *, ends_with_call: bool) -> bytes:
    """The response that holds the reply of that number, from 0."""
    job = Job(rounds=rounds, calls=calls)
    wanted = [(call_id, "add", arguments) for call_id, arguments in job.calls_of(number)]
    if not wanted and ends_with_call:
        wanted = [("call_final", "final_answer", json.dumps({"answer": job.answer}))]
    tool_calls = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for call_id, name, arguments in wanted
    ]
    message: dict[str, object] = {"role": "assistant", "content": None if wanted else job.answer}
    if tool_calls:
        message["tool_calls"] = tool_calls
    payload = {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": job.model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if wanted else "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    text = json.dumps(payload).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


async def serve() -> None:
    """Serve until the process is told to end."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
