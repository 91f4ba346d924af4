"""The agent: what it is given, what it refuses, and what its results say."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from turnstile import (
    Agent,
    Attachment,
    ConfigurationError,
    Exchange,
    InsideEventLoop,
    LastTurns,
    Limits,
    ModelNotFound,
    Price,
    Reply,
    Retry,
    RunFailed,
    ToolCall,
    Usage,
    UsageError,
    UserTurn,
    tool,
)
from turnstile.core.events import ModelFailed
from turnstile.ports import ModelRequest, Store
from turnstile.stores import MemoryStore, SQLiteStore
from turnstile.testing import FrozenClock, ScriptedModel, call


class Weather(BaseModel):
    """An output type."""

    city: str
    celsius: int


def test_run_sync_runs_again_and_again() -> None:
    """Each call has an event loop of its own, and nothing is left of the one before."""
    agent = Agent(ScriptedModel(["one", "two"]))
    assert agent.run_sync("hi").output == "one"
    assert agent.run_sync("hi").output == "two"


async def test_run_sync_inside_an_event_loop_names_the_async_call() -> None:
    """A notebook has a running loop; the error tells what to write there."""
    with pytest.raises(InsideEventLoop, match=r"await agent\.run"):
        Agent(ScriptedModel(["hello"])).run_sync("hi")


async def test_one_agent_serves_many_runs_at_once() -> None:
    """An agent holds nothing of a run, so a hundred runs with the same call ids don't mix."""

    @tool(access="read")
    def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    def think(request: ModelRequest) -> ToolCall | str:
        question, last = request.items[0], request.items[-1]
        if isinstance(last, Exchange):
            return last.results[0].content
        assert isinstance(question, UserTurn)
        return call("double", n=int(question.text))

    agent = Agent(ScriptedModel(think), tools=[double])
    results = await asyncio.gather(*(agent.run(str(n)) for n in range(100)))
    assert [result.output for result in results] == [str(2 * n) for n in range(100)]


def test_an_output_type_is_validated_and_given_back() -> None:
    """An answer is a value of the type that was asked for, not a text to parse."""
    result = Agent(ScriptedModel(['{"city": "Oslo", "celsius": 4}']), output=Weather).run_sync("weather?")
    assert result.output == Weather(city="Oslo", celsius=4)


def test_an_answer_in_a_fence_is_unwrapped() -> None:
    """Many models wrap JSON in Markdown whatever they are told."""
    result = Agent(ScriptedModel(["```json\n[1, 2]\n```"]), output=list[int]).run_sync("numbers?")
    assert result.output == [1, 2]


def test_an_answer_that_does_not_fit_is_asked_for_again() -> None:
    """The model is told what is wrong, and has as many tries as the limits say."""
    model = ScriptedModel(['{"city": "Oslo"}', "warm", '{"city": "Oslo", "celsius": 4}'])
    result = Agent(model, output=Weather).run_sync("weather?")
    assert result.output.celsius == 4
    assert [t.row for t in result.transitions] == ["repair_output", "repair_output", "answered"]
    told = model.requests[1].items[-1]
    assert isinstance(told, UserTurn)
    assert told.synthetic
    assert "celsius" in told.text


def test_an_answer_that_never_fits_fails_and_keeps_what_was_written() -> None:
    """No output is better than a wrong one, and nothing is thrown away."""
    result = Agent(ScriptedModel(["a", "b", "c"]), output=Weather).run_sync("weather?")
    assert result.stop is not None
    assert result.stop.reason == "invalid_output"
    assert result.partial == "c"
    with pytest.raises(RunFailed, match="invalid_output") as raised:
        _ = result.output
    assert (raised.value.reason, raised.value.run_id) == ("invalid_output", result.run_id)


def test_the_model_is_told_the_form_of_its_answer() -> None:
    """Instructions and schema go out together."""
    model = ScriptedModel(['{"city": "Oslo", "celsius": 4}'])
    Agent(model, instructions="Be brief.", output=Weather).run_sync("weather?")
    assert model.requests[0].instructions.startswith("Be brief.\n\n")
    assert '"celsius"' in model.requests[0].instructions
    assert model.requests[0].output_schema is not None


def test_instructions_may_depend_on_what_the_run_is_given() -> None:
    """The user's name belongs to a run, not to the agent."""
    model = ScriptedModel(["hello"])
    Agent(model, instructions=lambda name: f"You speak with {name}.").run_sync("hi", deps="an engineer")
    assert model.requests[0].instructions == "You speak with an engineer."


