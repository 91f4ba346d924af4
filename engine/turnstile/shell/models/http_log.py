"""`guard_log`: keeps what is secret out of what the HTTP library itself logs.

At the level DEBUG httpcore, which speaks to proxies, logs the headers of every answer, and a server may echo a key in
one: in the address that it redirects to, in an id of the request. Whoever turns that level on wants to see the rest.
"""

from __future__ import annotations

import logging
from weakref import WeakSet

from turnstile.shell.models.redaction import Redactor

LOGGERS = ("httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy", "httpcore.socks")
_LONGEST = 2000  # characters of a record: more than the headers of any answer that is worth a look


class _Guard(logging.Filter):
    """Cleans each record by all redactors that are in use."""

    def __init__(self) -> None:
        super().__init__()
        self.redactors: WeakSet[Redactor] = WeakSet()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let the record pass, without secrets."""
        message = record.getMessage()
        for clean in tuple(self.redactors):
            message = clean(message, longest=_LONGEST)
        record.msg, record.args = message, ()
        return True


_guard = _Guard()


def guard_log(clean: Redactor) -> None:
    """Clean the HTTP library's log by a redactor, for as long as that is in use."""
    _guard.redactors.add(clean)
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_guard)  # a filter that is there already is not added again
