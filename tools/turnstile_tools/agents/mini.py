"""The smallest useful agent: three tools, all that a message needs asked for in one reply, and a sliding window."""

from turnstile import Agent, LastTurns, Limits
from turnstile.testing import ScriptedModel
from turnstile_tools.agents import desk
from turnstile_tools.agents.offline import scripted
from turnstile_tools.calculator import calculate
from turnstile_tools.times import get_current_time
from turnstile_tools.weather import get_weather

WINDOW = 6  # messages of the user that a request carries, enough for "And there?" and cheap however long the chat
PREFERS = "anthropic"  # whose model it asks when several keys are set and no model is named
INSTRUCTIONS = """\
Answer from the tools. Work out all that the message needs, and call all those tools in one reply, so that they run at
the same time. Then answer in the user's language, one line for each thing asked, and say what a tool could not do."""

agent = Agent(
    name="mini",
    instructions=INSTRUCTIONS,
    tools=[get_weather, calculate, get_current_time],
    limits=Limits(turns=10),
    context=LastTurns(WINDOW),
)


def offline_model() -> ScriptedModel:
    """A script that stands in for a model while no provider's key is set."""
    return scripted("mini", desk.answer)
