"""The commands about stored runs, with their arguments and help; what a command does is loaded when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from turnstile.cli import options
from turnstile.cli.entry import group
from turnstile.cli.options import Settings

RUNS_EXAMPLES = """Examples:

\b
  turnstile runs list
  turnstile runs show 3f9a
  turnstile runs audit

A run may be named by the beginning of its id, as long as no other begins so.
"""
RUNS_LIST_EXAMPLES = """Examples:

\b
  turnstile runs list --live
  turnstile runs list --session monday --limit 5
  turnstile runs list --before 3f9a                the next page, if that run was the last of one
  turnstile runs list --json | jq -r '.[] | select(.reason == "max_turns").run_id'
"""
SHOW_EXAMPLES = """Examples:

\b
  turnstile runs show 3f9a
  turnstile runs show 3f9a --messages
  turnstile runs show 3f9a --json | jq .path

Of each tool call it says: finished, not run, started, open (not begun), or in doubt (begun, and nobody knows how it
ended).
"""
EXPORT_EXAMPLES = """Examples:

\b
  turnstile runs export 3f9a -o run.jsonl
  turnstile runs export --all -o runs.jsonl
  turnstile replay run.jsonl

A line of JSON for each record, byte for byte as it is stored. Of a damaged run the damaged record is named, all that is
there is written, and the exit status is 1.
"""
DELETE_EXAMPLES = """Examples:

\b
  turnstile runs delete 3f9a 77c0
  turnstile runs delete 3f9a --yes                 asks nothing, as a script needs it
"""
AUDIT_EXAMPLES = """Examples:

\b
  turnstile runs audit                             all runs, and the file that keeps them
  turnstile runs audit 3f9a

Checks the hash chain of each journal, that each record takes the row that it took, that each request can be made again,
and that the journal comes to what the list says. When something is wrong it names the record, and the exit status is 1.
"""
REPLAY_EXAMPLES = """Examples:

\b
  turnstile replay 3f9a
  turnstile replay run.jsonl                       an exported run, with no store at all
  turnstile replay 3f9a --agent my_module:agent    also tells what is different about the agent now
  turnstile replay 3f9a --requests | jq -r '.messages[-1].text'

No model is asked, no tool runs. The exit status is 1 when the run would go another way now.
"""
FORK_EXAMPLES = """Examples:

\b
  turnstile fork 3f9a --at 3 --model openai:gpt-5
  turnstile fork 3f9a --at 0 --prompt "Rather in spring"
  turnstile fork 3f9a --at 2 --result call_1_1="rain, 8 °C"

The new run shares the transitions up to SEQ (`turnstile runs show` numbers them), and goes on from there. A tool call
that was begun by then is never run again.
"""
DIFF_EXAMPLES = """Examples:

\b
  turnstile diff 3f9a 77c0
  turnstile diff 3f9a 77c0 --json | jq .figures
"""

runs_app = group("runs", "The stored runs.", RUNS_EXAMPLES)

Limit = Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many runs at most.")]
Before = Annotated[str | None, typer.Option(metavar="ID", help="Only runs that began before this one.")]
OfSession = Annotated[str | None, typer.Option("--session", metavar="NAME", help="Only runs of this conversation.")]
Live = Annotated[bool, typer.Option("--live", help="Only runs that have not ended.")]
Messages = Annotated[bool, typer.Option("--messages", help="Show the conversation, too.")]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to; without it, standard output.")
]
Every = Annotated[bool, typer.Option("--all", help="All runs of the store.")]
SomeRun = Annotated[
    str | None,
    typer.Argument(metavar="ID", help="A run, by its id or the beginning.", autocompletion=options.complete_run),
]
SomeRuns = Annotated[list[str], typer.Argument(metavar="ID...", help="Runs.", autocompletion=options.complete_run)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")]
RunOrFile = Annotated[
    str,
    typer.Argument(metavar="ID|FILE", help="A stored run, or an exported file.", autocompletion=options.complete_run),
]
Compared = Annotated[
    str | None,
    typer.Option("--agent", metavar="AGENT", help="An agent to compare with.", autocompletion=options.complete),
]
Requests = Annotated[bool, typer.Option("--requests", help="A line of JSON for each request that was sent.")]
At = Annotated[int, typer.Option(min=0, metavar="SEQ", help="The last transition to share; 0 for none.")]
OtherPrompt = Annotated[str | None, typer.Option(metavar="TEXT", help="Ask this instead.")]
Results = Annotated[
    list[str] | None, typer.Option("--result", metavar="CALL=TEXT", help="Let this call have given that instead.")
]
GoingOn = Annotated[
    str | None,
    typer.Option(
        "--agent", metavar="AGENT", help="What goes on; without it the run's own.", autocompletion=options.complete
    ),
]
Accept = Annotated[bool, typer.Option("--accept-changes", help="Go on though the agent is not what it was.")]


@runs_app.command("list", epilog=RUNS_LIST_EXAMPLES)
def runs_list(
    *,
    limit: Limit = 20,
    before: Before = None,
    session: OfSession = None,
    live: Live = False,
    store: options.StoreRead = None,
    json: options.AsJson = False,
) -> None:
    """List stored runs, the newest first."""
    from turnstile.cli import runs

    runs.list_runs(store, runs.Wanted(limit, before, session, live), as_json=json)


@runs_app.command("show", epilog=SHOW_EXAMPLES)
def runs_show(
    run: options.StoredRun,
    *,
    messages: Messages = False,
    agent: options.OfAgent = None,
    store: options.StoreRead = None,
    json: options.AsJson = False,
) -> None:
    """Show a run's path and its tool calls."""
    from turnstile.cli import showing

    showing.show(run, store, agent, as_json=json, messages=messages)