def test_an_empty_answer_of_a_typed_agent_is_no_output() -> None:
    """An agent that ended with nothing to say has no value to give."""

    @tool
    def save() -> str:
        """Save."""
        return "saved"

    typed = Agent(ScriptedModel([call("save"), ""]), tools=[save], output=Weather).run_sync("save it")
    assert typed.ok
    with pytest.raises(RunFailed, match="no output"):
        _ = typed.output
    plain = Agent(ScriptedModel([call("save"), ""]), tools=[save]).run_sync("save it")
    assert plain.output == ""
    assert plain.stop is not None
    assert plain.stop.flags == ("empty_answer",)


def test_the_output_of_an_unfinished_run_says_where_it_is() -> None:
    """A run that was left is not a failed one."""

    async def begin() -> str:
        async with Agent(ScriptedModel(["hello"])).start("hi") as run:
            result = run.result
        with pytest.raises(RunFailed, match="await_model") as raised:
            _ = result.output
        assert result.stop is None
        assert not result.ok
        return raised.value.reason

    assert asyncio.run(begin()) == "unfinished"


def test_a_history_goes_on() -> None:
    """One run's messages are the next one's history."""
    model = ScriptedModel(["one", "two"])
    agent = Agent(model)
    first = agent.run_sync("first")
    agent.run_sync("second", history=first.messages)
    assert [item.text for item in model.requests[1].items if isinstance(item, UserTurn)] == ["first", "second"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_session_goes_on_where_it_ended(kind: str, tmp_path: Path) -> None:
    """A conversation is known by its name, not carried about."""
    store: Store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "runs.db")
    model = ScriptedModel(["one", "two", "three"])
    agent = Agent(model, store=store)
    for prompt in ("first", "second"):
        agent.run_sync(prompt, session="trip")
    agent.run_sync("elsewhere", session="other")
    assert len(model.requests[1].items) == 3
    assert len(model.requests[2].items) == 1


def test_a_session_and_a_history_contradict_each_other() -> None:
    """Which of the two would win is not guessed."""
    with pytest.raises(ConfigurationError, match="not both"):
        Agent(ScriptedModel(["x"])).run_sync("hi", session="trip", history=[UserTurn("before")])


def test_a_history_with_an_open_call_is_refused_before_any_request() -> None:
    """A provider would answer 400, and the conversation would be dead."""
    model = ScriptedModel(["x"])
    with pytest.raises(UsageError, match="c1"):
        Agent(model).run_sync("hi", history=[UserTurn("before"), Reply("", (ToolCall("c1", "f", "{}"),))])
    assert model.requests == []


def test_a_window_of_turns_is_what_a_request_carries() -> None:
    """A long chat must not grow for ever."""
    model = ScriptedModel(lambda request: f"{len(request.items)} items")
    agent = Agent(model, context=LastTurns(2))
    result = agent.run_sync("one")
    for prompt in ("two", "three", "four"):
        result = agent.run_sync(prompt, history=result.messages)
    assert result.output == "3 items"
    assert len(result.messages) == 8


def test_no_model_at_all_is_one_clear_error() -> None:
    """A newcomer without a key is told what to set."""
    with pytest.raises(ModelNotFound, match="OPENAI_API_KEY"):
        Agent().run_sync("hi")


def test_the_environment_names_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """One variable moves every agent that has no model of its own."""
    monkeypatch.setenv("TURNSTILE_MODEL", "ollama:llama3.2")
    assert [client.name for client in Agent().clients()] == ["ollama:llama3.2"]
    monkeypatch.delenv("TURNSTILE_MODEL")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-test")
    assert Agent().clients()[0].name.startswith("deepseek:")


def test_an_empty_list_of_models_is_refused() -> None:
    """An agent cannot ask nobody."""
    with pytest.raises(ConfigurationError, match="at least one model"):
        Agent([]).run_sync("hi")


def test_clients_made_from_names_are_kept_and_closed() -> None:
    """One pool of connections serves all runs of an agent."""

    async def use() -> None:
        async with Agent("ollama:llama3.2") as agent:
            assert agent.clients()[0] is agent.clients()[0]

    asyncio.run(use())


def test_a_cost_limit_needs_a_known_price() -> None:
    """A limit that cannot be held is no limit; it is refused before money is spent."""
    with pytest.raises(ConfigurationError, match="price"):
        Agent(ScriptedModel(["x"]), limits=Limits(cost=1.0)).run_sync("hi")


def test_a_cost_limit_binds_before_the_money_is_spent() -> None:
    """The first request included: what it may cost at worst must fit."""
    model = ScriptedModel(["x"], price=Price(input=10.0, output=30.0))
    result = Agent(model, limits=Limits(cost=0.000_01)).run_sync("hi")
    assert result.stop is not None
    assert result.stop.reason == "cost_limit"
    assert model.requests == []


