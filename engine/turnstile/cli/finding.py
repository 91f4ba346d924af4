"""Finding the agent that a command names: ``module:attribute``, or the name of an installed one."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from turnstile.agent import Agent
from turnstile.cli.faults import Misuse, nearest
from turnstile.cli.installed import installed
from turnstile.cli.screen import prints_aside
from turnstile.ports import ModelClient

OFFLINE = "offline_model"
"""The attribute by which an installed agent's module offers a scripted model: a client, or what makes one."""
PREFERS = "PREFERS"
"""The attribute by which an installed agent's module names the provider that is looked for before the others."""


@dataclass(frozen=True, slots=True)
class Found:
    """An agent, as a command found it.

    Attributes:
        agent: The agent.
        name: What the user called it.
        offline: Makes its scripted model; ``None`` when it has none, or is not an installed agent.
        prefers: The provider whose key is looked for before the others; empty for none.
    """

    agent: Agent[Any]
    name: str
    offline: Callable[[], ModelClient] | None = None
    prefers: str = ""


def find(name: str) -> Found:
    """The agent that a user means.

    Raises:
        Misuse: There is none, or what is there is no agent.
    """
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        return Found(_agent(_own_module(module_name, name), attribute, name), name)
    points = installed()
    if name not in points:
        hint = nearest(name, points) or f"the installed ones are {', '.join(points) or 'none'}"
        raise Misuse(f"no agent {name!r}; {hint} (an agent of your own is named as module:attribute)")
    module = _load(points[name].module, f"agent {name!r}")
    return Found(_agent(module, points[name].attr, name), name, _offline(module), getattr(module, PREFERS, ""))


def _offline(module: ModuleType) -> Callable[[], ModelClient] | None:
    offered: Any = getattr(module, OFFLINE, None)
    if offered is None or not hasattr(offered, "reply"):
        return cast("Callable[[], ModelClient] | None", offered)
    return lambda: cast("ModelClient", offered)


def _own_module(module_name: str, name: str) -> ModuleType:
    if module_name.endswith(".py") or not all(part.isidentifier() for part in module_name.split(".")):
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        hint = f"{dotted}:{name.partition(':')[2]}" if dotted else "module:attribute"
        raise Misuse(f"{module_name!r} in {name!r} is not a module's name; write {hint}, as an import would")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return _load(module_name, repr(name))


def _load(module_name: str, what: str) -> ModuleType:
    try:
        with prints_aside():
            return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            where = f"neither in {str(Path.cwd())!r} nor among what is installed"
            raise Misuse(f"no module {missing!r} for {what}: it is {where}; check the name and the folder") from error
        if "." in missing:  # a part that an installed package lacks: what is wrong is the import
            raise Misuse(f"{what} cannot be loaded: {_raised(error)}; mend the module and try again") from error
        way_out = "install it (`pip install 'turnstile-agent[all]'` brings what the bundled agents need)"
        raise Misuse(f"{what} needs the module {missing!r}, which is not installed; {way_out}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Misuse(f"{what} cannot be loaded: {_raised(error)}; mend the module and try again") from error


def _raised(error: BaseException) -> str:
    """An error and the line it came from, without the traceback; making its text may fail as well."""
    if isinstance(error, SyntaxError):
        file, line, text = error.filename, error.lineno, error.msg
    else:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        file, line, text = frame.filename, frame.lineno, _text_of(error, str)
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{what} ({Path(file or '?').name}, line {line})"


def _text_of(value: object, way: Callable[[object], str]) -> str:
    """An object of the user's as text; empty when its own code, which makes that, fails."""
    try:
        return way(value)
    except Exception:  # noqa: BLE001 - whatever it is, what there is to say does not depend on it
        return ""


def _agent(module: ModuleType, attribute: str, name: str) -> Agent[Any]:
    value: object = module
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            hint = _agents_of(module, attribute)
            raise Misuse(f"module {module.__name__!r} has no {attribute!r}; {hint}") from error
        except Exception as error:
            raise Misuse(f"{name!r} cannot be read: {_raised(error)}; mend the module and try again") from error
    if not isinstance(value, Agent):
        what = f"{type(value).__name__} {_text_of(value, repr):.60}".rstrip()
        raise Misuse(f"{name!r} is no Agent but the {what}; {_agents_of(module, attribute)}")
    return value


def _agents_of(module: ModuleType, attribute: str) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Agent)]
    if not names:
        return "the module holds no agent: assign one, such as agent = Agent(…), and name it as module:agent"
    return nearest(attribute, names) or f"its agents are {', '.join(names)}"
