"""One call of one tool: run on the event loop or in a thread of its own, with whatever comes of it as an outcome."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from turnstile.core.errors import StopRun
from turnstile.core.messages import ResultStatus, ToolCall
from turnstile.core.values import Struct
from turnstile.shell.toolbox.text import Unwritable, described, flattened, whole, written
from turnstile.shell.toolbox.threads import Deliveries, begin
from turnstile.shell.toolbox.vetting import AnyTool
from turnstile.tools import ToolContext

ENDED = "its task was ended while it ran, and its outcome is unknown"


class Outcome(Struct, frozen=True):
    """What came of a call.

    Attributes:
        content: What the model reads.
        status: How the call ended.
        aborted: The text of a `StopRun` that the tool raised.
        raised: A ``KeyboardInterrupt`` or ``SystemExit`` that the tool raised.
    """

    content: str
    status: ResultStatus = "ok"
    aborted: str | None = None
    raised: BaseException | None = None


class Job(Struct, eq=False):
    """A call that is to run, and how far it is.

    Attributes:
        index: Its place among the reply's calls.
        call: The call.
        tool: Its tool.
        arguments: The arguments as the function takes them.
        task: What performs it, once it is its turn.
        began: When the tool was started; ``None`` while it isn't.
        alarm: What will ring when its time is over.
        halted: What it comes to if it ends by being told to stop; ``None`` while it is not told.
        settled: Whether it has its result; what comes later is dropped.
    """

    index: int
    call: ToolCall
    tool: AnyTool
    arguments: Mapping[str, object]
    task: asyncio.Task[None] | None = None
    began: float | None = None
    alarm: asyncio.TimerHandle | None = None
    halted: Outcome | None = None
    settled: bool = False


async def perform(
    job: Job, context: Callable[[], ToolContext], is_over: Callable[[], bool], deliveries: Deliveries
) -> Outcome:
    """Run a call's tool, and give what came of it; raises nothing that the tool raises.

    Args:
        job: The call.
        context: Makes what the tool is told of its run, if it asks for that.
        is_over: Tells, in any thread, whether nothing may begin any more.
        deliveries: Takes what a thread brings.
    """
    tool = job.tool
    try:
        arguments = tool.bind(job.arguments, context)
        if tool.is_async:
            return returned(tool, await tool.function(**arguments))
        given = await _in_thread(job, arguments, is_over, deliveries)
        return given if isinstance(given, Outcome) else returned(tool, await given)
    except GeneratorExit:
        raise  # the event loop is gone, and nobody is left to tell
    except asyncio.CancelledError as error:
        if job.halted is not None:
            return job.halted  # told to stop, it did
        if job.task is not None and job.task.cancelling():  # somebody else has ended it, and knows why
            return Outcome(ENDED, "unknown")
        return failed(error)  # the tool's own failure: a library of its may cancel what it waits for
    except BaseException as error:  # noqa: BLE001 - whatever a tool raises is an observation for the model
        return failed(error)


def returned(tool: AnyTool, value: object) -> Outcome:
    """The outcome of a tool that returned a value."""
    try:
        return Outcome(written(value))
    except Unwritable as error:
        what = f"{tool.name!r} ran, but what it returned, a {type(value).__qualname__}, cannot be shown"
        return Outcome(f"{what}: {error}", "error")


def failed(error: BaseException) -> Outcome:
    """The outcome of a tool that raised an exception."""
    for part in flattened(error):
        if isinstance(part, KeyboardInterrupt | SystemExit):
            return Outcome(f"interrupted by {described(error)}: the outcome is unknown", "unknown", raised=part)
        if isinstance(part, StopRun):
            return Outcome(described(error), "error", aborted=whole(str(part)))
    return Outcome(described(error), "error")


async def _in_thread(
    job: Job, arguments: Mapping[str, object], is_over: Callable[[], bool], deliveries: Deliveries
) -> Outcome | Awaitable[object]:
    """Run a function in a thread of its own; gives its outcome, or what it returned for the event loop to await.

    The thread may come to it a while later, when it must not begin any more.
    """
    future: asyncio.Future[Outcome | Awaitable[object]] = asyncio.get_running_loop().create_future()
    context = contextvars.copy_context()

    def deliver(given: Outcome | Awaitable[object]) -> None:
        if future.done():
            _drop(given)
        else:
            future.set_result(given)

    def work() -> None:
        if is_over() or job.halted is not None:
            given: Outcome | Awaitable[object] = Outcome("not run: cancelled", "not_run")
        else:
            given = context.run(_attempt, job.tool, arguments)
        deliveries.bring(partial(deliver, given))

    worker = begin(f"tool {job.tool.name}", work)
    try:
        return await future
    except asyncio.CancelledError:
        if future.cancelled():
            worker.retire()  # who knows in what state the function will leave it
            raise
        given = future.result()
        if isinstance(given, Outcome):
            return given  # told to stop just after it had ended
        _drop(given)  # it has not: what the function is for would begin only now
        raise


def _drop(given: Outcome | Awaitable[object]) -> None:
    """Let go of what nobody waits for; a coroutine that never began is closed, or Python warns of it."""
    if inspect.iscoroutine(given):
        given.close()


def _attempt(tool: AnyTool, arguments: Mapping[str, object]) -> Outcome | Awaitable[object]:
    try:
        value = tool.function(**arguments)
        return value if inspect.isawaitable(value) else returned(tool, value)
    except BaseException as error:  # noqa: BLE001 - see perform
        return failed(error)
