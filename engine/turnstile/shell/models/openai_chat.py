"""`OpenAIChat`: a model behind any server that speaks OpenAI's chat completions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Unpack

from turnstile.core.events import ModelFailed
from turnstile.core.limits import Price
from turnstile.core.messages import Reply
from turnstile.core.strict_json import JsonValue
from turnstile.core.values import evolve
from turnstile.ports import Delta, ModelRequest
from turnstile.shell.models import prompted
from turnstile.shell.models.address import address_of, headers_of
from turnstile.shell.models.answer import Answer
from turnstile.shell.models.chat_reply import Reading, read_body, read_reply
from turnstile.shell.models.chat_request import ChatEncoder
from turnstile.shell.models.chat_stream import ChatStream
from turnstile.shell.models.failures import broken_off, unreadable
from turnstile.shell.models.options import ChatOptions, complete
from turnstile.shell.models.pricing import Pricing
from turnstile.shell.models.redaction import Redactor
from turnstile.shell.models.server import LONG_ENOUGH, Server, check_arguments
from turnstile.shell.models.text_calls import with_text_calls

OPENAI = "https://api.openai.com/v1"  # OpenAI, API reference, "Introduction"


class OpenAIChat:
    """A model behind a chat completions server: OpenAI's, or one of the many that speak its protocol.

    It asks once for each request and never retries: that is the machine's matter. One client serves any number of
    runs at once, in any number of event loops; its connections close with their loop, or with `aclose`.

    Args:
        model: The model, as its server names it.
        base_url: The server's address up to, not including, ``/chat/completions``.
        api_key: Sent as a bearer token; empty sends none.
        timeout: Seconds from sending a request to the end of its answer; in a stream, from each event to the next.
        stream: Whether replies are asked for in pieces, so that they are seen as they are written.
        settings: What every request says: ``max_tokens``, ``temperature`` and whatever else the server knows. An
            agent's settings go before these.
        price: What the model costs; without one, what the extra ``prices`` knows of it.
        name: The model in logs; without one, ``model``.
        options: In what the server differs from OpenAI's protocol; see `turnstile.models.ChatOptions`.

    Raises:
        ConfigurationError: An argument cannot be used as it is.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI,
        api_key: str = "",
        timeout: float = LONG_ENOUGH,
        stream: bool = True,
        settings: Mapping[str, JsonValue] | None = None,
        price: Price | None = None,
        name: str = "",
        **options: Unpack[ChatOptions],
    ) -> None:
        check_arguments(
            type(self).__name__, model=model, base_url=base_url, api_key=api_key, name=name, timeout=timeout,
            stream=stream, settings=settings, price=price,
        )  # fmt: skip
        self.name = name or model
        self._pricing = Pricing(price, model, base_url)
        self._model = model
        self._address = address_of(base_url, "/chat/completions", OPENAI)
        self._options = complete(options)
        headers = headers_of(api_key, "authorization", "Bearer {}", self._options["headers"])
        self._clean = Redactor([api_key.strip(), *self._options["headers"].values(), *self._address.secrets])
        wire = f"chat {self._address.shown}"
        self._reading = Reading(wire, self._options["echo"], self._options["think_tags"] == "strip")
        self._encoder = ChatEncoder(model, self._options, settings or {}, wire)
        self._stream = stream
        self._server = Server(self._address, headers, self._clean, timeout=timeout, options=self._options)

    def __repr__(self) -> str:
        return f"OpenAIChat({self._model!r}, base_url={self._address.shown!r})"

    @property
    def price(self) -> Price | None:
        """What it costs; ``None`` when that is unknown."""
        return self._pricing.price

    async def reply(self, request: ModelRequest, progress: Callable[[Delta], None]) -> Reply | ModelFailed:
        """Ask once.

        Raises:
            ConfigurationError: The request's settings cannot be sent, or the environment names a proxy that cannot be
                used.
        """
        is_prompted = bool(request.tools) and self._options["tool_calling"] == "prompted"
        stream = ChatStream(progress, echo=self._reading.echo, think_tags=self._reading.think_tags, quiet=is_prompted)
        body = self._encoder.body(request, stream=self._stream)
        self._pricing.prepare()
        answer = await self._server.ask(body, stream if self._stream else None)
        if isinstance(answer, ModelFailed):
            return answer
        now = time.time() if request.now is None else request.now
        limit = self._encoder.limit(request)
        if answer.streamed:
            reply = self._put_together(stream, answer, now, limit)
        else:
            reply = read_reply(answer, self._clean, now, limit, self._reading)
        if isinstance(reply, Reply):
            reply = self._with_calls(reply, request)
        if not isinstance(reply, Reply):
            return reply
        if reply.reasoning and not answer.streamed:
            progress(Delta("reasoning", reply.reasoning))
        if reply.text and (is_prompted or not answer.streamed):
            progress(Delta("text", reply.text))
        cost = self._pricing.cost(reply.usage)
        return reply if cost is None else evolve(reply, cost=cost)

    def _with_calls(self, reply: Reply, request: ModelRequest) -> Reply | ModelFailed:
        """The reply with the calls that stand in its text, where tools were offered and none was called."""
        names = [spec.name for spec in request.tools] if request.tools_on else []
        if request.tools and self._options["tool_calling"] == "prompted":
            return prompted.read(reply, names=names, typed=request.output_schema is not None)
        if not names or reply.calls:
            return reply
        return with_text_calls(reply, names, run=self._options["text_tool_calls"] == "run")

    def _put_together(self, stream: ChatStream, answer: Answer, now: float, limit: int | None) -> Reply | ModelFailed:
        stream.close()
        answer = replace(answer, body=stream.excerpt.encode("utf-8", "replace"))
        if stream.problem:
            return unreadable(stream.problem, answer, self._clean)
        if not stream.whole:
            return broken_off(answer, self._clean)
        return read_body(stream.body(), answer, self._clean, now, limit=limit, how=self._reading)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the client can be used again."""
        await self._server.aclose()
