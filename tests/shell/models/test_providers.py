"""The table of providers: a name becomes a client, or one line that says what is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from turnstile.core.errors import ConfigurationError, ModelNotFound
from turnstile.models import PROVIDERS, AnthropicMessages, Available, OpenAIChat, Provider, first_available, resolve
from turnstile.ports import ModelRequest
from turnstile.testing import WireServer


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_every_row_makes_a_client(provider: Provider) -> None:
    """A row is data, so a mistake in it shows only when it is used."""
    environ = {provider.keys[0]: "k"}
    environ |= {} if provider.base_url else {provider.url_variable: "https://mine.example/openai/v1"}
    client = resolve(f"{provider.name}:some/model:free", environ)
    assert isinstance(client, AnthropicMessages if provider.protocol == "messages" else OpenAIChat)
    assert client.name == f"{provider.name}:some/model:free"
    assert (provider.base_url or "https://mine.example/openai/v1") in repr(client)
    assert "some/model:free" in repr(client)


def test_rows_are_told_apart() -> None:
    """Two rows of one name, or one variable for two keys, would hide one of them."""
    names = [provider.name for provider in PROVIDERS]
    variables = [name for provider in PROVIDERS for name in provider.keys]
    assert len(set(names)) == len(names)
    assert len(set(variables)) == len(variables)
    assert all(provider.source for provider in PROVIDERS)
    assert all(re.fullmatch(r"https?://\S+[^/]", provider.base_url) for provider in PROVIDERS if provider.base_url)


async def test_key_and_address_come_from_the_environment(hello: ModelRequest) -> None:
    """A proxy of one's own, or a test's server, stands in for the provider."""
    answer = {"body": {"choices": [{"message": {"content": "hi"}}]}}
    with WireServer([answer]) as server:
        client = resolve("openai:gpt-5-mini", {"OPENAI_API_KEY": " k\n", "OPENAI_BASE_URL": f"{server.url}/v1"})
        await client.reply(hello, lambda delta: None)
        await client.aclose()
    assert server.requests[0].headers["authorization"] == "Bearer k"
    assert server.requests[0].path == "/v1/chat/completions"


def test_the_process_environment_is_where_it_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every other tool does."""
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    assert resolve("deepseek:deepseek-v4-flash").name == "deepseek:deepseek-v4-flash"
    assert first_available() == Available("deepseek:deepseek-v4-flash", "DEEPSEEK_API_KEY is set")


def test_a_second_variable_may_hold_the_key() -> None:
    """Google's own tools know two names."""
    assert first_available({"GOOGLE_API_KEY": "k"}).reason == "GOOGLE_API_KEY is set"
    assert resolve("gemini:gemini-flash-latest", {"GOOGLE_API_KEY": "k"}).name == "gemini:gemini-flash-latest"


@pytest.mark.parametrize(
    ("model", "environ", "words"),
    [
        ("gpt-5-mini", {}, "'provider:name', such as 'openai:gpt-5-mini'; got 'gpt-5-mini'"),
        ("", {}, "got ''"),
        ("openai:", {}, "got 'openai:'"),
        (":x", {}, "got ':x'"),
        ("opnai:gpt-5", {}, "no provider 'opnai'; did you mean 'openai:gpt-5'? The providers are openai, "),
        ("zzzzzz:x", {}, "no provider 'zzzzzz'; The providers are openai, "),
        ("openai:gpt-5", {}, "needs a key of openai: set OPENAI_API_KEY"),
        ("openai:gpt-5", {"OPENAI_API_KEY": "  "}, "set OPENAI_API_KEY"),
        ("azure:gpt-5", {"AZURE_API_KEY": "k"}, "needs the address of your azure server: set AZURE_BASE_URL"),
    ],
)
def test_what_is_missing_is_named(model: str, environ: Mapping[str, str], words: str) -> None:
    """The message is the way out."""
    with pytest.raises(ModelNotFound) as caught:
        resolve(model, environ)
    assert words in str(caught.value)


def test_an_unusable_address_in_the_environment_is_a_clear_error() -> None:
    """A forgotten scheme is the commonest slip."""
    with pytest.raises(ConfigurationError, match="base_url is an address such as"):
        resolve("openai:gpt-5", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "localhost:8000"})


def test_the_first_key_in_the_order_of_the_table_decides() -> None:
    """The same environment always means the same model, and the reason can be shown."""
    environ = {"DASHSCOPE_API_KEY": "k", "OPENAI_API_KEY": "k", "DEEPSEEK_API_KEY": "k"}
    assert first_available(environ) == Available("openai:gpt-5-mini", "OPENAI_API_KEY is set")
    environ |= {"ANTHROPIC_API_KEY": "k"}
    del environ["OPENAI_API_KEY"]
    assert first_available(environ).reason == "ANTHROPIC_API_KEY is set"
    del environ["ANTHROPIC_API_KEY"]
    assert first_available(environ) == Available("dashscope:qwen-plus", "DASHSCOPE_API_KEY is set")


def test_a_preferred_provider_is_looked_for_first() -> None:
    """A bundled agent made for one provider runs there when it can, and elsewhere when it cannot."""
    environ = {"ANTHROPIC_API_KEY": "k", "DASHSCOPE_API_KEY": "k", "OPENAI_API_KEY": "k"}
    assert first_available(environ, prefer="dashscope").reason == "DASHSCOPE_API_KEY is set"
    assert first_available(environ, prefer="anthropic").reason == "ANTHROPIC_API_KEY is set"
    assert first_available({"GROQ_API_KEY": "k"}, prefer="anthropic").reason == "GROQ_API_KEY is set"


def test_no_key_at_all_names_the_ways_out() -> None:
    """Also when a key of a server of one's own is there, which says nothing of a model."""
    with pytest.raises(ModelNotFound, match="name one such as 'openai:gpt-5-mini', or set one of OPENAI_API_KEY, "):
        first_available({"OLLAMA_API_KEY": "k", "OPENAI_API_KEY": ""})
