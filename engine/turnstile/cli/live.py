"""The commands about runs that have not ended, with their arguments and help; their work is loaded when they run."""

from __future__ import annotations

from typing import Annotated

import typer

from turnstile.cli import options
from turnstile.cli.options import Settings

RESUME_EXAMPLES = """Examples:

\b
  turnstile resume 3f9a
  turnstile resume --all                           whatever dead processes left
  turnstile resume 3f9a --accept-changes           although a tool has changed since

A model request that was under way is sent again. Tool calls that had ended keep their results; those under way run
again if they only read or are idempotent. Any other's outcome is unknown: the model is told, or, if the tool wants it
so, the run waits until you decide with `turnstile approve` or `deny` (status 3).
"""
CANCEL_EXAMPLES = """Examples:

\b
  turnstile cancel 3f9a
  turnstile cancel 3f9a --why "the customer called"

A run that a process drives, here or elsewhere, gets word of it within a moment; one that nobody drives has ended then.
"""
APPROVE_EXAMPLES = """Examples:

\b
  turnstile approve 3f9a call_2_1                  it runs again
  turnstile approve 3f9a call_2_1 --result "paid"  you know that it ran, and what came of it

`turnstile runs show ID` lists the calls that wait for a decision.
"""
DENY_EXAMPLES = """Examples:

\b
  turnstile deny 3f9a call_2_1
  turnstile deny 3f9a call_2_1 --why "the bank is closed"

The model is told that nobody knows what became of the call. If one approves and one denies before the run has heard of
either, deny wins; once it has, `turnstile cancel` stops what was approved.
"""

SomeRun = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="A run, by its id or the beginning of it.", autocompletion=options.complete_run),
]
Every = Annotated[bool, typer.Option("--all", help="Each run that has not ended and that nobody drives.")]
AcceptChanges = Annotated[
    bool,
    typer.Option(
        "--accept-changes",
        help="Go on although the machine, the model or a tool is not what it was; the journal says so.",
    ),
]
TheAgent = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="AGENT",
        help="The run's agent. Without it: the one that the run was started with.",
        autocompletion=options.complete,
    ),
]
CallId = Annotated[str, typer.Argument(metavar="CALL", help="The id of a call that waits for a decision.")]
Why = Annotated[str, typer.Option(metavar="TEXT", help="The reason, for the journal.")]
WhyDenied = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for the model.")]
GivenResult = Annotated[
    str | None, typer.Option("--result", metavar="TEXT", help="What the call came to, in place of running it again.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the outermost group."""
    app.command(epilog=RESUME_EXAMPLES)(resume)
    app.command(epilog=CANCEL_EXAMPLES)(cancel)
    app.command(epilog=APPROVE_EXAMPLES)(approve)
    app.command(epilog=DENY_EXAMPLES)(deny)


def resume(
    run: SomeRun = None,
    *,
    every: Every = False,
    accept_changes: AcceptChanges = False,
    agent: TheAgent = None,
    model: options.Model = None,
    store: options.StoreRead = None,
    json: options.AsJson = False,
    log_json: options.LogJson = None,
    log_content: options.LogContent = False,
    quiet: options.Quiet = False,
) -> None:
    """Go on with a run that its process left or lost, and print its answer."""
    from turnstile.cli import resuming
    from turnstile.cli.faults import Misuse

    settings = Settings(model, store, None, None, json or log_json == "-", log_json, log_content, quiet)
    if every == (run is not None):
        raise Misuse("name one run, or give --all; `turnstile runs list --live` shows what has not ended")
    if run is None:
        raise typer.Exit(resuming.resume_all(agent, settings, accept_changes=accept_changes))
    raise typer.Exit(resuming.resume(run, agent, settings, accept_changes=accept_changes))


def cancel(
    run: options.StoredRun,
    *,
    why: Why = "",
    agent: options.OfAgent = None,
    store: options.StoreRead = None,
    quiet: options.Quiet = False,
) -> None:
    """Ask a run to stop, whichever process drives it."""
    from turnstile.cli import telling

    raise typer.Exit(telling.cancel_run(run, why, store, agent, quiet=quiet))


def approve(
    run: options.StoredRun,
    call: CallId,
    *,
    result: GivenResult = None,
    agent: options.OfAgent = None,
    store: options.StoreRead = None,
    quiet: options.Quiet = False,
) -> None:
    """Let a call whose outcome is unknown run again, or say what came of it."""
    from turnstile.cli import telling

    raise typer.Exit(telling.approve_call(run, call, result, store, agent, quiet=quiet))


def deny(
    run: options.StoredRun,
    call: CallId,
    *,
    why: WhyDenied = "",
    agent: options.OfAgent = None,
    store: options.StoreRead = None,
    quiet: options.Quiet = False,
) -> None:
    """Do not let a call whose outcome is unknown run again; the model is told that nobody knows."""
    from turnstile.cli import telling

    raise typer.Exit(telling.deny_call(run, call, why, store, agent, quiet=quiet))
