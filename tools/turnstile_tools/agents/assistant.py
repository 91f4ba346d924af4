"""A chat that knows the weather now, the time anywhere, and how to compute."""

from turnstile import Agent, Limits
from turnstile.testing import ScriptedModel
from turnstile_tools.agents import desk
from turnstile_tools.agents.offline import scripted
from turnstile_tools.calculator import calculate
from turnstile_tools.times import get_current_time
from turnstile_tools.weather import get_weather

PREFERS = "dashscope"  # whose model it asks when several keys are set and no model is named
INSTRUCTIONS = """\
You are a helpful assistant. Use the tools for the weather now, for the time and date, and for every calculation: never
guess them. When one message asks for several things, call all the tools it needs in one reply. When a tool fails, or
says that a service cannot be reached, tell the user so and answer the rest. Answer in the language of the user's last
message, briefly."""

agent = Agent(
    name="assistant",
    instructions=INSTRUCTIONS,
    tools=[get_weather, calculate, get_current_time],
    limits=Limits(turns=10),
)


def offline_model() -> ScriptedModel:
    """A script that stands in for a model while no provider's key is set."""
    return scripted("assistant", desk.answer)
