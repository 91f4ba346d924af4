"""What a user attaches, as the parts of a chat completions message."""

from __future__ import annotations

from base64 import b64decode

from turnstile.core.messages import Attachment, UserTurn
from turnstile.core.strict_json import JsonValue

_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def parts_of(turn: UserTurn) -> list[JsonValue]:
    """The words and the attachments, each as a part (OpenAI, API reference, "Create chat completion", messages)."""
    words: list[JsonValue] = [{"type": "text", "text": turn.text}] if turn.text else []
    return words + [_part(attachment) for attachment in turn.attachments]


def _part(attachment: Attachment) -> JsonValue:
    kind, address = attachment.media_type, attachment.url or f"data:{attachment.media_type};base64,{attachment.data}"
    if attachment.is_image:
        return {"type": "image_url", "image_url": {"url": address}}
    if kind in _AUDIO and attachment.data:
        return {"type": "input_audio", "input_audio": {"data": attachment.data, "format": _AUDIO[kind]}}
    if kind.startswith("text/") and attachment.data:
        words = b64decode(attachment.data).decode("utf-8", "replace")
        return {"type": "text", "text": f"{attachment.name}\n\n{words}" if attachment.name else words}
    return {"type": "file", "file": {"filename": attachment.name or "file", "file_data": address}}
