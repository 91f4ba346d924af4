"""`Server`: the way to a model's server, opened with the first request."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING

from turnstile.core.errors import ConfigurationError
from turnstile.core.events import ModelFailed
from turnstile.core.expecting import SETTINGS, expect
from turnstile.core.limits import Price
from turnstile.shell.models.address import Address
from turnstile.shell.models.answer import Answer
from turnstile.shell.models.options import ServerOptions, is_positive
from turnstile.shell.models.redaction import Redactor

if TYPE_CHECKING:
    from turnstile.shell.models.events import Listener
    from turnstile.shell.models.transport import Transport

LONG_ENOUGH = 600.0  # seconds; what OpenAI's own clients wait for a reply, since reasoning takes minutes


def check_arguments(
    client: str,
    *,
    model: object,
    base_url: object,
    api_key: object,
    name: object,
    timeout: object,
    stream: object,
    settings: object,
    price: object,
) -> None:
    """Refuse an argument of a model client, named here as there, that is not of its kind; no key is shown.

    Raises:
        ConfigurationError: Names the argument, and what it is.
    """
    if model is None or model == "":
        raise ConfigurationError(f"{client} needs the name of a model, as its server names it; got {model!r}")
    expect(f"the model of {client}", model, str, "text")
    expect(f"the name of {client}", name, (str, NoneType), "text")
    expect(f"the base_url of {client}", base_url, str, "text", may_hold_secret=True)
    expect(f"the api_key of {client}", api_key, str, "text, empty for none", may_hold_secret=True)
    if not is_positive(timeout):
        raise ConfigurationError(f"the timeout of {client} is a number of seconds above 0; got {timeout!r}")
    expect(f"the stream of {client}", stream, bool, "True or False")
    expect(f"the settings of {client}", settings, (Mapping, NoneType), SETTINGS, may_hold_secret=True)
    expect(f"the price of {client}", price, (Price, NoneType), "Price(input=…, output=…), or None")


class Server:
    """The way to a model's server, whatever it speaks.

    Args:
        address: Where requests go.
        headers: What each of them has.
        clean: Takes keys out of what may be shown.
        timeout: Seconds from sending a request to the end of its answer; of a stream, to its next event.
        options: The options of the way, all of them given.
    """

    def __init__(
        self,
        address: Address,
        headers: Mapping[str, str],
        clean: Redactor,
        *,
        timeout: float,
        options: ServerOptions,
    ) -> None:
        self._address = address
        self._headers = headers
        self._clean = clean
        self._timeout = timeout
        self._options = options
        self._transport: Transport | None = None

    async def ask(self, body: bytes, listener: Listener | None) -> Answer | ModelFailed:
        """Send a request, and give its answer; as a stream when somebody listens."""
        transport = self._transport or self._open()
        return await (transport.post(body) if listener is None else transport.stream(body, listener))

    async def aclose(self) -> None:
        """Close the connections of the running event loop; they open again with the next request."""
        if self._transport is not None:
            await self._transport.aclose()

    def _open(self) -> Transport:
        from turnstile.shell.models.transport import Transport  # brings httpx, which takes as long as all the rest

        self._transport = Transport(
            self._address.url,
            self._headers,
            self._clean,
            timeout=self._timeout,
            connect_timeout=self._options["connect_timeout"],
            idle_timeout=self._options["idle_timeout"],
            connections=self._options["connections"],
            trust_env=self._options["trust_env"],
        )
        return self._transport
