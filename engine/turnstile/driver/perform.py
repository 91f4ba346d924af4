"""`Performer`: performs what a state asks for, through the ports, and gives the vetted event that follows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from turnstile.core.budget import over_budget
from turnstile.core.effects import Ask, AskHuman, CallModel, Effect, RunTools
from turnstile.core.errors import UsageError
from turnstile.core.events import TRANSIENT, CallStarted, EffectBegun, Event, ModelFailed, ModelReplied
from turnstile.core.machine import Machine
from turnstile.core.messages import Exchange, Reply, ToolCall, ToolResult
from turnstile.core.receipts import idempotency_key
from turnstile.core.requests import Ranges, RequestDigests, ranges_of, selected
from turnstile.core.run_state import RunState
from turnstile.core.step import begin
from turnstile.core.strict_json import JsonValue
from turnstile.core.values import evolve
from turnstile.ports import (
    Clock,
    ContextPolicy,
    Delta,
    ModelClient,
    ModelRequest,
    Notice,
    Observer,
    Store,
    ToolRunner,
    ToolWork,
)

Intents = tuple[EffectBegun, *tuple[CallStarted, ...]]
"""What the journal says before an effect is performed: that it begins, and which calls begin with it."""

_BEGUN = EffectBegun()
MOST_DOUBLINGS = 30  # half a second doubled so often is 17 years, and a double holds it


@dataclass(frozen=True, slots=True)
class Outside:
    """Everything around a run that isn't the run: what performs its effects, and who hears of them.

    Attributes:
        machine: The table.
        models: The models, the first choice first.
        tools: Runs the calls.
        store: Keeps the journal.
        clock: Tells the time.
        context: Selects what a request carries.
        vet_output: Gives an answer's text as validated JSON and an empty text, or nothing and what is wrong with it.
        output_schema: JSON Schema of the answer, when it is not plain text.
        settings: What the user set for the models.
        observers: Who hears of it.
        deps: What the user handed over for the tools.
    """

    machine: Machine
    models: tuple[ModelClient, ...]
    tools: ToolRunner
    store: Store
    clock: Clock
    context: ContextPolicy
    vet_output: Callable[[str], tuple[JsonValue, str]]
    output_schema: Mapping[str, JsonValue] | None = None
    settings: Mapping[str, JsonValue] = field(default_factory=dict)
    observers: tuple[Observer, ...] = ()
    deps: object = None


class Performer:
    """Performs the effects of one run.

    Args:
        outside: What to perform them with.
        run: The run as it starts.
        notify: Hears of progress.
        begin: Keeps the intent to run a call (`ToolWork.begin`).
        finished: Keeps a call's result (`ToolWork.finished`).
    """

    __slots__ = (
        "_begin",
        "_call_ids",
        "_digests",
        "_encoded",
        "_finished",
        "_found",
        "_known",
        "_notify",
        "_outside",
        "due",
        "raised",
        "stop",
    )

    def __init__(
        self,
        outside: Outside,
        run: RunState,
        notify: Callable[[Notice], None],
        begin: Callable[[ToolCall], Awaitable[bool]],
        finished: Callable[[ToolResult], None],
    ) -> None:
        self._outside = outside
        self._notify = notify
        self._begin = begin
        self._finished = finished
        self._encoded: dict[tuple[str, int], bytes] = {}
        self._found: dict[ToolCall, object] = {}
        self._known: tuple[ModelReplied, dict[str, str], dict[str, str]] | None = None  # of the calls that are open
        self._digests = RequestDigests(run.start)
        replies = [item.reply for item in run.history if isinstance(item, Exchange)]
        replies += [run.open.reply] if run.open else []
        # Not a set, which takes twice the memory of a dict.
        self._call_ids: dict[str, None] = dict.fromkeys([call.id for reply in replies for call in reply.calls])
        self.stop: asyncio.Future[None] | None = None
        self.raised: BaseException | None = None
        self.due: float | None = None

    def intents(self, effect: Effect, run: RunState) -> Intents:
        """What the journal must say before an effect is performed: that it begins, and what is sent or started.

        Args:
            effect: The effect.
            run: The run that asks for it, before it begins.
        """
        if isinstance(effect, CallModel) and not over_budget(run):
            history = begin(run).history if run.inbox else run.history
            items = ranges_of(history, self._outside.context.select(history, run.window_start))
            return (EffectBegun(self._digests.of(effect, history, items), items),)
        if isinstance(effect, RunTools):
            calls = self._outside.tools.opening(effect, run.start.limits.parallel)
            return (_BEGUN, *self._started(calls, run))
        return (_BEGUN,)

    def tell_to_stop(self) -> None:
        """Tell tools that run to end."""
        if self.stop is not None and not self.stop.done():
            self.stop.set_result(None)

    def intent(self, call: ToolCall, run: RunState) -> CallStarted:
        """The intent to run a call."""
        (intent,) = self._started((call,), run)
        return intent

    def _started(self, calls: Iterable[ToolCall], run: RunState) -> list[CallStarted]:
        assert run.open is not None  # noqa: S101 - a call is run while its reply is open
        if self._known is None or self._known[0] is not run.open:  # asked for each call that begins later
            digests = {verdict.call_id: verdict.digest for verdict in run.open.verdicts}
            self._known = run.open, digests, dict(run.fingerprints)
        _, digests, fingerprints = self._known
        approved = dict(run.approved)
        return [
            CallStarted(
                call.id,
                call.name,
                digests[call.id],
                fingerprints.get(f"tool {call.name.strip()}", ""),
                idempotency_key(run.start.run_id, call.id),
                str(approved.get(call.id, "")),
            )
            for call in calls
        ]

    def perform(self, effect: Effect, run: RunState, items: Ranges) -> Awaitable[Event]:
        """Perform an effect and give the event that follows.

        Args:
            effect: The effect.
            run: The run, with the effect begun.
            items: Which items of its history a model request carries, as its intent says.

        Raises:
            Exception: A bug in an adapter; the run is as it was, and the effect may be performed anew. Calls that were
                begun are then as after a crash.
        """
        if isinstance(effect, CallModel):
            return self._call_model(effect, run, items)
        return self._run_tools(effect, run) if isinstance(effect, RunTools) else self._ask(effect, run)

    async def _ask(self, effect: AskHuman | Ask, run: RunState) -> Event:
        asked = str(effect)
        event: object = await self._outside.machine.performs[asked](run)
        if isinstance(event, Event):
            return event
        raise UsageError(f"what performs {asked!r} gives an event; got {event!r}")

    async def _call_model(self, effect: CallModel, run: RunState, items: Ranges) -> Event:
        if effect.delay or self.due is not None:
            await self._wait(effect.delay)
        limit = over_budget(run)
        if limit:
            return ModelFailed("budget", f"not sent: it could pass the {limit.replace('_', ' ')}", limit=limit)
        outside, attempt = self._outside, effect.attempt
        request = ModelRequest(
            instructions=run.start.instructions,
            items=selected(run.history, items),
            tools=outside.tools.specs,
            tools_on=effect.tools,
            max_output=effect.max_output,
            settings=outside.settings,
            output_schema=outside.output_schema,
            memo=self._encoded,
            now=outside.clock.time(),
        )

        def progress(delta: Delta) -> None:
            self._notify(delta if delta.attempt == attempt else evolve(delta, attempt=attempt))

        client = outside.models[effect.model]
        reply = await client.reply(request, progress)
        if isinstance(reply, Reply):
            return self._vet(_priced(reply, client), run)
        if not isinstance(reply, ModelFailed):
            raise UsageError(f"model client {client.name!r} gives a Reply or a ModelFailed; got {reply!r}")
        if reply.kind == "context_overflow":
            return evolve(reply, items=len(request.items))
        return self._with_delay(reply, run)

    async def _wait(self, delay: float) -> None:
        """Wait before a request; a wait that began before the process was lost ends when it would have ended."""
        due, self.due = self.due, None
        seconds = delay if due is None else min(delay, due - self._outside.clock.time())
        if seconds > 0:
            await self._outside.clock.sleep(seconds)

    def _vet(self, reply: Reply, run: RunState) -> ModelReplied:
        if not reply.calls:
            output, error = self._outside.vet_output(reply.text) if reply.says_something else (None, "")
            return ModelReplied(reply, output=output, output_error=error)
        ids = [self._unique(call.id, run) for call in reply.calls]
        if ids != [call.id for call in reply.calls]:
            calls = tuple(evolve(call, id=new) for new, call in zip(ids, reply.calls, strict=True))
            reply = evolve(reply, calls=calls)
        return ModelReplied(reply, self._outside.tools.vet(reply, run, self._found))

    def _unique(self, call_id: str, run: RunState) -> str:
        """The provider's id where it is one, else an id of ours: servers send empty, constant and reused ids."""
        unique, number = call_id, 0
        while not unique or unique in self._call_ids:
            number += 1
            unique = f"{call_id or 'call'}_{run.turns + 1}_{number}"
        self._call_ids[unique] = None
        return unique

    def _with_delay(self, failed: ModelFailed, run: RunState) -> ModelFailed:
        """The failure with the wait before the next attempt, drawn once: full jitter, never less than is asked."""
        if failed.kind not in TRANSIENT:
            return failed
        retry = run.start.retry
        bound = min(retry.max_delay, retry.base_delay * 2 ** min(run.retries, MOST_DOUBLINGS))
        draw = random.Random(f"{run.run_id} {run.seq}")  # noqa: S311 - jitter, the same for the same run; no secret
        delay = max(draw.uniform(0, bound), failed.retry_after or 0.0)
        deadline = run.deadline
        too_long = delay > retry.max_delay or (deadline is not None and self._outside.clock.time() + delay > deadline)
        return evolve(failed, delay=None if too_long else delay)

    async def _run_tools(self, effect: RunTools, run: RunState) -> Event:
        assert self.stop is not None  # noqa: S101 - whoever begins the effect has made it
        work = ToolWork(
            run.run_id,
            self._outside.deps,
            run.limits.parallel,
            self.stop,
            self._notify,
            self._found,
            self._begin,
            self._finished,
        )
        batch = await self._outside.tools.run(effect, work)
        self.raised = batch.raised
        return batch.event


def _priced(reply: Reply, client: ModelClient) -> Reply:
    """The reply with what it cost, as far as its client knows a price and its server the tokens."""
    usage = reply.usage
    if reply.cost is not None or usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return reply
    price = client.price
    return evolve(reply, cost=price.of(usage.input_tokens, usage.output_tokens)) if price else reply
