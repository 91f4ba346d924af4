"""`redact`: a text without the keys and tokens in it.

A key is known by the form that its vendor gives it, by the name that stands before it, or because the caller knows it.
The forms are those of the vendors' own pages and of GitHub's "Supported secret scanning patterns". Rather too much is
replaced than too little: the word after "Bearer" goes whatever it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

REDACTED = "[redacted]"

_START = r"(?:(?<![a-z0-9])|(?<=\\[nrt]))"  # of a word, or right after an escaped line break in JSON text

# What a group holds stands before the secret and is kept.
_SECRET = re.compile(
    rf"""
    {_START}(?:
        # OpenAI, Anthropic, DeepSeek, DashScope, xAI, NVIDIA, Perplexity, GitLab, Slack
        (?:sk|rk|pk|xai|nvapi|pplx|glpat|xox[a-z])-[\w-]{{8,}}
        # GitHub, Groq, Hugging Face, Replicate, Stripe
        | (?:gh[a-z]|github_pat|gsk|hf|r8|sk_live|rk_live)_\w{{8,}}
        # Google, AWS
        | AIza[\w-]{{20,}} | (?:AKIA|ASIA)[A-Z0-9]{{12,}}
        # JSON Web Token, RFC 7519
        | eyJ[\w-]{{1,512}}\.[\w-]+(?:\.[\w-]+)?
    )
    # private key, RFC 7468
    | -----BEGIN[ ][A-Z ]{{0,32}}PRIVATE[ ]KEY-----[^-]*
    # a password in an address, RFC 3986 §3.2.1; a header, RFC 6750 §2.1; a named value, by its first letter
    | (://[^/\s:@]{{0,64}}:)[^/\s@]+(?=@)
    | (\bbearer[\s\\"':=]+)[^\s\\"',;]+
    | ((?=[astp])
      (?:api[ _-]?key|access[ _-]?key|secret|token|password|passwd|authorization)(?:\s\w+)?[\\"']*\s*[=:]\s*[\\"']*)
      (?!bearer)(?:basic\s+)?[^\s\\"',;&]{{4,}}
    """,
    re.IGNORECASE | re.VERBOSE,
)


def redact(text: str, known: Iterable[str] = ()) -> str:
    """The text with ``[redacted]`` in place of each secret.

    Args:
        text: Any text, a server's error message or a tool's result for instance.
        known: Secrets that are replaced wherever they stand, whatever they look like.
    """
    for secret in known:
        text = text.replace(secret, REDACTED)
    # Most texts hold none, and to look takes less time than to replace nothing.
    return _SECRET.sub(rf"\1\2\3{REDACTED}", text) if _SECRET.search(text) else text