@runs_app.command("export", epilog=EXPORT_EXAMPLES)
def runs_export(
    run: SomeRun = None, *, every: Every = False, output: Output = None, store: options.StoreRead = None
) -> None:
    """Write a run as lines of JSON, exactly as it is stored."""
    from turnstile.cli import runs

    raise typer.Exit(runs.export(run, store, output, every=every))


@runs_app.command("delete", epilog=DELETE_EXAMPLES)
def runs_delete(run_ids: SomeRuns, *, yes: Yes = False, store: options.StoreRead = None) -> None:
    """Forget runs, for good."""
    from turnstile.cli import runs

    raise typer.Exit(runs.delete(run_ids, store, yes=yes))


@runs_app.command("audit", epilog=AUDIT_EXAMPLES)
def runs_audit(run: SomeRun = None, *, agent: options.OfAgent = None, store: options.StoreRead = None) -> None:
    """Check that runs are as they were written."""
    from turnstile.cli import runs

    raise typer.Exit(runs.audit(run, store, agent))


def replay(
    run: RunOrFile,
    *,
    agent: Compared = None,
    requests: Requests = False,
    store: options.StoreRead = None,
    json: options.AsJson = False,
) -> None:
    """Make a run again from its journal alone."""
    from turnstile.cli import replaying

    raise typer.Exit(replaying.replay_runs(run, store, agent, as_json=json, requests=requests))


def fork(
    run: options.StoredRun,
    *,
    at: At,
    model: options.Model = None,
    prompt: OtherPrompt = None,
    result: Results = None,
    agent: GoingOn = None,
    accept_changes: Accept = False,
    store: options.StoreRead = None,
    json: options.AsJson = False,
    log_json: options.LogJson = None,
    log_content: options.LogContent = False,
    quiet: options.Quiet = False,
) -> None:
    """Run again from within a run, changed."""
    from turnstile.cli import forking

    settings = Settings(model, store, None, None, json or log_json == "-", log_json, log_content, quiet)
    edits = forking.Edits(at, prompt, tuple(result or ()), accept_changes)
    raise typer.Exit(forking.fork_run(run, edits, agent, settings))


def diff(
    left: Annotated[str, typer.Argument(metavar="A", help="A run.", autocompletion=options.complete_run)],
    right: Annotated[str, typer.Argument(metavar="B", help="Another.", autocompletion=options.complete_run)],
    *,
    agent: options.OfAgent = None,
    store: options.StoreRead = None,
    json: options.AsJson = False,
) -> None:
    """Show where two runs part, and what each took."""
    from turnstile.cli import comparing

    comparing.compare(left, right, store, agent, as_json=json)


def add_to(app: typer.Typer) -> None:
    """Give the command line these commands."""
    app.add_typer(runs_app)
    app.command(epilog=REPLAY_EXAMPLES)(replay)
    app.command(epilog=FORK_EXAMPLES)(fork)
    app.command(epilog=DIFF_EXAMPLES)(diff)
