"""Every error that Turnstile raises, as one tree.

::

    TurnstileError
    ├── ConfigurationError      an agent, tool, model or option is set up wrongly
    │   ├── ToolDefinitionError     a tool cannot be offered to a model as it is
    │   ├── ModelNotFound           no model is named, or its provider or key is unknown
    │   └── MachineError            a table of rows is inconsistent
    ├── UsageError              the library is called in a way that cannot work
    │   ├── RunExists               a run with this id is already stored
    │   ├── NoSuchRun               the store has no run with this id
    │   ├── RunFinished             a finished run was asked to move
    │   ├── RunBusy                 two tasks step one run at once
    │   ├── SessionBusy             two runs of one session at once
    │   ├── RunIsLeased             somebody else drives the run
    │   ├── WaitingForHuman         a run that waits for a decision was asked to move
    │   ├── AmbiguousRun            several runs have an id that begins so
    │   ├── Changed                 a run was begun under another machine, model or tool
    │   └── InsideEventLoop         a blocking call was made inside a running event loop
    ├── StoreError              what keeps the journals failed, or cannot be used as it is
    │   ├── StoreUnreachable        it, or the folder it is to be in, cannot be opened or made
    │   ├── StoreForeign            it is something else: no database, or another program's
    │   ├── StoreTooNew             a newer Turnstile made it
    │   ├── StoreLocked             another process held it for too long
    │   ├── StoreReadOnly           it can be read, but not written
    │   ├── StoreFull               the disk is full
    │   └── StoreDamaged            what is there is not what was written
    │       └── RecordDamaged           the same, when one record of a run is to blame
    ├── NoRow                   no row of the table takes an event: a bug, with all it takes to report it
    ├── RunFailed               the output of a failed run was asked for
    ├── InvalidJSON             a text is not the strict JSON that it should be (also a ValueError)
    ├── CodecError              an event cannot be written as a record, or a record cannot be read as an event
    └── StopRun                 raised by a tool to end the run

Errors carry data, and never log or print. What can be expected of the outside (a timeout, a 429, bad arguments,
a tool's exception) is no error here: it becomes an event and moves the machine.
"""

from __future__ import annotations

from collections.abc import Callable

SHOWN_DIGITS = 16  # of a digest: 64 bits


class TurnstileError(Exception):
    """Catches whatever Turnstile raises. Errors can be pickled and copied, so that they cross processes whole."""

    def __reduce__(self) -> tuple[Callable[..., TurnstileError], tuple[object, ...], dict[str, object]]:
        return _again, (type(self), *self.args), self.__dict__


def _again(kind: type[TurnstileError], *args: object) -> TurnstileError:
    """An error as it was pickled; its constructor, which made its text, would make that of the text once more."""
    return kind.__new__(kind, *args)


class ConfigurationError(TurnstileError):
    """An agent, tool, model or option is set up wrongly; the text says what to change."""


class ToolDefinitionError(ConfigurationError):
    """A tool cannot be offered to a model as it is defined."""

    def __init__(self, tool: str, problem: str) -> None:
        super().__init__(f"tool {tool!r}: {problem}")
        self.tool = tool
        self.problem = problem


class ModelNotFound(ConfigurationError):
    """No model is named, or its provider or its key is unknown."""


class MachineError(ConfigurationError):
    """A table of rows is inconsistent: an unknown state, a name used twice, a row that can never be reached."""


class UsageError(TurnstileError):
    """The library is called in a way that cannot work; the text says what to do instead."""


class RunExists(UsageError):
    """A run with this id is already stored; nothing was changed."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} exists already; choose another run_id, or leave it out to get a new one")
        self.run_id = run_id


class NoSuchRun(UsageError):
    """The store has no run with this id."""

    def __init__(self, place: str, run_id: str) -> None:
        super().__init__(f"store {place!r} has no run {run_id!r}; check its id")
        self.place = place
        self.run_id = run_id


class RunFinished(UsageError):
    """A finished run was asked to move."""

    def __init__(self, run_id: str, state: str) -> None:
        super().__init__(f"run {run_id!r} is {state}; it takes no further step (look at run.finished before stepping)")
        self.run_id = run_id
        self.state = state


class RunBusy(UsageError):
    """Two tasks step one run at once."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} is being stepped by another task; one task drives a run at a time")
        self.run_id = run_id


