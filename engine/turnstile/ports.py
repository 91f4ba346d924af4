"""What the driver needs of the outside, as protocols, and the values that pass through them.

An adapter turns what can be expected of the outside into values: a model client returns a `Reply` or a `ModelFailed`,
a tool runner a result for each call. It raises only for bugs and misuse.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from turnstile.core.effects import RunTools
from turnstile.core.events import Event, ModelFailed, RunStarted, ToolsFinished, Verdict
from turnstile.core.history import History
from turnstile.core.limits import Price
from turnstile.core.messages import Item, Reply, ToolCall, ToolResult, ToolSpec
from turnstile.core.run_state import RunState
from turnstile.core.step import Transition
from turnstile.core.strict_json import JsonValue
from turnstile.core.values import Struct, Value, field

if TYPE_CHECKING:
    import asyncio


class ModelRequest(Struct, frozen=True):
    """One request to a model, in no provider's words.

    Attributes:
        instructions: The system prompt; may be empty.
        items: The conversation.
        tools: The agent's tools.
        tools_on: Whether the model may call them now.
        max_output: The most tokens of the reply; ``None`` leaves it to the provider.
        settings: What else the user set, such as ``temperature``.
        output_schema: JSON Schema of the answer, when the agent has an output type other than text.
        memo: A client may keep what it encoded once here, for the run's next requests.
        now: The time on the run's clock, in seconds since the epoch, against which a server's dates are read.
    """

    instructions: str
    items: Sequence[Item]
    tools: tuple[ToolSpec, ...] = ()
    tools_on: bool = True
    max_output: int | None = None
    settings: Mapping[str, JsonValue] = field(default_factory=dict)
    output_schema: Mapping[str, JsonValue] | None = None
    memo: MutableMapping[tuple[str, int], bytes] = field(default_factory=dict)
    now: float | None = None


class Delta(Struct, frozen=True):
    """A piece of a reply that is still being written; progress only, never part of the run.

    Attributes:
        kind: What it is a piece of.
        text: The piece.
        attempt: Number of the attempt; a new number means that what came before is void.
    """

    kind: Literal["text", "reasoning", "arguments"]
    text: str
    attempt: int = 1


class ToolStarted(Struct, frozen=True):
    """A call began to run."""

    call_id: str
    name: str


class ToolProgress(Struct, frozen=True):
    """A running tool says how far it is (`ToolContext.progress`)."""

    call_id: str
    name: str
    text: str


Notice = RunStarted | Transition | Delta | ToolStarted | ToolProgress | ToolResult
"""What observers hear of: the start, each transition, and the progress of effects."""


class Observer(Protocol):
    """Hears what a run does. It reads only; one that raises is reported once and dropped."""

    def observe(self, notice: Notice, run: RunState) -> None:
        """Hear of something that just happened; `run` is the run after it."""


class ModelClient(Protocol):
    """A model behind some server, or none."""

    @property
    def name(self) -> str:
        """The model as a user names it, such as ``openai:gpt-5-mini``."""

    @property
    def price(self) -> Price | None:
        """What it costs; ``None`` when that is unknown."""

    async def reply(self, request: ModelRequest, progress: Callable[[Delta], None]) -> Reply | ModelFailed:
        """Ask once: no retry and no wait of its own.

        Call ids may be empty or repeated, as the server gave them; the engine makes them unique.
        """

    async def aclose(self) -> None:
        """Let go of connections."""


async def _starts(_: ToolCall) -> bool:
    """Let a call start where no journal is kept."""
    return True


def _unkept(_: ToolResult) -> None:
    """Let a result go where no journal is kept."""


Memo = MutableMapping[ToolCall, object]
"""Where a tool runner keeps what it found out about a reply's calls until they run; each run has one of its own."""


class ToolWork(Struct, frozen=True):
    """What a tool runner is told of the run whose calls it runs.

    Attributes:
        run_id: The run.
        deps: What the user handed to the run for its tools.
        parallel: How many calls run at once.
        stop: Done when the tools should end: no call starts any more, running ones are cancelled and get some time.
        notify: Takes `ToolStarted`, `ToolProgress` and each `ToolResult` as they come, from any thread.
        memo: What `ToolRunner.vet` was given; empty when a run goes on in another process.
        begin: Keeps the intent to run a call, and tells whether it may start; awaited before each does. It returns at
            once for the calls that `ToolRunner.opening` named.
        finished: Keeps the result of a call while others are at work, and waits for nothing.
    """

    run_id: str
    deps: object
    parallel: int
    stop: asyncio.Future[None]
    notify: Callable[[Notice], None]
    memo: Memo
    begin: Callable[[ToolCall], Awaitable[bool]] = _starts
    finished: Callable[[ToolResult], None] = _unkept


class ToolBatch(Struct, frozen=True):
    """What came of a batch of calls.

    Attributes:
        event: The results that were not handed to `ToolWork.finished`.
        raised: A ``KeyboardInterrupt`` or ``SystemExit`` that a tool raised; the driver lets it go on once the results
            are kept.
    """

    event: ToolsFinished
    raised: BaseException | None = None


class ToolRunner(Protocol):
    """Judges calls before they run, and runs them."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as a model sees them."""

    @property
    def fingerprints(self) -> tuple[tuple[str, str], ...]:
        """Each tool's name, and a digest of all that makes it what it is."""

    def vet(self, reply: Reply, run: RunState, memo: Memo) -> tuple[Verdict, ...]:
        """A verdict for each call of a reply, in call order. Calls no user code that has effects."""

    def opening(self, effect: RunTools, parallel: int) -> tuple[ToolCall, ...]:
        """The calls that `run` starts at once, so that the intents to run them are kept with what comes before."""

    async def run(self, effect: RunTools, work: ToolWork) -> ToolBatch:
        """Run the calls; never raises for what a tool does. When its task is cancelled, all it started ends with it."""


