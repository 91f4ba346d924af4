"""Models behind servers: a client for chat completions, the table of providers, and what makes a client of a name."""

from __future__ import annotations

from turnstile.shell.models.openai_chat import OpenAIChat
from turnstile.shell.models.options import ChatOptions
from turnstile.shell.models.providers import PROVIDERS, Available, Provider, first_available, resolve

__all__ = ["PROVIDERS", "Available", "ChatOptions", "OpenAIChat", "Provider", "first_available", "resolve"]
