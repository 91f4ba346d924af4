"""Tools: functions that a model may call, their schemas, and what their docstrings say."""

from __future__ import annotations

from turnstile.tools.definition import MAX_RESULT_CHARS, NAME_PATTERN, Tool, ToolContext, ToolOptions, tool

__all__ = ["MAX_RESULT_CHARS", "NAME_PATTERN", "Tool", "ToolContext", "ToolOptions", "tool"]
