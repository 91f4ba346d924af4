"""What a docstring says of a function, and what of each of its parameters, in Google's, NumPy's or Sphinx's way.

What doesn't describe a parameter stays in the text, every other section included: a warning is for the model too.
(The parsers on PyPI keep only the sections that they know, and give up a whole section for one odd line.)
"""

from __future__ import annotations

import inspect
import re
from collections import deque

_GOOGLE = re.compile(r"(?:Args|Arguments|Parameters|Params):\s*$")
_GOOGLE_ENTRY = re.compile(r"(?P<names>\w+)\s*(?:\(.*?\)\s*)?:(?:\s+(?P<text>.*))?$")
_NUMPY = re.compile(r"Parameters\s*$")
_NUMPY_ENTRY = re.compile(r"(?P<names>\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_UNDERLINE = re.compile(r"-{3,}\s*$")
_SPHINX = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?(?P<names>\w+):\s*(?P<text>.*)$")
_SPHINX_TYPE = re.compile(r":type\s+\w+:")


class Docstring:
    """A docstring, taken apart.

    Attributes:
        text: What it says of the function.
        parameters: What it says of each parameter.
    """

    def __init__(self, docstring: str) -> None:
        self.parameters: dict[str, str] = {}
        self._lines = deque(inspect.cleandoc(docstring).splitlines())
        kept: list[str] = []
        while self._lines:
            line = self._lines.popleft()
            if _GOOGLE.match(line):
                kept += self._google()
            elif _NUMPY.match(line) and self._lines and _UNDERLINE.match(self._lines[0]):
                self._lines.popleft()
                self._numpy()
            elif entry := _SPHINX.match(line):
                self._add(entry, self._indented())
            elif _SPHINX_TYPE.match(line):
                self._indented()  # the type hint says it better
            else:
                kept.append(line)
        self.text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()

    def _google(self) -> list[str]:
        """Read the indented lines of a section, and give back those that belong to no parameter."""
        section = deque(inspect.cleandoc("\n" + "\n".join(self._indented())).splitlines())
        stray: list[str] = []
        while section:
            line = section.popleft()
            entry = _GOOGLE_ENTRY.match(line)
            if entry is None:
                stray.append(line)
                continue
            more: list[str] = []
            while section and not _GOOGLE_ENTRY.match(section[0]):
                more.append(section.popleft())
            self._add(entry, more)
        return stray

    def _numpy(self) -> None:
        """Read the entries of a section, up to the next one's title."""
        while self._lines:
            entry = _NUMPY_ENTRY.match(self._lines[0])
            if self._lines[0] and (entry is None or (len(self._lines) > 1 and _UNDERLINE.match(self._lines[1]))):
                return
            self._lines.popleft()
            if entry is not None:
                self._add(entry, self._indented())

    def _indented(self) -> list[str]:
        """Take the lines that are indented, and the blank ones between and after them."""
        taken: list[str] = []
        while self._lines and (not self._lines[0] or self._lines[0][0].isspace()):
            taken.append(self._lines.popleft())
        if taken and not taken[-1]:
            self._lines.appendleft("")  # what follows stays a paragraph of its own
        return taken

    def _add(self, entry: re.Match[str], more: list[str]) -> None:
        first = entry.groupdict().get("text") or ""
        words = " ".join(" ".join([first, *more]).split())
        for name in entry["names"].split(","):
            self.parameters[name.strip()] = words
