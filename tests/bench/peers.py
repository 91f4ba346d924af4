"""The contenders: what each is, its pinned packages, and a virtual environment of its own.

Stays with the standard library, as does everything that runs outside of these environments.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = HERE / ".venvs"


@dataclass(frozen=True)
class Peer:
    """A contender.

    Attributes:
        name: Its module in `contenders`, and the folder of its environment.
        title: Its name in the tables.
        packages: What its environment holds, pinned; pip brings what these need.
        is_framework: Whether it brings model clients and tools, as an agent framework does.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    is_framework: bool = False

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return ENVIRONMENTS / self.name / "bin" / "python"


SNIFFIO = "sniffio==1.3.1"  # without it httpcore tries to import it on every call, and is up to 1.9 times slower

PEERS = {
    peer.name: peer
    for peer in (
        Peer("turnstile", "Turnstile", ("--editable", str(ROOT))),
        Peer("bare", "bare loop", ("httpx==0.28.1", SNIFFIO)),
        Peer(
            "langgraph",
            "LangGraph",
            ("langgraph==1.2.24", "langchain-openai==1.7.4", "langgraph-checkpoint-sqlite==3.1.2"),
            is_framework=True,
        ),
        Peer("pydantic_ai", "Pydantic AI", ("pydantic-ai-slim[openai]==2.68.0",), is_framework=True),
        Peer("openai_agents", "OpenAI Agents", ("openai-agents==0.24.0", "openai==3.57.0"), is_framework=True),
        Peer("burr", "Burr", ("apache-burr==0.43.0", "httpx==0.28.1", SNIFFIO)),
        Peer("smolagents", "smolagents", ("smolagents[openai]==1.26.0",), is_framework=True),
    )
}

QUICK = ("turnstile", "bare")
"""The contenders of the quick bench; they are also measured where the others would take minutes."""

PLOT = Peer("plot", "plot", ("matplotlib==3.11.2",))
"""Not a contender: what draws the plot."""


def make_environment(peer: Peer) -> None:
    """Make a peer's environment, unless it holds just these packages already."""
    declared = (ROOT / "pyproject.toml").read_text() if "--editable" in peer.packages else ""
    wanted = "\n".join((sys.version, *peer.packages, declared))
    stamp = ENVIRONMENTS / peer.name / "packages.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"making the environment of {peer.title} …", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENTS / peer.name], check=True)
    pip = ("-m", "pip", "install", "-qq", "--disable-pip-version-check")
    subprocess.run([peer.python, *pip, *peer.packages], check=True)
    stamp.write_text(wanted)
