"""The options that commands share, as typer reads them, and `Settings`: what came of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from turnstile.cli.installed import complete, complete_run

AgentName = Annotated[
    str,
    typer.Argument(
        metavar="AGENT",
        help="An agent of your own as module:attribute (the current folder is importable), or an installed one's name.",
        autocompletion=complete,
    ),
]
SomeAgentName = Annotated[
    str | None,
    typer.Argument(metavar="AGENT", help="As module:attribute, or an installed one's name.", autocompletion=complete),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="PROVIDER:NAME",
        help="Which model to ask. Without it: the agent's own, else $TURNSTILE_MODEL, else that of the first provider "
        "whose key is in the environment, else an installed agent's scripted offline model.",
    ),
]
StoreFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Keep runs in this file; in `memory` they end with the process. Without it: a store that the agent "
        "brings, else $TURNSTILE_DB, else runs.db in your folder for state.",
    ),
]
StoreRead = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="The file that keeps runs. Without it: $TURNSTILE_DB, else your own runs.db.",
    ),
]
StoredRun = Annotated[
    str, typer.Argument(metavar="ID", help="A run, by its id or the beginning of it.", autocompletion=complete_run)
]
OfAgent = Annotated[
    str | None,
    typer.Option(
        "--agent", metavar="AGENT", help="The run's agent, if its machine is its own.", autocompletion=complete
    ),
]
Session = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Begin the conversation of this name, or go on with it if the store has it."),
]
MaxTurns = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Model replies that a run may take, in place of the agent's.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer with one line of JSON.")]
LogJson = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|-",
        help="Append a line of JSON for each transition to this file. With `-` the lines go to standard output, and "
        "the answer is JSON, too.",
    ),
]
LogContent = Annotated[
    bool, typer.Option("--log-content", help="Let the log hold prompts, arguments and results, too.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Only answers and errors: no model, no progress, no summary.")
]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the shared options say; each attribute is the option of that name."""

    model: str | None = None
    store: str | None = None
    session: str | None = None
    max_turns: int | None = None
    json: bool = False
    log_json: str | None = None
    log_content: bool = False
    quiet: bool = False
