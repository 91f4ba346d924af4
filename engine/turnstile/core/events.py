"""The facts that move a run: frozen values, each named by what happened.

The shell *vets* an event before it is committed: what a guard needs to know of the outside (is the call's tool known,
does the output hold, how long to wait) stands in the event. So guards are pure, and a replay never calls a user's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from turnstile.core.limits import Limits, Price, Retry
from turnstile.core.messages import Attachment, Item, Reply, ToolResult
from turnstile.core.strict_json import JsonValue

Access = Literal["read", "idempotent", "write"]
"""What a tool does to the world: nothing; the same however often it runs; or something new each time (the default)."""

FailureKind = Literal[
    "authentication",
    "permission",
    "billing",
    "not_found",
    "bad_request",
    "context_overflow",
    "content_filter",
    "generation_failed",
    "rate_limited",
    "overloaded",
    "server",
    "network",
    "timeout",
    "protocol",
    "budget",
]
"""Why a model request brought no reply, whatever the status it came under.

``protocol``: the answer is no valid answer. ``generation_failed``: the server rejects the model's own malformed call.
``budget``: the engine itself refused to send, since the worst case would exceed a limit.
"""

TRANSIENT: frozenset[FailureKind] = frozenset(
    {"rate_limited", "overloaded", "server", "network", "timeout", "protocol"}
)


class Event:
    """Base of all events. An extension's event is a frozen dataclass that derives from this.

    An extension's event also has a method ``apply(run: RunState) -> RunState``: what it changes.

    Attributes:
        codec_name: What an extension's event is called in a stored record, such as ``"acme.reviewed"``; it stays when
            the class is renamed. The engine's own events go by their class's name.
    """

    __slots__ = ()
    codec_name: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """Record 1 of a run: all that is fixed from its start. It makes the `RunState`, and is no row of the table.

    Attributes:
        run_id: The run.
        prompt: What the user asks.
        attachments: Images and files that the user gives with it.
        agent: The agent's name.
        instructions: The system prompt, as text.
        history: What was said before, in whole items.
        session: The conversation it belongs to.
        limits: How far it may go.
        retry: How failed requests are sent again.
        deadline: When it must have ended, in seconds since the epoch.
        models: The models' names, the first choice first.
        prices: The price of each; ``None`` where unknown, or where no limit on cost asks for it.
        max_output: The most tokens a reply may have, when that is set.
        tools_size: Size of the tools' descriptions in characters, for estimates of a request's tokens.
        can_trim: Whether old items may be left out of a request that the model found too long.
        fingerprints: Names and digests of what the run was started under: the machine and each tool.
    """

    run_id: str
    prompt: str
    agent: str = "agent"
    instructions: str = ""
    history: tuple[Item, ...] = ()
    session: str | None = None
    limits: Limits = Limits()
    retry: Retry = Retry()
    deadline: float | None = None
    models: tuple[str, ...] = ("model",)
    prices: tuple[Price | None, ...] = (None,)
    max_output: int | None = None
    tools_size: int = 0
    can_trim: bool = True
    fingerprints: tuple[tuple[str, str], ...] = ()
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the shell found out about one call before anything runs.

    Attributes:
        call_id: The call.
        digest: Equal for two calls of one tool with equal arguments.
        known: Whether there is such a tool.
        valid: Whether its arguments fit.
        problem: Why it cannot run, written for the model; empty when it can.
        access: What the tool does to the world.
        repeats: How often the same call with the same result may be made in a row; ``None`` does not count it.
    """

    call_id: str
    digest: str
    known: bool = True
    valid: bool = True
    problem: str = ""
    access: Access = "write"
    repeats: int | None = 3


@dataclass(frozen=True, slots=True)
class ModelReplied(Event):
    """A model's reply arrived, whole, and was vetted.

    Attributes:
        reply: The reply.
        verdicts: One for each call, in call order.
        output: The validated output as JSON, when the reply is an answer.
        output_error: Why the answer does not fit the agent's output type, written for the model; empty when it fits.
    """

    reply: Reply
    verdicts: tuple[Verdict, ...] = ()
    output: JsonValue = None
    output_error: str = ""

    def __post_init__(self) -> None:
        expected, got = [call.id for call in self.reply.calls], [verdict.call_id for verdict in self.verdicts]
        if expected != got:
            msg = f"a vetted reply has one verdict for each call, in call order: expected {expected!r}, got {got!r}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class ModelFailed(Event):
    """A model request brought no reply.

    Attributes:
        kind: Why.
        message: The server's words, shortened and without secrets, or ours.
        status: The HTTP status, if there was one.
        request_id: The provider's id of the request, if there was one.
        retry_after: Seconds that the server asks to wait.
        delay: Seconds to wait before the next attempt, drawn by the shell; ``None`` when no attempt should follow.
        limit: With kind ``budget``: the limit that would be passed, ``"token_limit"`` or ``"cost_limit"``.
        items: With kind ``context_overflow``: how many items the request carried; 0 when that isn't known.
    """

    kind: FailureKind
    message: str = ""
    status: int | None = None
    request_id: str = ""
    retry_after: float | None = None
    delay: float | None = None
    limit: Literal["token_limit", "cost_limit", ""] = ""
    items: int = 0


@dataclass(frozen=True, slots=True)
class ToolsFinished(Event):
    """All calls of the open reply have their results, in call order.

    Attributes:
        results: One for each call.
        aborted: The text of the `StopRun` that a tool raised; empty when none did.
    """

    results: tuple[ToolResult, ...]
    aborted: str | None = None


@dataclass(frozen=True, slots=True)
class ResultsAppended(Event):
    """The open reply and its results are part of the history now."""


@dataclass(frozen=True, slots=True)
class Cancelled(Event):
    """Someone wants the run to stop."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class DeadlinePassed(Event):
    """The time that the run was given is over."""


@dataclass(frozen=True, slots=True)
class MessageInjected(Event):
    """The user says something while the run is under way."""

    text: str


@dataclass(frozen=True, slots=True)
class EffectLost(Event):
    """The process that performed the state's effect is gone, and with it what the effect would have brought."""


@dataclass(frozen=True, slots=True)
class EffectBegun(Event):
    """The state's effect is under way. No row of the table: like `RunStarted` it is a record that a fold reads."""


EVENTS: tuple[type[Event], ...] = (
    ModelReplied,
    ModelFailed,
    ToolsFinished,
    ResultsAppended,
    Cancelled,
    DeadlinePassed,
    MessageInjected,
    EffectLost,
)
"""All events that move a run; `RunStarted` makes it, and `EffectBegun` says that its effect is under way."""