def test_cost_and_usage_are_summed_and_unknown_stays_unknown() -> None:
    """An unknown price is never zero."""
    priced = ScriptedModel([Reply("hello", usage=Usage(1_000_000, 100_000))], price=Price(2.0, 10.0))
    result = Agent(priced).run_sync("hi")
    assert (result.cost, result.usage.total_tokens) == (3.0, 1_100_000)
    assert Agent(ScriptedModel(["hello"])).run_sync("hi").cost is None


def test_a_wait_longer_than_allowed_is_not_waited() -> None:
    """A server that asks for a day ends the attempts, and its wish is told."""
    clock = FrozenClock()
    model = ScriptedModel([ModelFailed("rate_limited", retry_after=86_400.0)])
    result = Agent(model, clock=clock, retry=Retry(max_delay=60)).run_sync("hi")
    assert result.stop is not None
    assert result.stop.error is not None
    assert result.stop.error.retry_after == 86_400.0
    assert clock.slept == []


def test_the_settings_go_out_and_bound_the_output() -> None:
    """`max_tokens` is the engine's to know, since budgets need it, and the client's, to tell a wish from a budget."""
    model = ScriptedModel(["hello"])
    Agent(model, settings={"max_tokens": 50, "temperature": 0}).run_sync("hi")
    assert model.requests[0].max_output == 50
    assert dict(model.requests[0].settings) == {"max_tokens": 50, "temperature": 0}


def test_repr_shows_what_it_is() -> None:
    """A REPL shows more than an address."""
    assert repr(Agent("openai:gpt-5-mini", name="helper")) == "Agent(name='helper', model='openai:gpt-5-mini')"


def test_a_prompt_may_hold_pictures_and_files() -> None:
    """What the user attaches is kept with the words, and reaches the model as it was given."""
    model = ScriptedModel(["A cat."])
    picture = Attachment.of(b"A", "image/png")

    result = Agent(model).run_sync(["What is this?", picture])

    assert result.messages[0] == UserTurn("What is this?", attachments=(picture,))
    assert model.requests[0].items[0] == result.messages[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limits": {"turns": 3}}, r"limits is Limits"),
        ({"retry": 5}, r"retry is Retry"),
        ({"machine": 5}, r"machine is a Machine"),
        ({"name": None}, r"name is text"),
        ({"settings": [1]}, r"settings is a mapping"),
        ({"settings": {"max_tokens": "100"}}, r"max_tokens"),
        ({"settings": {"max_tokens": 1e3}}, r"max_tokens"),
        ({"settings": {"max_tokens": True}}, r"max_tokens"),
        ({"settings": {"max_tokens": 0}}, r"max_tokens"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused(options: dict[str, Any], words: str) -> None:
    """A limit that is dropped in silence is no limit."""
    with pytest.raises(ConfigurationError, match=words):
        Agent(ScriptedModel(["x"]), **options)


@pytest.mark.parametrize(
    ("prompt", "options", "words"),
    [
        ("", {}, "prompt is empty"),
        ([], {}, "prompt is empty"),
        (None, {}, "a prompt is text"),
        ([5], {}, "a prompt is text"),
        ("hi", {"limits": {"turns": 3}}, r"limits is Limits"),
        ("hi", {"run_id": ""}, "run_id"),
        ("hi", {"run_id": 5}, "run_id"),
        ("hi", {"session": " "}, "session"),
    ],
)
def test_a_run_of_the_wrong_kind_is_refused(prompt: Any, options: Any, words: str) -> None:
    """Nothing is kept or paid for what cannot be meant."""
    model = ScriptedModel(["x"])
    with pytest.raises((ConfigurationError, UsageError), match=words):
        Agent(model).run_sync(prompt, **options)
    assert model.requests == []


def test_a_misspelt_option_is_refused() -> None:
    """A misspelt limit would otherwise vanish."""
    options: Any = {"limit": Limits(turns=1)}
    with pytest.raises(TypeError, match="no option 'limit'; it takes session"):
        Agent(ScriptedModel(["x"])).run_sync("hi", **options)


def test_an_agent_runs_in_many_threads_at_once() -> None:
    """A web server's threads share one agent, and its store forgets runs meanwhile."""
    agent = Agent(ScriptedModel(lambda _: "hello"), store=MemoryStore(keep=2))
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: agent.run_sync(str(n)), range(64)))
    assert all(result.output == "hello" for result in results)


def test_other_runs_do_not_push_a_session_out_of_memory() -> None:
    """A conversation is not forgotten because others talk a lot."""
    model = ScriptedModel(lambda request: f"{len(request.items)}")
    agent = Agent(model, store=MemoryStore(keep=3))
    agent.run_sync("first", session="bo")
    for n in range(5):
        agent.run_sync(str(n))
    assert agent.run_sync("second", session="bo").output == "3"
    for n in range(5):
        agent.run_sync("hi", session=f"other {n}")
    assert agent.run_sync("third", session="bo").output == "1"
