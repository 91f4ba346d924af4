"""`Job`: an agent with all that a command's options say of its runs: model, store, log and limits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from turnstile.agent import Agent
from turnstile.cli.faults import Misuse
from turnstile.cli.finding import Found, find
from turnstile.cli.options import Settings
from turnstile.cli.progress import Progress
from turnstile.cli.screen import Screen
from turnstile.cli.storing import MEMORY, file_store, path_of
from turnstile.cli.unsaved import WatchedStore, told
from turnstile.core.errors import ModelNotFound, StoreError
from turnstile.models import first_available
from turnstile.options import RunOptions
from turnstile.ports import ModelClient, Observer, Store
from turnstile.stores import MemoryStore

if TYPE_CHECKING:
    from turnstile.log import JsonLog


@dataclass(frozen=True, slots=True)
class Choice:
    """Which models a run asks, the first choice first, and why those."""

    models: tuple[ModelClient, ...]
    why: str

    def __str__(self) -> str:
        return f"model: {', then '.join(client.name for client in self.models)} ({self.why})"


def choose(found: Found, wanted: str | None, environment: Mapping[str, str]) -> Choice:
    """The models to ask: the one wanted, else the agent's own, the environment's, or an installed agent's scripted one.

    Raises:
        ModelNotFound: There is none, or its provider or key is unknown.
    """
    agent = found.agent
    if wanted is not None:
        if not wanted.strip():
            raise Misuse("--model is empty; name one as provider:name, or leave the option out")
        return Choice(agent.clients(wanted), "--model")
    if agent.model is not None:
        return Choice(agent.clients(), "the agent's own")
    if environment.get("TURNSTILE_MODEL"):
        return Choice(agent.clients(environment["TURNSTILE_MODEL"]), "$TURNSTILE_MODEL")
    try:
        model, reason = first_available(environment, prefer=found.prefers)
    except ModelNotFound:
        if found.offline is None:
            raise
        return Choice((found.offline(),), "scripted and offline, since no model is named and no provider's key is set")
    return Choice(agent.clients(model), reason)


class Job:
    """An agent, ready to run as the options say.

    Attributes:
        agent: The agent.
        settings: The options.
        screen: Where words go.
        models: What its runs ask.
        kept_in: Where its runs are kept, for people; empty when they end with the process.
    """

    def __init__(self, found: Found, choice: Choice, settings: Settings, screen: Screen) -> None:
        self.agent: Agent[Any] = copy(found.agent)  # the one found is its module's own, and stays as it is
        self.agent.origin = found.name
        self.settings = settings
        self.screen = screen
        self.models = choice.models
        self._limits = self.agent.limits
        if settings.max_turns is not None:
            self._limits = replace(self._limits, turns=settings.max_turns)
        self._store, self.kept_in = _store_of(self.agent, settings.store)
        self._watched = self.agent.store = WatchedStore(self._store)
        self._log = _log(settings)

    @property
    def streams(self) -> bool:
        """Whether text may be shown while it is written: when the answer is text, and not wanted as JSON."""
        return not self.settings.json and self.agent.output.is_text

    def options(self, *observers: Observer, session: str | None) -> RunOptions:
        """What each run is given besides its prompt."""
        logs = (self._log,) if self._log else ()
        return RunOptions(model=self.models, limits=self._limits, observers=(*logs, *observers), session=session)

    @property
    def lost_log(self) -> str:
        """What to tell of a log that ends too early; empty while it is whole."""
        if self._log is None or self._log.failure is None:
            return ""
        reason = self._log.failure.strerror
        return f"the log {self.settings.log_json!r} ends before the run does: {reason}; send it to a file with room"

    @contextmanager
    def tells_unsaved(self, progress: Progress) -> Iterator[None]:
        """While entered, show what a run brought last, if the store cannot keep it: the run ends there."""
        try:
            yield
        except StoreError:
            unsaved = told(self._watched.unsaved, progress.written)
            if unsaved:
                self.screen.warn(unsaved)
            raise

    async def aclose(self) -> None:
        """Let go of connections, the store and the log."""
        for client in self.models:
            await client.aclose()
        close_store = getattr(self._store, "aclose", None)
        if close_store is not None:
            await close_store()
        if self._log:
            self._log.close()


def prepare(name: str, settings: Settings, screen: Screen) -> Job:
    """Find the agent, choose its model, say which and why, and open what is asked for.

    Raises:
        TurnstileError: Something is missing or cannot be opened; nothing has been asked of a model yet.
    """
    if settings.session is not None and not settings.session.strip():
        raise Misuse("--session is empty; name the conversation, or leave the option out")
    if settings.log_content and settings.log_json is None:
        raise Misuse("--log-content says what the log holds, and there is none; add --log-json FILE")
    found = find(name)
    choice = choose(found, settings.model, os.environ)
    job = Job(found, choice, settings, screen)
    screen.say(str(choice))
    if settings.session is not None and not job.kept_in:
        screen.say(f"note: session {settings.session!r} is kept in memory and ends with this process")
    return job


def _store_of(agent: Agent[Any], wanted: str | None) -> tuple[Store, str]:
    """The store of an agent's runs and where that is, for people; empty when it ends with the process.

    That is what ``--store`` names, else a store that the agent brings, else the user's file.
    """
    if wanted == MEMORY:
        return MemoryStore(), ""
    if wanted is None and type(agent.store) is not MemoryStore:  # an agent that names no store has one in memory
        return agent.store, "" if isinstance(agent.store, MemoryStore) else "the agent's own store"
    return file_store(wanted, agent.machine), str(path_of(wanted))


def _log(settings: Settings) -> JsonLog | None:
    if settings.log_json is None:
        return None
    from turnstile.log import JsonLog

    return JsonLog(settings.log_json, content=settings.log_content)
