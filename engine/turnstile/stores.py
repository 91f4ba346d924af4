"""Stores: where the journals of runs are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnstile.shell.stores.memory import MemoryStore

if TYPE_CHECKING:
    from turnstile.shell.stores.sqlite import SQLiteStore

__all__ = ["MemoryStore", "SQLiteStore"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Load SQLite only for those who use it."""
    if name == "SQLiteStore":
        from turnstile.shell.stores.sqlite import SQLiteStore

        return SQLiteStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
