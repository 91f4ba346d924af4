"""`RunState`: all that is true of a run at one moment, as a frozen value; a fold of its journal."""

from __future__ import annotations

from turnstile.core.events import CallStarted, ModelFailed, ModelReplied, RunStarted
from turnstile.core.history import History, length_of
from turnstile.core.limits import Limits
from turnstile.core.messages import Exchange, Message, Reply, ToolCall, ToolResult, Usage, UserTurn
from turnstile.core.states import START
from turnstile.core.strict_json import JsonValue
from turnstile.core.values import Value


class Stop(Value, frozen=True):
    """Why a run ended.

    Attributes:
        reason: One of `StopReason`, or a reason that an extension's row gives.
        detail: What is known beyond it, as one line.
        exhausted: The limit that made the run wrap up, if one did.
        flags: What a reader should know about an ending that looks well, such as ``empty_answer``.
        error: The failed request that ended the run, if one did.
    """

    reason: str
    detail: str = ""
    exhausted: str | None = None
    flags: tuple[str, ...] = ()
    error: ModelFailed | None = None


class Batch(Value, frozen=True):
    """Calls that were run together and what came of them, for telling a loop that is stuck.

    Attributes:
        calls: The calls' digests, sorted.
        outcome: The digests with their results, sorted.
        times: How often in a row exactly this happened.
    """

    calls: tuple[str, ...] = ()
    outcome: tuple[tuple[str, str], ...] = ()
    times: int = 0