class SessionBusy(UsageError):
    """Two runs of one session at once: the second would not know what the first one says."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} has a run under way; wait for its end, or cancel it")
        self.session = session


class RunIsLeased(UsageError):
    """Somebody else drives the run, so nobody else may write to its journal.

    Attributes:
        run_id: The run.
        holder: Who it is, such as ``"process 4711 on host 'web-1'"``.
    """

    def __init__(self, run_id: str, holder: str) -> None:
        super().__init__(
            f"run {run_id!r} is driven by {holder}; wait for its end, or send it word: "
            f"turnstile cancel {run_id}, approve or deny"
        )
        self.run_id = run_id
        self.holder = holder


class WaitingForHuman(UsageError):
    """A run that waits for a human's decision was asked to move.

    Attributes:
        run_id: The run.
        calls: Ids of the calls to decide about.
    """

    def __init__(self, run_id: str, calls: tuple[str, ...]) -> None:
        super().__init__(
            f"run {run_id!r} waits for a decision about {', '.join(map(repr, calls))}; decide with "
            f"run.settle(call_id, …), or turnstile approve {run_id} CALL, or deny"
        )
        self.run_id = run_id
        self.calls = calls


class AmbiguousRun(UsageError):
    """Several runs have an id that begins so.

    Attributes:
        prefix: What was given.
        run_ids: Some of the runs that it may mean.
    """

    def __init__(self, prefix: str, run_ids: tuple[str, ...]) -> None:
        super().__init__(f"{prefix!r} may be any of the runs {', '.join(run_ids)}; give more of its id")
        self.prefix = prefix
        self.run_ids = run_ids


class Changed(UsageError):
    """A run was begun under another machine, model or tool than it would go on with.

    Attributes:
        run_id: The run.
        changes: Each name, with its digest when the run began and its digest now; ``None`` where it isn't there.
    """

    def __init__(self, run_id: str, changes: tuple[tuple[str, str | None, str | None], ...]) -> None:
        shown = "; ".join(f"{name} was {_short(was)}, is {_short(now)}" for name, was, now in changes)
        super().__init__(
            f"run {run_id!r} was begun under other things: {shown}; resume it where they are as they were, or accept "
            "the changes (accept_changes=True, --accept-changes), which the journal then says"
        )
        self.run_id = run_id
        self.changes = changes


def _short(digest: str | None) -> str:
    """A digest for people, who need only tell it from another."""
    if digest is None:
        return "not there"
    return digest if len(digest) <= SHOWN_DIGITS or not digest.isalnum() else digest[:SHOWN_DIGITS]


class InsideEventLoop(UsageError):
    """A blocking call was made inside a running event loop, which it would stop."""

    def __init__(self, called: str, instead: str) -> None:
        super().__init__(f"{called} cannot be used inside a running event loop; use `{instead}` there")
        self.called = called
        self.instead = instead


class StoreError(TurnstileError):
    """What keeps the journals failed, or cannot be used as it is.

    Attributes:
        place: Where the store is, such as the path of its file.
        problem: What is wrong, and what to do.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"store {place!r}: {problem}")
        self.place = place
        self.problem = problem


class StoreUnreachable(StoreError):
    """The store, or the folder it is to be in, cannot be opened or made."""


class StoreForeign(StoreError):
    """What is there is something else: no database, or another program's."""


class StoreTooNew(StoreError):
    """A newer version of Turnstile made it."""


class StoreLocked(StoreError):
    """Another process held it for too long."""


class StoreReadOnly(StoreError):
    """It can be read, but not written."""


class StoreFull(StoreError):
    """The disk is full."""


class StoreDamaged(StoreError):
    """What is there is not what was written."""


class RecordDamaged(StoreDamaged):
    """A record of a run is not what was written; those before it are sound.

    Attributes:
        run_id: The run.
        seq: Number of the first bad record, from 1.
    """

    def __init__(self, place: str, run_id: str, seq: int, problem: str) -> None:
        super().__init__(place, f"record {seq} of run {run_id!r} is damaged: {problem}; restore the store from a copy")
        self.run_id = run_id
        self.seq = seq


class NoRow(TurnstileError):
    """No row of the table takes an event in this state: a bug in Turnstile or in an extension of its table.

    Attributes:
        state: Name of the state the run was in.
        event: Name of the event that arrived.
        refused: Each row that was tried, with its first guard that said no, as ``(row, guard)``.
    """

    def __init__(self, state: str, event: str, refused: tuple[tuple[str, str], ...]) -> None:
        tried = (
            "; ".join(f"{row} (not {guard})" for row, guard in refused) or "none: the table has no row for this pair"
        )
        super().__init__(f"no row takes {event} in state {state!r}; rows tried: {tried}")
        self.state = state
        self.event = event
        self.refused = refused


class RunFailed(TurnstileError):
    """The output of a run that failed was asked for.

    Attributes:
        run_id: The run.
        reason: Its stop reason.
        detail: What is known beyond the reason, as one line of text.
    """

    def __init__(self, run_id: str, reason: str, detail: str) -> None:
        super().__init__(f"run {run_id!r} failed: {reason}" + (f" ({detail})" if detail else ""))
        self.run_id = run_id
        self.reason = reason
        self.detail = detail


class InvalidJSON(TurnstileError, ValueError):
    """A text is not the strict JSON that it should be."""


class CodecError(TurnstileError):
    """An event cannot be written as a record, or a record cannot be read as an event.

    Attributes:
        event: Name of the event, as in the record; empty when the record has none.
        field: Path of the field that is wrong, such as ``reply.calls.0.id``; empty when it is the record as a whole.
        problem: What is wrong with it.
    """

    def __init__(self, event: str, field: str, problem: str) -> None:
        where = f" {event}" if event else ""
        super().__init__(f"record{where}" + (f", field {field}" if field else "") + f": {problem}")
        self.event = event
        self.field = field
        self.problem = problem


class StopRun(TurnstileError):
    """Raise this in a tool to end the run with the reason ``tool_aborted``; the text is kept as the stop's detail."""
