"""What the offline scripts share: how they read a conversation, ask for tools, and speak the user's language.

A script is a function from a `Talk` to what is said next, and remembers nothing from one request to the next. It names
the calls whose results it wants; while one of them has no result it makes those calls, and then it writes its answer
from what the tools returned. So it goes on from wherever a run stands: after a restart, or after words from the side.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from turnstile import Exchange, ToolCall, ToolResult, UserTurn
from turnstile.testing import ScriptedModel
from turnstile_tools.cities import city_names

Said = str | list[ToolCall]
Script = Callable[["Talk"], Said]

MOST_READ = 1000  # characters of a message; people ask in fewer, and looking for a phrase in a book takes its time

_HAN = re.compile(r"[\u4e00-\u9fff]")
_LATIN = re.compile(r"[A-Za-z]")
_LETTER = re.compile(r"[^\W\d_]")


def scripted(name: str, script: Script) -> ScriptedModel:
    """A model without a server that says what the script says."""
    return ScriptedModel(lambda request: script(Talk(request.items, request.tools_on)), name=f"offline:{name}")


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation as a script reads it.

    Attributes:
        items: What was said so far.
        tools_on: Whether calls may be made.
    """

    items: Sequence[UserTurn | Exchange]
    tools_on: bool = True

    @property
    def asked(self) -> list[str]:
        """What the user wants answered now, oldest first: several texts when some came in while tools ran."""
        return _texts(self.items[self._begin :])

    @property
    def asked_before(self) -> list[str]:
        """What the user said before that, oldest first."""
        return _texts(self.items[: self._begin])

    @property
    def is_chinese(self) -> bool:
        """Whether the newest text with any letters is Chinese."""
        return next((is_chinese(text) for text in reversed(_texts(self.items)) if _LETTER.search(text)), False)

    def says(self, english: str, chinese: str) -> str:
        """The text in the user's language."""
        return chinese if self.is_chinese else english

    def lacks(self, calls: Sequence[ToolCall]) -> list[ToolCall]:
        """Those of the calls that are still to be made, each once; none while tools are off."""
        made = self._results
        return (
            [each for each in dict.fromkeys(calls) if (each.name, each.arguments) not in made] if self.tools_on else []
        )

    def result(self, call: ToolCall) -> ToolResult:
        """What a call came to."""
        missing = ToolResult(call.id, call.name, f"{call.name} was not run, since tools are off", "not_run")
        return self._results.get((call.name, call.arguments), missing)

    def facts(self, call: ToolCall) -> Any:  # noqa: ANN401 - the tools' typed dictionaries say what is in it
        """The object that a call returned; None when it returned a text, failed or was not made."""
        result = self.result(call)
        return json.loads(result.content) if result.status == "ok" and result.content.startswith("{") else None

    def last(self, tool: str) -> str:
        """What a tool returned last, before this question; empty when it returned nothing yet."""
        results = [
            result for item in self.items[: self._begin] if isinstance(item, Exchange) for result in item.results
        ]
        return next((each.content for each in reversed(results) if each.name == tool and each.status == "ok"), "")

    @property
    def _results(self) -> dict[tuple[str, str], ToolResult]:
        """What the calls of this question came to, by tool and arguments."""
        exchanges = [item for item in self.items[self._begin :] if isinstance(item, Exchange)]
        pairs = [pair for item in exchanges for pair in zip(item.reply.calls, item.results, strict=True)]
        return {(call.name, call.arguments): result for call, result in pairs}

    @property
    def _begin(self) -> int:
        """Where the question begins: after the last answer, or after a run that ended among its calls."""
        newest = max((place for place, item in enumerate(self.items) if _is_question(item)), default=0)
        for place in range(newest - 1, -1, -1):
            item = self.items[place]
            if isinstance(item, Exchange) and not (item.results and all(map(_was_run, item.results))):
                return place + 1
        return 0


def is_chinese(text: str) -> bool:
    """Whether a text is in Chinese: Han characters other than cities' names, or nothing but such names."""
    beside_names = _HAN.search(city_names().sub("", text))
    return beside_names is not None or (_HAN.search(text) is not None and not _LATIN.search(text))


def _is_question(item: UserTurn | Exchange) -> bool:
    return isinstance(item, UserTurn) and not item.synthetic


def _texts(items: Sequence[UserTurn | Exchange]) -> list[str]:
    return [item.text[:MOST_READ] for item in items if isinstance(item, UserTurn) and not item.synthetic]


def _was_run(result: ToolResult) -> bool:
    return result.status in {"ok", "error"}
