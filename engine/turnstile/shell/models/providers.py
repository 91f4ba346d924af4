"""The table of providers, and what makes a model client of ``"provider:name"``.

A row is data: an address, the variables that hold a key, and the options in which the server differs. The addresses and
what the options say come from each provider's public documentation, named in the row.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal, NamedTuple, cast

from turnstile.core.errors import ModelNotFound
from turnstile.ports import ModelClient
from turnstile.shell.models.anthropic_messages import ANTHROPIC, AnthropicMessages
from turnstile.shell.models.openai_chat import OPENAI, OpenAIChat
from turnstile.shell.models.options import AnthropicOptions, ChatOptions


@dataclass(frozen=True, slots=True)
class Provider:
    """One row of the table.

    Attributes:
        name: What stands before the colon.
        base_url: Its address; empty where each customer has one.
        keys: The variables that may hold its key, the first that is set counts; none where no key is known of.
        source: The page of its documentation that the row was taken from.
        default_model: The model that is used when a key is all that is known; empty for none.
        needs_key: Whether it refuses requests without a key.
        protocol: What its server speaks: chat completions, or the Messages API.
        options: In what its server differs from that protocol.
    """

    name: str
    base_url: str
    keys: tuple[str, ...]
    source: str
    default_model: str = ""
    needs_key: bool = True
    protocol: Literal["chat", "messages"] = "chat"
    options: ChatOptions | AnthropicOptions = field(default_factory=ChatOptions)

    @property
    def url_variable(self) -> str:
        """The variable that gives another address: ``OPENAI_BASE_URL``, and so on."""
        return f"{self.name.upper()}_BASE_URL"

    def key(self, environ: Mapping[str, str]) -> tuple[str, str]:
        """The variable that holds a key, and the key; both empty when none is set."""
        return next(((name, key) for name in self.keys if (key := environ.get(name, "").strip())), ("", ""))


class Available(NamedTuple):
    """A model that can be used, and why it was chosen."""

    model: str
    reason: str


_MODERN = ChatOptions(max_tokens_field="max_completion_tokens", output_with_tools=True)
_JSON_ONLY = ChatOptions(output_format="json_object")
_ECHO_ALL = ChatOptions(output_format="json_object", reasoning_echo="always")
_ECHO = ChatOptions(output_format="json_object", reasoning_echo="calls")
_NO_NULL = ChatOptions(empty_content="empty")

# fmt: off
PROVIDERS = (
    Provider(
        "openai", OPENAI, ("OPENAI_API_KEY",), "platform.openai.com/docs/api-reference", "gpt-5-mini",
        options=_MODERN,
    ),
    Provider(
        "anthropic", ANTHROPIC, ("ANTHROPIC_API_KEY",), "platform.claude.com/docs/en/api/messages", "claude-haiku-5-5",
        protocol="messages",
    ),
    Provider(
        "dashscope", "https://dashscope.aliyuncs.com/compatible-mode/v1", ("DASHSCOPE_API_KEY",),
        "alibabacloud.com/help/en/model-studio/compatibility-of-openai-with-dashscope", "qwen-plus",
        options=_JSON_ONLY,
    ),
    Provider(
        "deepseek", "https://api.deepseek.com", ("DEEPSEEK_API_KEY",), "api-docs.deepseek.com", "deepseek-v4-flash",
        options=_ECHO_ALL,
    ),
    Provider(
        "moonshot", "https://api.moonshot.ai/v1", ("MOONSHOT_API_KEY",), "platform.moonshot.ai/docs", "kimi-k2.5",
        options=_ECHO,
    ),
    Provider(
        "zhipu", "https://open.bigmodel.cn/api/paas/v4", ("ZHIPU_API_KEY", "ZHIPUAI_API_KEY"),
        "docs.bigmodel.cn/cn/guide/develop/openai", "glm-4.6",
        options=_JSON_ONLY,
    ),
    Provider(
        "zai", "https://api.z.ai/api/paas/v4", ("ZAI_API_KEY",), "docs.z.ai/api-reference", "glm-4.6",
        options=_JSON_ONLY,
    ),
    Provider(
        "mistral", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), "docs.mistral.ai/api", "mistral-small-latest",
        options={"empty_content": "empty", "call_id_format": "nine", "stream_usage": False},  # it streams usage unasked
    ),
    Provider(
        "groq", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",), "console.groq.com/docs/openai",
        "openai/gpt-oss-120b",
        options={"max_tokens_field": "max_completion_tokens"},
    ),
    Provider(
        "openrouter", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), "openrouter.ai/docs/quickstart",
        "openrouter/auto",
        options={"echo": ("reasoning_details",)},
    ),
    Provider(
        "together", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",),
        "docs.together.ai/docs/openai-api-compatibility",
    ),
    Provider(
        "fireworks", "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY",),
        "docs.fireworks.ai/tools-sdks/openai-compatibility",
    ),
    Provider(
        "xai", "https://api.x.ai/v1", ("XAI_API_KEY",), "docs.x.ai/docs/api-reference", "grok-4",
        options=_MODERN,
    ),
    Provider(
        "gemini", "https://generativelanguage.googleapis.com/v1beta/openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "ai.google.dev/gemini-api/docs/openai", "gemini-flash-latest",
    ),
    Provider(
        "azure", "", ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
        "learn.microsoft.com/en-us/azure/foundry/openai/api-version-lifecycle",
        options=_MODERN,
    ),
    # Servers of one's own, at the port that each listens on unless told otherwise.
    Provider(
        "ollama", "http://localhost:11434/v1", ("OLLAMA_API_KEY",), "docs.ollama.com/api/openai-compatibility",
        needs_key=False, options=_NO_NULL,
    ),
    Provider(
        "lmstudio", "http://localhost:1234/v1", ("LMSTUDIO_API_KEY",), "lmstudio.ai/docs/developer/openai-compat",
        needs_key=False, options=_NO_NULL,
    ),
    Provider(
        "llamacpp", "http://localhost:8080/v1", ("LLAMACPP_API_KEY",),
        "github.com/ggml-org/llama.cpp/tree/master/tools/server", needs_key=False,
    ),
    Provider(
        "vllm", "http://localhost:8000/v1", ("VLLM_API_KEY",),
        "docs.vllm.ai/en/latest/serving/openai_compatible_server", needs_key=False,
    ),
    Provider(
        "sglang", "http://localhost:30000/v1", ("SGLANG_API_KEY",),
        "docs.sglang.ai/basic_usage/openai_api_completions.html", needs_key=False,
    ),
)
# fmt: on
"""All providers, in the order in which they are looked for when no model is named."""

_BY_NAME = {provider.name: provider for provider in PROVIDERS}
EXAMPLE = "openai:gpt-5-mini"


def resolve(model: str, environ: Mapping[str, str] | None = None) -> ModelClient:
    """A client of the model that is named ``"provider:name"``.

    Args:
        model: The provider and the model as that provider names it, such as ``openai:gpt-5-mini`` or
            ``ollama:qwen3:8b``.
        environ: Where keys and addresses are looked for; the process's environment unless given.

    Raises:
        ModelNotFound: The name is no such name, the provider is unknown, or its key or address is missing.
        ConfigurationError: The key or the address in the environment cannot be used.
    """
    environ = os.environ if environ is None else environ
    provider = _provider(model)
    _, key = provider.key(environ)
    if provider.needs_key and not key:
        raise ModelNotFound(f"{model!r} needs a key of {provider.name}: set {provider.keys[0]}")
    base_url = environ.get(provider.url_variable, "").strip() or provider.base_url
    if not base_url:
        raise ModelNotFound(f"{model!r} needs the address of your {provider.name} server: set {provider.url_variable}")
    name = model.partition(":")[2]
    if provider.protocol == "messages":
        others = cast("AnthropicOptions", provider.options)
        return AnthropicMessages(name, base_url=base_url, api_key=key, name=model, **others)
    return OpenAIChat(name, base_url=base_url, api_key=key, name=model, **cast("ChatOptions", provider.options))


def first_available(environ: Mapping[str, str] | None = None, *, prefer: str = "") -> Available:
    """The model to use when none is named: that of the first provider whose key is in the environment.

    Args:
        environ: Where keys are looked for; the process's environment unless given.
        prefer: A provider that is looked for before the others.

    Raises:
        ModelNotFound: There is no key of any provider.
    """
    environ = os.environ if environ is None else environ
    offered = [provider for provider in PROVIDERS if provider.needs_key and provider.default_model]
    offered.sort(key=lambda provider: provider.name != prefer)
    for provider in offered:
        variable, key = provider.key(environ)
        if key:
            return Available(f"{provider.name}:{provider.default_model}", f"{variable} is set")
    names = ", ".join(provider.keys[0] for provider in offered)
    raise ModelNotFound(f"no model is named and no key is set; name one such as {EXAMPLE!r}, or set one of {names}")


def _provider(model: str) -> Provider:
    name, colon, rest = model.partition(":")
    if not (name and colon and rest):
        raise ModelNotFound(f"a model is named 'provider:name', such as {EXAMPLE!r}; got {model!r}")
    if name not in _BY_NAME:
        near = get_close_matches(name, _BY_NAME, n=1)
        hint = f"did you mean '{near[0]}:{rest}'? " if near else ""
        raise ModelNotFound(f"no provider {name!r}; {hint}The providers are {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
