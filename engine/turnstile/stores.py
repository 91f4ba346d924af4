"""Stores: where the journals of runs are kept."""

from __future__ import annotations

from turnstile.shell.stores.memory import MemoryStore

__all__ = ["MemoryStore"]
