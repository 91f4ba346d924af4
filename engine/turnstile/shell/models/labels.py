"""The labels under which servers end a reply, in one vocabulary: why it stopped, or that it failed after all.

All wires share it, since gateways translate between protocols and leave labels as they were.
"""

from __future__ import annotations

from turnstile.core.events import FailureKind, ModelFailed
from turnstile.core.messages import FinishReason
from turnstile.shell.models.answer import Answer
from turnstile.shell.models.error_body import plain
from turnstile.shell.models.redaction import Redactor

_FINISHES: dict[FinishReason, tuple[str, ...]] = {
    # Labels without punctuation and case: OpenAI's, Hugging Face's eos_token, Gemini's upper case, Zhipu's sensitive, …
    "stop": ("stop", "eos", "eostoken", "endturn", "stopsequence", "stoptoken", "complete", "completed", "finished"),
    "tool_calls": ("toolcalls", "toolcall", "functioncall", "tooluse"),
    "length": ("length", "maxtokens", "maxoutputtokens", "modellength", "modelcontextwindowexceeded"),
    "refusal": (
        "contentfilter", "refusal", "safety", "recitation", "blocked", "blocklist", "prohibitedcontent", "spii",
        "sensitive",
    ),
    "pause": ("pause", "pauseturn"),
}  # fmt: skip
_FINISH = {label: finish for finish, labels in _FINISHES.items() for label in labels}
_FAILED: dict[str, FailureKind] = {
    # Labels under which a server says that it did not finish its work.
    "error": "server",
    "abort": "server",
    "aborted": "server",
    "networkerror": "server",  # Zhipu
    "insufficientsystemresource": "overloaded",  # DeepSeek, "Create Chat Completion", finish_reason
}


def finish_of(raw: str, *, has_calls: bool, refused: bool = False) -> FinishReason:
    """Why a reply stopped.

    Args:
        raw: The server's label.
        has_calls: Whether the reply holds calls, which counts for more than a label.
        refused: Whether the reply says elsewhere that the model declined.
    """
    finish: FinishReason = "refusal" if refused else _FINISH.get(plain(raw), "unknown")
    return "tool_calls" if has_calls and finish in {"stop", "unknown"} else finish


def failed_label(raw: str, native: str, answer: Answer, clean: Redactor) -> ModelFailed | None:
    """The failure that a label stands for; ``None`` when it labels a reply.

    Args:
        raw: The server's label.
        native: The label of the model's own provider, behind a router; whose fault it was is said there.
        answer: The answer it came in.
        clean: Takes secrets out of what is kept.
    """
    if plain(raw) not in _FAILED and "malformed" not in plain(raw):
        return None
    blames_model = any(word in plain(native or raw) for word in ("malformed", "toolcall", "functioncall"))
    kind = "generation_failed" if blames_model else _FAILED.get(plain(native)) or _FAILED.get(plain(raw), "server")
    said = f" (its model's provider: {native!r})" if native else ""
    message = f"the server ended its reply with the label {raw!r}{said}"
    return ModelFailed(kind, clean(message), answer.status, clean(answer.request_id))
