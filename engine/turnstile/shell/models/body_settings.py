"""What a user set for every request, checked and encoded alike for each wire."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from turnstile.core.errors import ConfigurationError
from turnstile.core.strict_json import JsonValue
from turnstile.shell.models.json_text import dumps

LIMITS = ("max_tokens", "max_completion_tokens")
"""The names under which users give the most tokens of a reply."""


def checked(settings: Mapping[str, JsonValue], ours: AbstractSet[str]) -> dict[str, JsonValue]:
    """The settings, unless one of them is the engine's own or makes no sense.

    Args:
        settings: What the user set.
        ours: Keys that the engine writes.

    Raises:
        ConfigurationError: One of them cannot be sent.
    """
    if taken := ours & settings.keys():
        msg = f"settings may not hold {sorted(taken)}: the engine writes them; got {sorted(settings)}"
        raise ConfigurationError(msg)
    for name in LIMITS:
        if (limit := settings.get(name, 1)) is not None and (type(limit) is not int or limit < 1):
            msg = f"the setting {name} is a whole number above 0; got {limit!r}"
            raise ConfigurationError(msg)
    return dict(settings)


def encoded(settings: JsonValue) -> bytes:
    """The settings as JSON.

    Raises:
        ConfigurationError: They are none.
    """
    try:
        return dumps(settings)
    except (TypeError, ValueError) as error:
        msg = f"settings must be JSON, such as {{'temperature': 0}}: {error}"
        raise ConfigurationError(msg) from None
