"""`Ledger`: what really happened in a campaign, written down out of reach of the engine, in the order it happened.

Tools write what they do, a model what it is asked, a store what it acknowledged. It is an append-only file, one JSON
line an entry, and each entry is on the disk before whoever wrote it goes on. A line that a kill cut short stands for
nothing: its writer had not come back from writing it.
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
from turnstile.core.strict_json import JsonValue, digest

Phase = Literal["began", "ended", "asked", "kept", "cancelled"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened.

    Attributes:
        phase: A tool's effect ``began`` or ``ended``; a model was ``asked``; a journal is known to be ``kept`` up to a
            record; a run was ``cancelled``.
        run: The run.
        call: The tool's call.
        tool: The tool's name.
        key: The idempotency key that the tool was given.
        seq: Number of the newest record that is known to be kept.
        digest: SHA-256 of the record; or what a journal should hold as the digest of the request, or of the tool with
            the arguments that it was given.
        epoch: That of the lease under which they were.
    """

    phase: Phase
    run: str
    call: str = ""
    tool: str = ""
    key: str = ""
    seq: int = 0
    digest: str = ""
    epoch: int = 0


class Ledger:
    """Writes entries to a file, which any number of processes may do at once.

    Args:
        path: The file; made at the first entry.
        durable: Whether each entry waits for the disk. A kill loses nothing without, and a power cut does.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self.path = path
        self._durable = durable

    @contextmanager
    def effect(self, tool: str, context: ToolContext, **arguments: JsonValue) -> Iterator[None]:
        """Note that an effect began, and that it ended, unless it fails or the process is gone before."""
        given = digest(tool, arguments)
        self.note(Entry("began", context.run_id, context.call_id, tool, context.idempotency_key, digest=given))
        yield
        self.note(Entry("ended", context.run_id, context.call_id, tool, context.idempotency_key, digest=given))

    def note(self, entry: Entry) -> None:
        """Write an entry down."""
        line = json.dumps(asdict(entry)).encode() + b"\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)  # one call, so that lines of several processes stay whole
            if self._durable:
                os.fsync(file)
        finally:
            os.close(file)

    def entries(self) -> tuple[Entry, ...]:
        """All entries so far, oldest first."""
        if not self.path.exists():
            return ()
        whole = self.path.read_bytes().split(b"\n")[:-1]
        return tuple(Entry(**json.loads(line)) for line in whole)