class ContextPolicy(Protocol):
    """Selects the items that a request carries; pure."""

    def select(self, history: History, start: int) -> Sequence[Item]:
        """Whole items of the history, in order, none before `start` but the user's question."""


class Record(Value, frozen=True):
    """One entry of a run's journal.

    Attributes:
        event: What happened; the first is `RunStarted`.
        at: When, in seconds since the epoch.
        duration_ms: How long the effect took that brought it.
        row: Name of the row that took it; empty for what no row takes.
    """

    event: Event
    at: float = 0.0
    duration_ms: float = 0.0
    row: str = ""


class Summary(Struct, frozen=True):
    """How a run stands after its newest record, kept beside its journal for lists that read no journal.

    Attributes:
        state: Name of its state.
        reason: Why it ended; empty while it hasn't.
        turns: Accepted replies.
        tokens: Tokens of all replies, as far as servers said.
        cost: US dollars, as far as prices are known.
    """

    state: str
    reason: str = ""
    turns: int = 0
    tokens: int = 0
    cost: float = 0.0


class RunEntry(Struct, frozen=True):
    """A stored run as a list shows it.

    Attributes:
        run_id: The run.
        agent: Its agent's name.
        session: Its conversation.
        prompt: The beginning of what the user asked, on one line.
        started: When it began, in seconds since the epoch.
        at: Time of its newest record.
        records: How many records it has.
        summary: How it stands.
        holder: Who drives it at this moment, for people; empty when nobody does.
    """

    run_id: str
    agent: str
    session: str | None
    prompt: str
    started: float
    at: float
    records: int
    summary: Summary
    holder: str = ""


class Lease(Struct, frozen=True):
    """The right to write to a run's journal, as long as nobody took it over.

    Attributes:
        run_id: The run.
        epoch: Counts who has held it; a writer of an older epoch is refused.
    """

    run_id: str
    epoch: int


class Letter(Struct, frozen=True):
    """Something that another process wants to happen to a run.

    Attributes:
        number: Its place in the mailbox.
        event: `Cancelled`, `MessageInjected` or `ApprovalDecided`.
    """

    number: int
    event: Event


Deliver = Callable[[Letter], None]
"""Takes a letter for a run whose lease is held; called from any thread, and it may get a letter twice."""


class Store(Protocol):
    """Keeps journals. A record is kept before the run acts on it, and only by who holds the run's lease."""

    async def create(self, start: Record, summary: Summary, deliver: Deliver) -> Lease:
        """Begin a run's journal with its `RunStarted`, and hold its lease.

        Raises:
            RunExists: There is a run of that id; nothing was changed.
            SessionBusy: Another run of its session is under way: it is not finished, and somebody holds its lease. Or
                one has begun since this one looked what was said before (`RunStarted.previous`).
        """

    async def claim(self, run_id: str, deliver: Deliver) -> Lease:
        """Hold the lease of a run that is there: nobody holds it, or its holder is gone.

        Letters that wait are delivered, and those that come as long as the lease is held.

        Raises:
            NoSuchRun: There is no such run.
            RunIsLeased: Somebody holds it; the error says who.
            SessionBusy: Another run of its session is under way.
        """

    async def append(
        self, lease: Lease, records: Sequence[Record], summary: Summary, letters: Collection[int] = ()
    ) -> None:
        """Add records to a run's journal, all or none, and take letters out of its mailbox, as one transaction.

        Once called it goes on. A task that is cancelled meanwhile hears so when the records are kept, and of a failure
        in place of that: the run acts on what it was told is kept. A summary with a reason ends the run: its lease is
        released, and its mailbox emptied.

        Raises:
            RunIsLeased: Another has taken the lease over; nothing was changed.
        """

    def release(self, lease: Lease) -> None:
        """Let others claim the run, after all that was given to `append` is kept. Nobody need wait for it.

        The garbage collector calls it too, for a run that is forgotten: in any thread, and in the middle of anything,
        so it must not wait for a lock that its own thread may hold.
        """

    async def load(self, run_id: str) -> tuple[Record, ...]:
        """All records of a run, oldest first; empty for an unknown run."""

    async def newest(self, session: str) -> str | None:
        """Id of the run of that session that began last; ``None`` when there is none."""

    async def post(self, run_id: str, event: Event) -> str:
        """Put a letter into a run's mailbox, for whoever holds its lease or will; gives that holder, for people.

        Raises:
            NoSuchRun: There is no such run.
            RunFinished: It has ended.
        """

    async def runs(
        self, *, most: int = 100, before: str | None = None, session: str | None = None, live: bool = False
    ) -> tuple[RunEntry, ...]:
        """Stored runs, the newest first.

        Args:
            most: How many at most.
            before: Only runs that began before this one, for the next page.
            session: Only those of this session.
            live: Only those that have not ended.

        Raises:
            NoSuchRun: There is no run `before`.
        """

    async def entry(self, run_id: str) -> RunEntry | None:
        """A run as a list shows it; ``None`` for an unknown one."""

    async def find(self, prefix: str, most: int = 10) -> tuple[str, ...]:
        """Ids of the runs whose id begins so, sorted; the one that is the whole prefix stands first."""

    async def delete(self, run_id: str) -> None:
        """Forget a run and all that was kept of it.

        Raises:
            NoSuchRun: There is no such run.
            RunIsLeased: Somebody holds its lease.
        """


class Clock(Protocol):
    """The time, and waiting for it."""

    def time(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never jump, for durations."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def alarm(self, at: float, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring` once at a time given in seconds since the epoch; the function returned calls it off."""
