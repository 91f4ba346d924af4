"""Secrets in text: what is replaced, and what stays."""

from __future__ import annotations

import pytest

from turnstile.core.redact import REDACTED, redact


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-0123456789abcdefABCDEF",
        "sk-ant-api03-abcdefghijkl",
        "gsk_0123456789abcdef",
        "ghp_0123456789abcdef",
        "xoxb-123456789-abcdef",
        "AIzaSyA0123456789abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ],
)
@pytest.mark.parametrize(
    "text", ["{}", "key {}, wrong", '{{"key": "{}"}}', "a\n{}\tb", "«{}»", r'{{"a": "b\n{}"}}', r"{{\"a\": \"{}\"}}"]
)
def test_what_looks_like_a_key_is_replaced(secret: str, text: str) -> None:
    """A key is found whatever it stands in, JSON in JSON included."""
    message = text.format(secret)

    assert redact(message) == message.replace(secret, REDACTED)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted]"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: [redacted]"),
        ('{"Authorization": "Bearer abcdef"}', '{"Authorization": "Bearer [redacted]"}'),
        (r"{\"api_key\": \"hunter22\", \"n\": 1}", r"{\"api_key\": \"[redacted]\", \"n\": 1}"),
        ("GET /v1?api_key=hunter22&n=1", "GET /v1?api_key=[redacted]&n=1"),
        ("Incorrect API key provided: hunter22.", "Incorrect API key provided: [redacted]"),
        ("https://user:hunter22@example.org/v1", "https://user:[redacted]@example.org/v1"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END", "[redacted]-----END"),
        ("max_tokens: 4096 is above the limit", "max_tokens: 4096 is above the limit"),
        ("the risk-assessment-2024 tool", "the risk-assessment-2024 tool"),
    ],
)
def test_a_named_secret_is_replaced_and_plain_words_stay(text: str, written: str) -> None:
    """A secret is known by its name as well; a text in which plain words are missing explains nothing."""
    assert redact(text) == written


def test_what_the_caller_knows_is_replaced_whatever_it_looks_like() -> None:
    """A gateway's key may be a plain word."""
    assert redact("no such key: swordfish", ["swordfish"]) == f"no such key: {REDACTED}"
