"""The installed agents, by name, as their packages' entry points say; nothing of theirs is loaded."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

GROUP = "turnstile.agents"


def installed() -> dict[str, EntryPoint]:
    """The installed agents' entry points, by name, in order."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def complete(incomplete: str) -> list[str]:
    """The installed agents whose names begin so, for a shell's completion."""
    return [name for name in installed() if name.startswith(incomplete)]
