"""Recommends a destination in China for a month, some days off and a taste, and plans the days there."""

from turnstile import Agent, Limits
from turnstile.testing import ScriptedModel, call
from turnstile_tools.agents.itinerary import Proposal
from turnstile_tools.agents.offline import Said, Talk, scripted
from turnstile_tools.agents.trip import Trip, trip_in
from turnstile_tools.travel import Suggestions, get_attractions, get_weather, search_destinations

INSTRUCTIONS = """\
You recommend a destination in China and plan the days there, with the tools only.
- You need the month, the days off and what the traveller likes. Ask for the month if you don't know it; assume three
days and no special taste if they are not said, and say so.
- First search. Then ask in one reply for the weather of the two or three best candidates and the attractions of the
best one. Days on the spot are the days off without the way there and back: half a day each way up to five hours, else
a day each way.
- Recommend one place: why, the way there, a plan day by day, the weather's figures with their source, and an
alternative. Say what is rough, what a tool could not do, and what you assumed. Travel times are from Shanghai.
- Answer in the traveller's language."""

agent = Agent(
    name="travel",
    instructions=INSTRUCTIONS,
    tools=[search_destinations, get_weather, get_attractions],
    limits=Limits(turns=8),
)


def offline_model() -> ScriptedModel:
    """A script that stands in for a model while no provider's key is set."""
    return scripted("travel", answer)


def answer(talk: Talk) -> Said:
    """The next calls that a plan needs, or the plan in words."""
    trip = trip_in([*talk.asked_before, *talk.asked])
    if trip_in(talk.asked) == Trip():
        return _abilities(talk)
    if trip.month is None:
        return talk.says("In which month would you like to travel?", "您想在几月出行？")
    wishes = talk.says(", ", "、").join((*trip.places, *trip.tastes))
    search = call("search_destinations", month=trip.month, preference=wishes)
    if lacking := talk.lacks([search]):
        return lacking
    found: Suggestions | None = talk.facts(search)
    if found is None:
        return talk.says("The search brought nothing: ", "没有查到目的地：") + talk.result(search).content
    proposal = Proposal.of(talk, trip, found)
    return talk.lacks(proposal.calls) or proposal.text()


def _abilities(talk: Talk) -> str:
    return talk.says(
        "This is an offline script, not a model. Tell it the month, your days off and what you like, for example: "
        '"I\'m in Shanghai, have 4 days off in October, like nature and quiet small towns." It recommends a place in '
        "China and plans the days. With a provider's key in the environment, such as OPENAI_API_KEY, a model does so.",
        "这是离线脚本，不是模型。请告诉它月份、假期天数和喜好，例如："
        "“我在上海，十月有4天假，喜欢自然和安静的小镇。”它会推荐一个国内目的地并排好行程。"
        "在环境变量里设好某家服务的密钥（如 OPENAI_API_KEY），就由模型来回答。",
    )
