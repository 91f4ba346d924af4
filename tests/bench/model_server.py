"""A model on loopback that plays a script: OpenAI's chat completions over HTTP/1.1, cheap enough to measure by.

The model's name is the script: ``rounds-10-calls-1`` answers ten times with one tool call, then with the text
``done:10``. How far a conversation is, the number of assistant messages in the request says; counting them in the bytes
keeps the cost of a request low and flat. A request that offers a tool named ``final_answer`` (smolagents) gets its
ending as a call of it. ``chunks-20-pause-50`` streams a text in 20 pieces, and waits 50 ms after the first of them.

Usage: ``python model_server.py`` prints the port that it took.
"""

from __future__ import annotations

import asyncio
import json
import re
from functools import lru_cache

from work import Job

MODEL = re.compile(rb'"model":\s*"rounds-(\d+)-calls-(\d+)"')
STREAM = re.compile(rb'"model":\s*"chunks-(\d+)-pause-(\d+)"')
LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
HEAD_END = b"\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


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
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        if not (script := STREAM.search(body)):
            self._transport.write(answer(body))
            return
        chunks, pause = map(int, script.groups())
        first, rest = stream(chunks, pause, ends_with_call=b'"final_answer"' in body)
        self._transport.write(first)
        asyncio.get_running_loop().call_later(pause / 1000, self._transport.write, rest)


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
        wanted = [ending(job)]
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
        "usage": USAGE,
    }
    text = json.dumps(payload).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


def ending(job: Job) -> tuple[str, str, str]:
    """Id, name and arguments of the call that ends a run of smolagents."""
    return "call_final", "final_answer", json.dumps({"answer": job.answer})


@lru_cache(16)
def stream(chunks: int, pause: int, *, ends_with_call: bool) -> tuple[bytes, bytes]:
    """A streamed response: up to the first piece of its text, and from there on."""
    job = Job(chunks=chunks, pause=pause)
    texts = [event(job, {"content": piece}) for piece in job.pieces]
    begin = STREAM_HEAD + event(job, {"role": "assistant", "content": ""}) + texts[0]
    end = []
    if ends_with_call:
        call_id, name, arguments = ending(job)
        call = {"index": 0, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        end.append(event(job, {"tool_calls": [call]}))
    end += [event(job, {}, finish="tool_calls" if ends_with_call else "stop"), event(job, None, usage=USAGE)]
    return begin, b"".join((*texts[1:], *end, framed(b"data: [DONE]\n\n"), framed(b"")))


def event(job: Job, delta: object, finish: str | None = None, usage: object = None) -> bytes:
    """One event of a stream; without a delta, the one that tells the usage."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    payload = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": job.model,
        "choices": choices,
        **({"usage": usage} if usage else {}),
    }
    return framed(b"data: %s\n\n" % json.dumps(payload).encode())


def framed(data: bytes) -> bytes:
    """A chunk of a body of unknown length (RFC 9112, section 7.1); an empty one ends the body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


async def serve() -> None:
    """Serve until the process is told to end."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
