"""What a model costs: by its user's word, by the list, or unknown; never a guess and never a crash."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from turnstile import Agent, Limits
from turnstile.core.limits import Price
from turnstile.core.messages import Reply, Usage
from turnstile.models import AnthropicMessages, OpenAIChat, resolve
from turnstile.shell.models.pricing import Pricing
from turnstile.testing import ScriptedModel

ANTHROPIC, OPENAI = "https://api.anthropic.com", "https://api.openai.com/v1"


def test_the_list_knows_models_where_they_are_sold() -> None:
    """By the address that is asked and the model's name there; input costs less than output everywhere."""
    for model, base_url in [("claude-sonnet-4-5", ANTHROPIC), ("gpt-5-mini", OPENAI)]:
        price = Pricing(None, model, base_url).price
        assert price is not None
        assert 0 < price.input < price.output


def test_what_the_cache_gave_costs_less_and_what_it_took_costs_more() -> None:
    """Anthropic, "Prompt caching": a tenth for what is read, a quarter more for what is written."""
    pricing = Pricing(None, "claude-sonnet-4-5", ANTHROPIC)
    plain = pricing.cost(Usage(10_000, 100))
    read = pricing.cost(Usage(10_000, 100, cached_tokens=9_000))
    written = pricing.cost(Usage(10_000, 100), cache_written=9_000)
    assert plain is not None
    assert read is not None
    assert written is not None
    assert read < plain < written


@pytest.mark.parametrize(
    ("model", "base_url"),
    [
        ("from-next-year", OPENAI),
        ("gpt-5-mini", "https://llm.example/v1"),
        ("gpt-5-mini", "http://127.0.0.1:8000/v1"),
        ("gpt-5-mini", ""),
    ],
)
def test_what_is_not_in_the_list_is_unknown(model: str, base_url: str) -> None:
    """A model of that name on a server of one's own may cost anything, or nothing; zero would be a claim."""
    pricing = Pricing(None, model, base_url)
    assert pricing.price is None
    assert pricing.cost(Usage(10, 10)) is None


@pytest.mark.parametrize("usage", [None, Usage(), Usage(10), Usage(None, 10), Usage(5, 5, cached_tokens=10)])
def test_without_all_counts_a_cost_is_unknown(usage: Usage | None) -> None:
    """Servers leave counts out, and some contradict each other."""
    assert Pricing(None, "gpt-5-mini", OPENAI).cost(usage) is None


def test_what_the_user_says_goes_before_the_list() -> None:
    """A contract's price; the engine reckons with it, so the list adds nothing."""
    pricing = Pricing(Price(1, 2), "gpt-5-mini", OPENAI)
    assert pricing.price == Price(1, 2)
    assert pricing.cost(Usage(10, 10)) is None


def test_without_the_list_prices_are_unknown() -> None:
    """It is an extra; and importing the clients must not load it."""
    code = (
        "import sys; sys.modules['genai_prices'] = None\n"
        "from turnstile.models import OpenAIChat\n"
        "print(OpenAIChat('gpt-5-mini').price)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
    loaded = "import sys, turnstile.models as m; m.OpenAIChat('gpt-5-mini'); print('genai_prices' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_clients_of_public_providers_know_their_price() -> None:
    """So that a limit on cost holds without a word about prices."""
    assert AnthropicMessages("claude-sonnet-4-5").price == Pricing(None, "claude-sonnet-4-5", ANTHROPIC).price
    assert OpenAIChat("gpt-5-mini").price == Pricing(None, "gpt-5-mini", OPENAI).price
    assert resolve("openai:gpt-5-mini", {"OPENAI_API_KEY": "k"}).price is not None
    assert OpenAIChat("gpt-5-mini", price=Price(1, 2)).price == Price(1, 2)


async def test_the_list_is_read_while_a_reply_is_waited_for() -> None:
    """Once a client, and never for a server of one's own: half a second is a long time for other runs to wait."""
    pricing = Pricing(None, "gpt-5-mini", OPENAI)
    pricing.prepare()
    pricing.prepare()
    Pricing(None, "gpt-5-mini", "http://127.0.0.1:9").prepare()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert pricing.price is not None


def test_a_run_starts_without_the_list_unless_a_limit_on_cost_needs_it() -> None:
    """What a run records of prices is what its limits are held with."""
    agent = Agent(OpenAIChat("gpt-5-mini", price=Price(1, 2)))
    assert agent.start("q").snapshot.start.prices == (None,)
    assert agent.start("q", limits=Limits(cost=1)).snapshot.start.prices == (Price(1, 2),)


def test_a_reply_has_the_price_that_its_client_knows() -> None:
    """A scripted model's, or one that the user gave: the client says the price, the server the tokens."""
    told, untold = Reply("a", usage=Usage(1_000_000, 500_000)), Reply("b", usage=Usage(5))
    model = ScriptedModel([told, untold], price=Price(1, 2))
    replies = [Agent(model).run_sync("q").messages[-1] for _ in (told, untold)]
    assert [reply.cost for reply in replies if isinstance(reply, Reply)] == [2.0, None]
