"""`Answer`: what a server sent back to one request, whole and unread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-ds-trace-id", "apim-request-id")
"""Where providers put the id that their support asks for: OpenAI and most others, Anthropic, DeepSeek, Azure."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP answer.

    Attributes:
        status: The HTTP status.
        headers: Its headers, names in lower case.
        body: Its body, decompressed; empty when it was a stream.
        streamed: Whether it was a stream, whose events somebody took.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    streamed: bool = False

    @property
    def request_id(self) -> str:
        """The provider's id of the request; empty when it gave none."""
        return next((self.headers[name] for name in REQUEST_ID_HEADERS if self.headers.get(name)), "")

    @property
    def text(self) -> str:
        """The body as text, whatever its bytes are."""
        return self.body.decode("utf-8", "replace")
