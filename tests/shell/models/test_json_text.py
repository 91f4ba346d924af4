"""JSON of the wire: what is read faster is read as strictly."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnstile.core.errors import InvalidJSON
from turnstile.core.strict_json import MAX_DEPTH, JsonValue, loads
from turnstile.shell.models.json_text import read

VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.builds(json.dumps, VALUES, ensure_ascii=st.booleans(), indent=st.sampled_from([None, 1])) | st.text(
    st.sampled_from('{}[]",:\\u03aeE+-10 ntf'), max_size=30
)


def outcome(text: str, *, strictly: bool) -> str:
    """What is read, with its types, or why nothing is."""
    try:
        return repr(loads(text) if strictly else read(text))
    except InvalidJSON as error:
        return f"refused: {error}"


@given(TEXTS)
@example('{"a": 1, "a": 2}')
@example(r'{"a": "\u003a", "a": 2}')  # the key that is lost would make up for the colon that is hidden
@example(r'{"a": 1, "\u0061": 2}')
@example("18446744073709551616")
@example("-9223372036854775809")
@example("1" + "0" * 400)
@example("1e999")
@example("NaN")
@example(r'"\ud800"')
@example("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
@example("[" + "1," * 40_000 + "1]")
def test_a_text_means_what_the_strict_decoder_reads(text: str) -> None:
    """No server may get past the strict decoder by way of the fast one, nor be refused by it alone."""
    assert outcome(text, strictly=False) == outcome(text, strictly=True)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_what_servers_send_is_read(separators: tuple[str, str]) -> None:
    """Compact or not, with colons and escapes in what is said."""
    chunk: JsonValue = {"choices": [{"index": 0, "delta": {"content": 'so: "é"\n🌍'}, "finish_reason": None}]}
    assert read(json.dumps(chunk, separators=separators)) == chunk
