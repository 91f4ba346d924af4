"""What a shell completes: the installed agents, as their packages' entry points say, and stored runs."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

GROUP = "turnstile.agents"
SHOWN = 20  # runs that a shell offers


def installed() -> dict[str, EntryPoint]:
    """The installed agents' entry points, by name, in order."""
    return {point.name: point for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def complete(incomplete: str) -> list[str]:
    """The installed agents whose names begin so, for a shell's completion."""
    return [name for name in installed() if name.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """The runs of the user's own store whose ids begin so, for a shell's completion; the newest when nothing is typed.

    A shell that completes shows no errors, so a store that cannot be read has no runs.
    """
    import asyncio

    from turnstile.cli.storing import path_of
    from turnstile.core.errors import TurnstileError
    from turnstile.stores import SQLiteStore

    async def found() -> list[str]:
        async with SQLiteStore(path_of(None)) as store:
            if incomplete:
                return [*await store.find(incomplete, SHOWN)]
            return [entry.run_id for entry in await store.runs(most=SHOWN)]

    if not path_of(None).is_file():
        return []
    try:
        return asyncio.run(found())
    except TurnstileError:
        return []