class RunState(Value, frozen=True):
    """A run between two transitions. A turn makes ten of them, so it is made and changed in C.

    Attributes:
        start: What was fixed when it began.
        state: Name of the state it is in.
        seq: Number of the last transition; 0 before the first.
        history: What has been said, in whole items.
        open: The reply whose calls are not yet answered in the history, as it was vetted.
        results: The results of its calls, once they are all there.
        started: The intents of its calls that were begun; one that is begun anew stands here once.
        receipts: The results of its calls that came before the others', or before a crash.
        in_doubt: Ids of its calls whose end is not known, that may not run again, and that a human decides about.
        approved: Its calls that a human lets run again, by id, with the number of the transition that says so.
        lost: Ids of its calls that were begun before a crash and run again; they may have done their work already.
        inbox: What the user said meanwhile; it is sent as soon as no call is open.
        in_flight: Whether the state's effect has begun.
        turns: Accepted replies.
        tool_calls: Calls that were given to tools.
        calls_by_tool: The same for each tool, by name.
        retries, recoveries, nudges, repairs: Counters, each against its limit.
        batch: The last calls that ran.
        usage: Tokens, as far as servers said.
        charged_tokens: Tokens counted against the limit: what was said, else what was estimated.
        cost: US dollars, as far as prices are known.
        charged_cost: The same counted against the limit: a reply of unknown price at its worst case.
        reserved: Tokens and US dollars that the request under way may cost at worst, where a limit binds them.
        unpriced: Replies whose price is unknown.
        measured: Size in characters and tokens of the last request whose tokens were said.
        chars_per_token: How many characters a token has, as measured requests tell; ``None`` before two of them.
        model: Index of the model in use.
        trimmed: Whether old items were left out since the last accepted reply.
        window_start: Index of the first item that requests still carry.
        wrapping_up: The limit that was hit, while the run asks for a last answer.
        stopping: How the run will end, while running tools are told to stop.
        failure: The last failed request since the last accepted reply.
        waited: Seconds that it waited for a human, which do not count against its time limit.
        accepted: The fingerprints that it goes on under, where those it began with have changed.
        output: The validated output, once there is one.
        stop: Why the run ended, once it has.
    """

    start: RunStarted
    state: str
    history: History
    seq: int = 0
    open: ModelReplied | None = None
    results: tuple[ToolResult, ...] = ()
    started: tuple[CallStarted, ...] = ()
    receipts: tuple[ToolResult, ...] = ()
    in_doubt: tuple[str, ...] = ()
    approved: tuple[tuple[str, int], ...] = ()
    lost: tuple[str, ...] = ()
    inbox: tuple[str, ...] = ()
    in_flight: bool = False
    turns: int = 0
    tool_calls: int = 0
    calls_by_tool: tuple[tuple[str, int], ...] = ()
    retries: int = 0
    recoveries: int = 0
    nudges: int = 0
    repairs: int = 0
    batch: Batch = Batch()
    usage: Usage = Usage()
    charged_tokens: int = 0
    cost: float = 0.0
    charged_cost: float = 0.0
    reserved: tuple[int, float] = (0, 0.0)
    unpriced: int = 0
    measured: tuple[int, int] = (0, 0)
    chars_per_token: float | None = None
    model: int = 0
    trimmed: bool = False
    window_start: int = 0
    wrapping_up: str | None = None
    stopping: Stop | None = None
    failure: ModelFailed | None = None
    waited: float = 0.0
    accepted: tuple[tuple[str, str], ...] | None = None
    output: JsonValue = None
    stop: Stop | None = None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.start.run_id

    @property
    def limits(self) -> Limits:
        """How far the run may go."""
        return self.start.limits

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.stop is not None

    @property
    def deadline(self) -> float | None:
        """When it must have ended, in seconds since the epoch."""
        return None if self.start.deadline is None else self.start.deadline + self.waited

    @property
    def fingerprints(self) -> tuple[tuple[str, str], ...]:
        """Names and digests of what it runs under: the machine and each tool."""
        return self.start.fingerprints if self.accepted is None else self.accepted

    @property
    def waiting(self) -> tuple[ToolCall, ...]:
        """The calls that a human decides about, while the run waits for that."""
        if self.open is None or self.state != "await_approval":
            return ()
        return tuple(call for call in self.open.reply.calls if call.id in self.in_doubt)

    @property
    def last_reply(self) -> Reply | None:
        """The newest reply, answered or open; ``None`` before the first."""
        if self.open:
            return self.open.reply
        for index in range(len(self.history) - 1, -1, -1):
            item = self.history[index]
            if isinstance(item, Exchange):
                return item.reply
        return None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far, always valid: a call that is still open is answered as interrupted."""
        messages = self.history.messages
        if self.open:
            messages += (self.open.reply, *(self.results or unanswered(self, "interrupted")))
        return messages


def begin_run(start: RunStarted) -> RunState:
    """The state of a run that has just started."""
    past = History(start.history)
    history = past.append(UserTurn(start.prompt, attachments=start.attachments))
    return RunState(start, START.name, history, measured=_measured_before(start, past))


def _measured_before(start: RunStarted, past: History) -> tuple[int, int]:
    """Size and tokens of the last request of a conversation that goes on, if its server said them."""
    for place in range(len(past) - 1, -1, -1):
        item = past[place]
        if isinstance(item, Exchange) and item.reply.usage and item.reply.usage.input_tokens:
            before = past.size() - past.size(place)
            return start.tools_size + length_of(start.instructions) + before, item.reply.usage.input_tokens
    return 0, 0


def at_work(run: RunState) -> frozenset[str]:
    """Ids of the open calls that were begun, but for those that a crash undid.

    Records of the first format have no intents: there, of calls under way, each that may run may have been begun.
    """
    known = run.started or run.lost or run.receipts
    if known or run.open is None or run.state != "execute_tools" or not run.in_flight:
        return frozenset(intent.call_id for intent in run.started)
    return frozenset(verdict.call_id for verdict in run.open.verdicts if not verdict.problem)


def unanswered(run: RunState, why: str) -> tuple[ToolResult, ...]:
    """A result for each open call: the one it has, or one that says why there is none.

    That is: not run, or outcome unknown for a call that was begun, be it before a crash.
    """
    if not run.open:
        return ()
    known = {result.call_id: result for result in run.receipts}
    begun = at_work(run) | {*run.lost}
    return tuple(
        known.get(call.id)
        or (
            ToolResult(call.id, call.name, f"outcome unknown: {why}", "unknown")
            if call.id in begun
            else ToolResult(call.id, call.name, f"not run: {why}", "not_run")
        )
        for call in run.open.reply.calls
    )
