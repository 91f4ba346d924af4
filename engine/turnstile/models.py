"""Models behind servers: clients for two protocols, the table of providers, and what makes a client of a name."""

from __future__ import annotations

from turnstile.shell.models.anthropic_messages import AnthropicMessages
from turnstile.shell.models.openai_chat import OpenAIChat
from turnstile.shell.models.options import AnthropicOptions, ChatOptions, ServerOptions
from turnstile.shell.models.providers import PROVIDERS, Available, Provider, first_available, resolve

__all__ = [
    "PROVIDERS",
    "AnthropicMessages",
    "AnthropicOptions",
    "Available",
    "ChatOptions",
    "OpenAIChat",
    "Provider",
    "ServerOptions",
    "first_available",
    "resolve",
]
