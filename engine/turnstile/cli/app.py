"""The commands with their arguments and help; what a command does is loaded when it runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from turnstile.cli import live, options, stored
from turnstile.cli.entry import group
from turnstile.cli.options import Settings

EXAMPLES = """Examples:

\b
  turnstile run travel "4 days in October, nature and quiet small towns"
  turnstile run my_module:agent "What is due today?" --step
  turnstile chat assistant
  turnstile diagram --format svg -o machine.svg

`turnstile COMMAND --help` has more.
Exit status: 0 done, 1 failed run, 2 misuse, 3 waiting for a human, 130 interrupted.
"""
RUN_EXAMPLES = """Examples:

\b
  turnstile run travel "I'm in Shanghai, have 4 days off in October"
  turnstile run my_module:agent "…" --model openai:gpt-5-mini --max-turns 5
  turnstile run assistant "What time is it in Paris?" --step
  git diff | turnstile run reviewer:agent - --json | jq .output
  turnstile run mini "…" --log-json run.jsonl --diagram run.svg

The answer goes to standard output, all else to standard error.
Ctrl-C cancels the run and says what was kept (status 130); a second one leaves at once.
Keys of --step: Enter or blank takes one transition, w tells why it was not another, c runs on without keys;
q and Ctrl-D cancel the run, which has then failed (status 1).
"""
CHAT_EXAMPLES = """Examples:

\b
  turnstile chat assistant
  turnstile chat my_module:agent --session monday

Commands within: /tools, /why (explains the last run), /help, /exit.
Ctrl-C cancels a run and keeps the chat; Ctrl-D leaves.
"""
DIAGRAM_EXAMPLES = """Examples:

\b
  turnstile diagram                              the machine that every agent has, as Mermaid
  turnstile diagram my_module:agent --format dot
  turnstile diagram --format svg -o machine.svg
  turnstile diagram --run 3f9a -o run.png

`turnstile run … --diagram FILE` draws a run as it ends.
"""
LIST_EXAMPLES = """Examples:

\b
  turnstile {0} list
  turnstile {0} list --json | jq .
"""


app = group("turnstile", "Run LLM agents whose loop is a state machine: watched, stepped, drawn and logged.", EXAMPLES)
agents_app = group("agents", "The installed agents.", LIST_EXAMPLES.format("agents"))
tools_app = group("tools", "The tools of agents.", LIST_EXAMPLES.format("tools"))
models_app = group("models", "The models that can be asked.", LIST_EXAMPLES.format("models"))
for listed in (agents_app, tools_app, models_app):
    app.add_typer(listed)


class Format(StrEnum):
    """What a picture is written as."""

    mermaid = "mermaid"
    svg = "svg"
    png = "png"
    dot = "dot"


Prompt = Annotated[
    str | None, typer.Argument(metavar="PROMPT|-", help="What to say to the agent; `-` reads standard input.")
]
Version = Annotated[
    bool,
    typer.Option("--version", is_eager=True, callback=lambda wanted: wanted and _version(), help="Show the version."),
]
Step = Annotated[bool, typer.Option("--step", help="Stop before each transition, and go on at a key.")]
Drawn = Annotated[
    str | None, typer.Option(metavar="FILE", help="Draw the run as it ended, to FILE.mmd, .svg, .png or .dot.")
]
RunId = Annotated[
    str | None, typer.Option("--run", metavar="ID", help="Draw this run of the store, in place of a machine.")
]
WrittenAs = Annotated[
    Format | None, typer.Option("--format", help="What to write; without it what FILE ends with says, else mermaid.")
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to; without it, standard output.")
]


def _version() -> None:
    from importlib.metadata import version

    typer.echo(f"turnstile {version('turnstile-agent')}")
    raise typer.Exit


@app.callback()
def turnstile(*, version: Version = False) -> None:
    """Take the options that stand before any command."""


@app.command(epilog=RUN_EXAMPLES)
def run(
    agent: options.AgentName,
    prompt: Prompt = None,
    *,
    model: options.Model = None,
    store: options.StoreFile = None,
    session: options.Session = None,
    max_turns: options.MaxTurns = None,
    step: Step = False,
    diagram: Drawn = None,
    json: options.AsJson = False,
    log_json: options.LogJson = None,
    log_content: options.LogContent = False,
    quiet: options.Quiet = False,
) -> None:
    """Give an agent one prompt, and print its answer."""
    from turnstile.cli import running

    settings = Settings(model, store, session, max_turns, json or log_json == "-", log_json, log_content, quiet)
    raise typer.Exit(running.run(agent, prompt, settings, step=step, diagram=diagram))


@app.command(epilog=CHAT_EXAMPLES)
def chat(
    agent: options.AgentName,
    *,
    model: options.Model = None,
    store: options.StoreFile = None,
    session: options.Session = None,
    max_turns: options.MaxTurns = None,
    json: options.AsJson = False,
    log_json: options.LogJson = None,
    log_content: options.LogContent = False,
    quiet: options.Quiet = False,
) -> None:
    """Talk with an agent; it remembers what was said."""
    from turnstile.cli import chatting

    settings = Settings(model, store, session, max_turns, json or log_json == "-", log_json, log_content, quiet)
    raise typer.Exit(chatting.chat(agent, settings))


@app.command(epilog=DIAGRAM_EXAMPLES)
def diagram(
    agent: options.SomeAgentName = None,
    *,
    run: RunId = None,
    store: options.StoreRead = None,
    written_as: WrittenAs = None,
    output: Output = None,
) -> None:
    """Draw an agent's machine, or a run's way through it."""
    from turnstile.cli import drawing

    drawing.diagram(agent, run, store, written_as, output)


@agents_app.command("list", epilog=LIST_EXAMPLES.format("agents"))
def agents_list(*, json: options.AsJson = False) -> None:
    """List the installed agents."""
    from turnstile.cli import listing

    nothing = "no agents are installed; one of your own is named as module:attribute"
    listing.show(listing.agents(), as_json=json, nothing=nothing)


@tools_app.command("list", epilog=LIST_EXAMPLES.format("tools"))
def tools_list(agent: options.SomeAgentName = None, *, json: options.AsJson = False) -> None:
    """List the tools of an agent, or of all installed ones."""
    from turnstile.cli import listing

    listing.show(listing.tools(agent), as_json=json, nothing="no tools")


@models_app.command("list", epilog=LIST_EXAMPLES.format("models"))
def models_list(*, json: options.AsJson = False) -> None:
    """List the providers of models, and whose key is in the environment."""
    from turnstile.cli import listing

    listing.show(listing.models(), as_json=json, nothing="no providers")


live.add_to(app)
stored.add_to(app)
