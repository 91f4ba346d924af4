"""The bench: ours and its peers on the same work, in interleaved rounds, written as JSON, Markdown and a plot.

Usage: ``python run.py [--quick] [--only SECTION,…] [--contenders NAME,…]``. A whole run writes ``results/bench.*``, a
quick one ``results/quick.*``, and any other ``results/partial.*``. ``python run.py --profile`` measures nothing beside
anything: it shows where a turn of ours spends its time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import asdict

from measures import SECTIONS, Effort, Measures
from peers import HERE, PEERS, PLOT, QUICK, make_environment
from processes import ENVIRONMENT, ModelServer, note
from report import Bench, markdown

FULL = Effort(rounds=5, slow=3)
FAST = Effort(rounds=3, slow=1)
SHOWN = ("turnstile-agent", "transitions", "structlog", "orjson", "pydantic", "httpx", "httpx2", "openai", "langgraph",
         "langchain-core", "pydantic-ai-slim", "openai-agents", "apache-burr", "smolagents")  # fmt: skip


def main() -> None:
    """Measure, write, print."""
    options = _options()
    if options.profile:
        make_environment(PEERS["turnstile"])
        subprocess.run([PEERS["turnstile"].python, HERE / "profile_turn.py"], env=ENVIRONMENT, check=True)
        return
    contenders = options.contenders or list(QUICK if options.quick else PEERS)
    for contender in contenders:
        make_environment(PEERS[contender])
    bench = _measured(contenders, options.only, FAST if options.quick else FULL)
    is_whole = options.only == list(SECTIONS)
    name = "bench" if is_whole and len(contenders) == len(PEERS) and not options.quick else "partial"
    target = HERE / "results" / ("quick" if options.quick and is_whole else name)
    target.parent.mkdir(exist_ok=True)
    target.with_suffix(".json").write_text(json.dumps(asdict(bench), indent=1, ensure_ascii=False) + "\n")
    page = markdown(bench)
    target.with_suffix(".md").write_text(page)
    if name == "bench":
        make_environment(PLOT)
        plot = [PLOT.python, HERE / "plot.py", target.with_suffix(".json"), target.with_suffix(".svg")]
        subprocess.run(plot, check=True)
    print(page)


def _measured(contenders: list[str], sections: list[str], effort: Effort) -> Bench:
    with ModelServer() as server:
        measures = Measures(contenders, effort, server.url)
        try:
            for section in sections:
                note(f"{section}, load {os.getloadavg()[0]:.1f}")
                getattr(measures, section)()
        finally:
            measures.close()
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    return Bench(measures.table, machine, {contender: _versions(contender) for contender in contenders})


def _versions(contender: str) -> str:
    """The packages of a contender's environment that bear on the figures."""
    listing = ("-m", "pip", "list", "--format=json", "--disable-pip-version-check")
    done = subprocess.run(
        [PEERS[contender].python, *listing], env=ENVIRONMENT, check=True, capture_output=True, text=True
    )
    found = {package["name"].lower().replace("_", "-"): package["version"] for package in json.loads(done.stdout)}
    return ", ".join(f"{name} {found[name]}" for name in SHOWN if name in found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Turnstile beside its peers.")
    parser.add_argument("--quick", action="store_true", help="ours and the bare loop alone, with fewer repeats")
    parser.add_argument("--profile", action="store_true", help="show where a turn of ours spends its time instead")
    parser.add_argument("--only", type=_names(SECTIONS), default=list(SECTIONS), help=", ".join(SECTIONS))
    parser.add_argument("--contenders", type=_names(PEERS), default=[], help=", ".join(PEERS))
    return parser.parse_args()


def _names(known: Iterable[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        given = text.split(",")
        if unknown := sorted(set(given) - set(known)):
            message = f"no such name: {', '.join(unknown)}; choose from {', '.join(known)}"
            raise argparse.ArgumentTypeError(message)
        return given

    return names


if __name__ == "__main__":
    main()
