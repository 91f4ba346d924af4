"""`Ledger`: what the tools of a campaign really did, written down by themselves and out of reach of the engine.

An append-only file, one JSON line an entry, each on the disk before the tool goes on. A line that a kill cut short
stands for nothing: its tool had not come back from writing it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from turnstile import ToolContext


@dataclass(frozen=True, slots=True)
class Entry:
    """What one tool said of itself.

    Attributes:
        run: The run that called it.
        call: The call.
        tool: The tool's name.
        key: The idempotency key that it was given.
        phase: ``"began"`` before its effect, ``"ended"`` after; the effect lies between.
    """

    run: str
    call: str
    tool: str
    key: str
    phase: Literal["began", "ended"]


class Ledger:
    """Writes entries to a file, which any number of processes may do at once.

    Args:
        path: The file; made at the first entry.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def effect(self, tool: str, context: ToolContext) -> Iterator[None]:
        """Note that an effect began, and that it ended, unless it fails or the process is gone before."""
        self._note(Entry(context.run_id, context.call_id, tool, context.idempotency_key, "began"))
        yield
        self._note(Entry(context.run_id, context.call_id, tool, context.idempotency_key, "ended"))

    def _note(self, entry: Entry) -> None:
        line = json.dumps(asdict(entry)).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)  # one call, so that lines of several processes stay whole
            os.fsync(file)
        finally:
            os.close(file)

    def entries(self) -> tuple[Entry, ...]:
        """All entries so far, oldest first."""
        if not self.path.exists():
            return ()
        whole = self.path.read_bytes().split(b"\n")[:-1]
        return tuple(Entry(**json.loads(line)) for line in whole)
