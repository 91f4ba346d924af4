"""The log: what a run does as JSON, one object a line."""

from __future__ import annotations

from turnstile.shell.log import JsonLog

__all__ = ["JsonLog"]
