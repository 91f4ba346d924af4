"""What the checks of a store stand on: runs of their own, a mailbox to look into, and words for what is wrong."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from turnstile.core.errors import TurnstileError
from turnstile.core.events import RunStarted
from turnstile.ports import Deliver, Lease, Letter, Record, Store, Summary

AT_ONCE = 20  # as many as a busy program's runs: enough that records of several runs share a commit
LIVE = Summary("await_model")
ENDED = Summary("done", "answered", 1, 10, 0.5)


class Case:
    """One check's hold on the store, and on a second one that reaches the same journals.

    Attributes:
        store: The store.
        other: Another of its kind for the same place, or the same one.
        patience: Seconds after which what should have come by itself counts as never coming.
    """

    def __init__(self, store: Store, other: Store, patience: float) -> None:
        self.store = store
        self.other = other
        self.patience = patience
        self._leases: list[tuple[Store, Lease]] = []

    async def begin(
        self,
        run_id: str | None = None,
        *,
        session: str | None = None,
        prompt: str = "prompt",
        at: float = 0.0,
        deliver: Deliver | None = None,
        other: bool = False,
    ) -> Lease:
        """Create a run."""
        store = self.other if other else self.store
        start = RunStarted(run_id or new_name(), prompt, agent="checked", session=session)
        lease = await store.create(Record(start, at=at), LIVE, deliver or ignore)
        self._leases.append((store, lease))
        return lease

    async def claim(self, run_id: str, deliver: Deliver | None = None, *, other: bool = False) -> Lease:
        """Claim a run."""
        store = self.other if other else self.store
        lease = await store.claim(run_id, deliver or ignore)
        self._leases.append((store, lease))
        return lease

    async def end(self, lease: Lease, records: Sequence[Record] = ()) -> None:
        """End a run."""
        await self.store.append(lease, records, ENDED)

    async def free(self, lease: Lease, *, other: bool = False) -> None:
        """Release a lease, and wait until that has come about, since `Store.release` does not."""
        store = self.other if other else self.store
        store.release(lease)

        async def is_free() -> bool:
            holders = {entry.run_id: entry.holder for entry in await self.store.runs(most=5 * AT_ONCE)}
            return not holders.get(lease.run_id)

        await self.until(is_free, f"run {lease.run_id!r} is still held although its lease was released")

    def mailbox(self) -> Mailbox:
        """A mailbox to look into."""
        return Mailbox(self.patience)

    async def until(self, holds: Callable[[], Awaitable[bool]], otherwise: str) -> None:
        """Wait for something that comes about by itself.

        Raises:
            AssertionError: It doesn't.
        """
        try:
            async with asyncio.timeout(self.patience):
                while not await holds():  # noqa: ASYNC110 - what is waited for may happen in another process
                    await asyncio.sleep(0.001)
        except TimeoutError:
            raise AssertionError(f"{otherwise}, after {self.patience} s") from None

    def leave(self) -> None:
        """Let go of all that the check held."""
        for store, lease in self._leases:
            store.release(lease)


class Mailbox:
    """Takes a run's letters, from whatever thread they come."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._letters: asyncio.Queue[Letter] = asyncio.Queue()
        self._newest = 0

    def deliver(self, letter: Letter) -> None:
        """Take a letter."""
        with suppress(RuntimeError):  # the check has ended
            self._loop.call_soon_threadsafe(self._letters.put_nowait, letter)

    async def next(self) -> Letter:
        """The next letter that has not come before.

        Raises:
            AssertionError: None comes.
        """
        try:
            async with asyncio.timeout(self._patience):
                while (letter := await self._letters.get()).number <= self._newest:
                    pass
        except TimeoutError:
            raise AssertionError(f"no letter arrived within {self._patience} s") from None
        self._newest = letter.number
        return letter


def ignore(letter: Letter) -> None:
    """Take a letter, and do nothing."""


def new_name() -> str:
    """A name that no store has seen."""
    return f"check-{secrets.token_hex(6)}"


def same(got: object, expected: object) -> None:
    """Hold two things to be equal."""
    if got != expected:
        raise AssertionError(f"expected {expected!r}\n     got {got!r}")


async def refused(kind: type[TurnstileError], doing: Awaitable[object]) -> TurnstileError:
    """Hold something to be refused with an error of exactly this kind; gives the error."""
    try:
        outcome = await doing
    except TurnstileError as error:
        same(type(error), kind)
        return error
    raise AssertionError(f"expected {kind.__name__}\n     got {outcome!r}")


Check = Callable[[Case], Awaitable[None]]
"""One promise; its docstring says which."""
