"""`turnstile run`: one prompt, one answer."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from turnstile.cli.drawing import draw_run, format_of
from turnstile.cli.faults import DONE, FAILED, INTERRUPTED, MISUSED, WAITING, Misuse
from turnstile.cli.interrupts import Interrupts
from turnstile.cli.options import Settings
from turnstile.cli.preparing import Job, prepare
from turnstile.cli.progress import Progress
from turnstile.cli.screen import Screen, json_text, prints_aside
from turnstile.cli.wording import kept, path, summary
from turnstile.core.limits import StopReason
from turnstile.core.run_state import Stop
from turnstile.core.strict_json import JsonValue
from turnstile.core.values import asdict
from turnstile.driver import Run
from turnstile.result import Result

if TYPE_CHECKING:
    from turnstile.cli.keys import Keys

STDIN = "-"


def run(name: str, prompt: str | None, settings: Settings, *, step: bool, diagram: str | None) -> int:
    """Run an agent once, and give the exit status.

    Raises:
        TurnstileError: The command cannot work as it was given.
    """
    keys = _keys() if step else None
    if diagram is not None:
        format_of(diagram)
    text = read_prompt(prompt)
    job = prepare(name, settings, Screen(quiet=settings.quiet))
    return asyncio.run(_run(job, text, keys, diagram))


def read_prompt(prompt: str | None) -> str:
    """The prompt, from the argument or from standard input.

    Raises:
        Misuse: There is none, or it is no text.
    """
    if prompt is None:
        raise Misuse("no prompt; give it as an argument, or `-` to read standard input (`turnstile chat` asks for it)")
    text = _from_stdin() if prompt == STDIN else prompt
    try:
        text.encode()
    except UnicodeEncodeError:  # the shell handed over bytes that are no text in its encoding
        raise Misuse("the prompt is not valid UTF-8; give it in that encoding") from None
    if not text.strip():
        where = "standard input" if prompt == STDIN else "the argument"
        raise Misuse(f"the prompt is empty; {where} has nothing but white space: say what the agent should do")
    return text


def _from_stdin() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        raise Misuse(
            "`-` reads the prompt from a pipe or a file, and standard input is neither; give the prompt as an argument"
        )
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Misuse(
            f"standard input is not valid UTF-8 (byte {error.start}); give the prompt in that encoding"
        ) from error
    except OSError as error:
        raise Misuse(f"standard input cannot be read: {error.strerror}; give the prompt as an argument") from error


def _keys() -> Keys:
    try:
        from turnstile.cli.keys import Keys
    except ImportError as error:  # pragma: no cover - no terminal control of POSIX's kind: Windows
        raise Misuse("--step needs a POSIX terminal; leave it out: --log-json FILE writes every transition") from error
    return Keys("--step")


async def _run(job: Job, prompt: str, keys: Keys | None, diagram: str | None) -> int:
    progress = Progress(job.screen, narrates=keys is None, streams=job.streams)
    try:
        options = job.options(progress, session=job.settings.session)
        with job.tells_unsaved(progress), prints_aside(), progress:
            async with job.agent.start(prompt, **options) as live:
                if keys is None:
                    interrupted = await to_the_end(live, job.screen, progress)
                else:
                    from turnstile.cli.stepping import by_key

                    interrupted = await by_key(live, keys, job.screen, progress)
        status = report(live.result, job, progress, interrupted=interrupted)
        if diagram is not None:
            draw_run(live.result, job.agent.machine, diagram)
        return status
    finally:
        await job.aclose()


async def to_the_end(live: Run[Any], screen: Screen, progress: Progress) -> bool:
    """Drive a run to its end, or until it waits for a human; tells whether Ctrl-C ended it."""
    with Interrupts(lambda: cancel(live, screen), progress.pause) as interrupts:
        await live.finish()
    return interrupts.happened


def cancel(live: Run[Any], screen: Screen) -> None:
    """Cancel a run for whoever pressed Ctrl-C."""
    live.cancel("interrupted from the keyboard")
    screen.warn("cancelling: what runs is told to stop (Ctrl-C again leaves at once)")


def report(result: Result[Any], job: Job, progress: Progress, *, interrupted: bool) -> int:
    """Give the answer, say how the run ended, and tell the exit status, which a lost log keeps from being `DONE`."""
    screen = job.screen
    if job.settings.json:
        screen.answer(json_text(as_json(result)))
    elif result.ok:
        _answer(result, screen, progress)
    elif result.partial and result.partial != progress.written:
        screen.say(f"the last that the model wrote:\n{result.partial}")
    tell = screen.say if result.ok else screen.warn
    tell(summary(result))
    if job.lost_log:
        screen.warn(job.lost_log)
    if interrupted and not result.ok:
        screen.warn(kept(result, job.kept_in))
        return INTERRUPTED
    if result.stop is None:
        return WAITING
    return (MISUSED if job.lost_log else DONE) if result.ok else FAILED


def _answer(result: Result[Any], screen: Screen, progress: Progress) -> None:
    """Write the answer, unless it has been seen whole while it was written."""
    output = result.run.output
    if result.stop is not None and StopReason.EMPTY_ANSWER in result.stop.flags:
        return
    if not isinstance(output, str):
        screen.answer(json_text(output, indent=True))
    elif output != progress.written:
        screen.answer(output)


def as_json(result: Result[Any]) -> dict[str, JsonValue]:
    """What a run came to, for a program: the answer, how it ended, what it spent, and its path."""
    return {
        "run_id": result.run_id,
        "session": result.run.start.session,
        "ok": result.ok,
        "output": result.run.output if result.ok else None,
        "partial": result.partial,
        "stop": _stop_as_json(result.stop) if result.stop else None,
        "waiting": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in result.waiting],
        "turns": result.run.turns,
        "usage": asdict(result.usage),
        "cost": result.cost,
        "path": [*path(result.transitions)],
    }


def _stop_as_json(stop: Stop) -> dict[str, JsonValue]:
    error: dict[str, JsonValue] | None = None
    if stop.error is not None:
        error = {name: getattr(stop.error, name) for name in ("kind", "status", "message", "request_id")}
    return {
        "reason": str(stop.reason),
        "detail": stop.detail,
        "exhausted": stop.exhausted,
        "flags": [*stop.flags],
        "error": error,
    }
