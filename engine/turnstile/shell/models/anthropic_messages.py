"""`AnthropicMessages`: a model behind any server that speaks Anthropic's Messages API."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Unpack

from turnstile.core.events import ModelFailed
from turnstile.core.limits import Price
from turnstile.core.messages import Reply
from turnstile.core.strict_json import JsonValue
from turnstile.ports import Delta, ModelRequest
from turnstile.shell.models.address import address_of, headers_of
from turnstile.shell.models.answer import Answer
from turnstile.shell.models.anthropic_blocks import Unsendable
from turnstile.shell.models.anthropic_reply import MessageReader
from turnstile.shell.models.anthropic_request import AnthropicEncoder
from turnstile.shell.models.anthropic_stream import MessageStream
from turnstile.shell.models.failures import broken_off, unreadable
from turnstile.shell.models.options import AnthropicOptions, complete_anthropic
from turnstile.shell.models.pricing import Pricing
from turnstile.shell.models.redaction import Redactor
from turnstile.shell.models.server import LONG_ENOUGH, Server, check_arguments

ANTHROPIC = "https://api.anthropic.com"  # Messages API, "Create a Message"
_AUTH = {"x-api-key": ("x-api-key", "{}"), "bearer": ("authorization", "Bearer {}")}


class AnthropicMessages:
    """A model behind a Messages API server: Anthropic's, or one that speaks its protocol.

    It asks once for each request and never retries: that is the machine's matter. One client serves any number of
    runs at once, in any number of event loops; its connections close with their loop, or with `aclose`.

    Args:
        model: The model, as its server names it.
        base_url: The server's address up to ``/v1/messages``, with or without the ``/v1``.
        api_key: Sent as the option `auth` says; empty sends none.
        timeout: Seconds from sending a request to the end of its answer; of a stream, to its next event.
        stream: Whether replies are told piece by piece as they are written.
        settings: What every request says: ``max_tokens``, ``thinking`` and whatever else the server knows. An agent's
            settings go before these.
        price: What the model costs; without one, what the extra ``prices`` knows of it.
        name: The model in logs; without one, ``model``.
        options: In what the server differs; see `turnstile.models.AnthropicOptions`.

    Raises:
        ConfigurationError: An argument cannot be used as it is.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = ANTHROPIC,
        api_key: str = "",
        timeout: float = LONG_ENOUGH,
        stream: bool = True,
        settings: Mapping[str, JsonValue] | None = None,
        price: Price | None = None,
        name: str = "",
        **options: Unpack[AnthropicOptions],
    ) -> None:
        check_arguments(
            type(self).__name__, model=model, base_url=base_url, api_key=api_key, name=name, timeout=timeout,
            stream=stream, settings=settings, price=price,
        )  # fmt: skip
        self.name = name or model
        self._model = model
        self._address = address_of(base_url, "/v1/messages", ANTHROPIC, ending="/v1")
        self._pricing = Pricing(price, model, base_url)
        self._options = complete_anthropic(options)
        self._streams = stream
        version = {"anthropic-version": self._options["api_version"]}
        header, form = _AUTH[self._options["auth"]]
        headers = headers_of(api_key, header, form, {**version, **self._options["headers"]})
        self._clean = Redactor([api_key.strip(), *self._options["headers"].values(), *self._address.secrets])
        wire = f"anthropic {self._address.host}"
        self._encoder = AnthropicEncoder(model, wire, self._options, settings or {})
        self._reader = MessageReader(self._clean, wire, self._pricing)
        self._server = Server(self._address, headers, self._clean, timeout=timeout, options=self._options)

    def __repr__(self) -> str:
        return f"AnthropicMessages({self._model!r}, base_url={self._address.shown!r})"

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
        try:
            body = self._encoder.body(request, stream=self._streams)
        except Unsendable as error:
            return ModelFailed("bad_request", f"not sent: {error}")
        listener = MessageStream(progress)
        self._pricing.prepare()
        answer = await self._server.ask(body, listener if self._streams else None)
        if isinstance(answer, ModelFailed):
            return answer
        now = time.time() if request.now is None else request.now
        if answer.streamed:
            return self._streamed(listener, replace(answer, body=listener.excerpt.encode()), now)
        reply = self._reader.answer(answer, now)
        if isinstance(reply, Reply):
            if reply.reasoning:
                progress(Delta("reasoning", reply.reasoning))
            if reply.text:
                progress(Delta("text", reply.text))
        return reply

    def _streamed(self, listener: MessageStream, answer: Answer, now: float) -> Reply | ModelFailed:
        if listener.problem:
            return unreadable(listener.problem, answer, self._clean)
        if not listener.whole:
            return broken_off(answer, self._clean)
        return self._reader.message(listener.body(), answer, now)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the client can be used again."""
        await self._server.aclose()
