"""The facts that move a run: frozen values, each named by what happened.

The shell *vets* an event before it is committed: what a guard needs to know of the outside (is the call's tool known,
does the output hold, how long to wait) stands in the event. So guards are pure, and a replay never calls a user's code.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from turnstile.core.limits import Limits, Price, Retry
from turnstile.core.messages import Attachment, Item, Reply, ToolResult, ToolSpec
from turnstile.core.strict_json import JsonValue
from turnstile.core.values import Value

Access = Literal["read", "idempotent", "write"]
"""What a tool does to the world: nothing; the same however often it runs; or something new each time (the default)."""

OnInDoubt = Literal["tell", "ask"]
"""What becomes of a call that must not run again and whose outcome is unknown: the model is told, or a human asked."""

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

    An extension's event also has a method ``apply(run: RunState) -> RunState``: what it changes, by `turnstile.evolve`.

    Attributes:
        codec_name: What an extension's event is called in a stored record, such as ``"acme.reviewed"``; it stays when
            the class is renamed. The engine's own events go by their class's name.
    """

    __slots__ = ()
    codec_name: ClassVar[str] = ""


class _Own(Event, Value, frozen=True):
    """An event of the engine's own."""


class RunStarted(_Own, frozen=True):
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
        tools: The tools as a model sees them, so that its requests can be made again from the journal alone.
        settings: What else the models are told, as a JSON object.
        output_schema: JSON Schema of the answer, when it is not plain text.
        origin: How the command line found the agent, such as ``my_module:agent``; empty for one that a program made.
        forked_from: The run that this one shares its beginning with, as ``run@seq``; empty for most.
        previous: The run of its session that it goes on from, the newest then; empty for the first of a session, and
            ``None`` where nobody looked.
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
    tools: tuple[ToolSpec, ...] = ()
    settings: JsonValue = None
    output_schema: JsonValue = None
    origin: str = ""
    forked_from: str = ""
    previous: str | None = None


class Verdict(Value, frozen=True):
    """What the shell found out about one call before anything runs.

    Attributes:
        call_id: The call.
        digest: Equal for two calls of one tool with equal arguments.
        known: Whether there is such a tool.
        valid: Whether its arguments fit.
        problem: Why it cannot run, written for the model; empty when it can.
        access: What the tool does to the world.
        repeats: How often the same call with the same result may be made in a row; ``None`` does not count it.
        on_in_doubt: Who decides when the call was started and its end is not known, and it may not run again: the model
            is told, or a human is asked.
    """

    call_id: str
    digest: str
    known: bool = True
    valid: bool = True
    problem: str = ""
    access: Access = "write"
    repeats: int | None = 3
    on_in_doubt: OnInDoubt = "tell"


class ModelReplied(_Own, frozen=True):
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


class ModelFailed(_Own, frozen=True):
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


class ToolsFinished(_Own, frozen=True):
    """The calls of the open reply have come to an end.

    Attributes:
        results: In call order, one for each call that has no receipt yet (`CallFinished`).
        aborted: The text of the `StopRun` that a tool raised; empty when none did.
    """

    results: tuple[ToolResult, ...]
    aborted: str | None = None


class ResultsAppended(_Own, frozen=True):
    """The open reply and its results are part of the history now."""


class Cancelled(_Own, frozen=True):
    """Someone wants the run to stop."""

    why: str = ""


class DeadlinePassed(_Own, frozen=True):
    """The time that the run was given is over."""


class MessageInjected(_Own, frozen=True):
    """The user says something while the run is under way."""

    text: str


class EffectLost(_Own, frozen=True):
    """The process that performed the state's effect is gone, and with it what the effect would have brought."""


class ApprovalDecided(_Own, frozen=True):
    """A human decided about a call that is in doubt.

    Attributes:
        call_id: The call.
        decision: It runs again; or its result is known, and given; or the model is told that nobody knows.
        content: With ``"result"``: the result, as the model is to see it.
        waited: Seconds that the run waited for this; they do not count against its time limit.
    """

    call_id: str
    decision: Literal["rerun", "result", "unknown"]
    content: str = ""
    waited: float = 0.0


class EffectBegun(_Own, frozen=True):
    """The state's effect is about to be performed.

    Attributes:
        request: Digest of the model request (`turnstile.core.requests`); empty when none is sent.
        items: Which items of the history it carries, as ranges (first, end); empty when none is sent.
    """

    request: str = ""
    items: tuple[tuple[int, int], ...] = ()


class CallStarted(_Own, frozen=True):
    """The intent to run a call, kept before it runs.

    Attributes:
        call_id: The call.
        name: Its tool.
        digest: That of the tool with the canonical arguments (RFC 8785), as in its verdict.
        fingerprint: The tool's.
        key: The idempotency key that the tool is given; the same however often the call is begun.
        approval: Number of the transition by which a human let it run; empty when nobody was asked.
    """

    call_id: str
    name: str
    digest: str
    fingerprint: str = ""
    key: str = ""
    approval: str = ""


class CallFinished(_Own, frozen=True):
    """A call of the open reply has its result, while others are still at work."""

    result: ToolResult


class ChangesAccepted(_Own, frozen=True):
    """A run goes on although its machine or tools have changed.

    Attributes:
        fingerprints: All names and digests as they are now.
    """

    fingerprints: tuple[tuple[str, str], ...]


RECEIPTS: tuple[type[Event], ...] = (EffectBegun, CallStarted, CallFinished, ChangesAccepted)
"""Records between two moves that a fold reads, and that no row of the table takes."""

EVENTS: tuple[type[Event], ...] = (
    ModelReplied,
    ModelFailed,
    ToolsFinished,
    ResultsAppended,
    Cancelled,
    DeadlinePassed,
    MessageInjected,
    EffectLost,
    ApprovalDecided,
)
"""All events that move a run; `RunStarted` makes it."""
