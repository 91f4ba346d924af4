"""Arguments as models and servers really write them: what runs, what doesn't, and what is sent back."""

from __future__ import annotations

from turnstile import tool
from wire_case import Case, Played, Tools, calls_of, play, said


def assert_refused(played: Played, tools: Tools, word: str) -> None:
    """Check that no tool ran, that the model was told what is wrong, and that the run went on."""
    assert tools.ran == []
    (result,) = played.results
    assert result.status == "error"
    assert word in result.content
    assert len(result.content) < 1500
    assert played.result.output == "done"


async def test_arguments_double_encoded(case: Case, tools: Tools) -> None:
    """One extra decode is what the server's fault needs; a tool is never called with a text."""
    played = await play(case, tools("get_weather", city=str))
    assert tools.ran == [("get_weather", {"city": "Oslo"})]
    assert calls_of(played.last[1]) == [("get_weather", {"city": "Oslo"})]


async def test_arguments_duplicate_keys(case: Case, tools: Tools) -> None:
    """What somebody approves and what the tool gets must be one object, so an object with two readings is refused."""
    assert_refused(await play(case, tools("rm", path=str)), tools, "path")


async def test_arguments_duplicated_object(case: Case, tools: Tools) -> None:
    """A call is run as it was meant or not at all."""
    assert_refused(await play(case, tools("get_att", id=str)), tools, "JSON")


async def test_arguments_empty_string(case: Case, tools: Tools) -> None:
    """No text means no arguments."""
    played = await play(case, tools("list_all"))
    assert tools.ran == [("list_all", {})]
    assert played.last[1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert played.result.output == "done"


async def test_arguments_whitespace_only(case: Case, tools: Tools) -> None:
    """Blanks mean no arguments, too."""
    played = await play(case, tools("list_all"))
    assert tools.ran == [("list_all", {})]
    assert played.last[1]["tool_calls"][0]["function"]["arguments"] == "{}"


async def test_arguments_is_object(case: Case, tools: Tools) -> None:
    """An object in place of its text is understood, and sent back as the text that the protocol wants."""
    played = await play(case, tools("get_weather", city=str))
    assert tools.ran == [("get_weather", {"city": "Oslo"})]
    assert isinstance(played.last[1]["tool_calls"][0]["function"]["arguments"], str)
    assert calls_of(played.last[1]) == [("get_weather", {"city": "Oslo"})]


async def test_arguments_literal_control_characters(case: Case, tools: Tools) -> None:
    """Raw line breaks inside a string have one meaning only; sent back they are escaped."""
    played = await play(case, tools("sh", cmd=str))
    assert tools.ran == [("sh", {"cmd": "a\nb\tc"})]
    assert calls_of(played.last[1]) == [("sh", {"cmd": "a\nb\tc"})]


async def test_arguments_markdown_fence(case: Case, tools: Tools) -> None:
    """A fence is no JSON; the model is told so, and its text is never taken for no arguments."""
    assert_refused(await play(case, tools("f", path=str, md=str)), tools, "JSON")


async def test_arguments_nan_infinity(case: Case, tools: Tools) -> None:
    """Numbers that are none are refused here, before a strict server refuses the whole history."""
    played = await play(case, tools("f", x=float, y=float, z=float))
    assert_refused(played, tools, "NaN")


async def test_arguments_python_repr_single_quotes(case: Case, tools: Tools) -> None:
    """Python's notation is neither evaluated nor guessed at."""
    assert_refused(await play(case, tools("f", path=str, limit=int | None, ok=bool)), tools, "JSON")


async def test_double_escaped_newlines_not_rewritten(case: Case, tools: Tools) -> None:
    """Valid JSON is passed through untouched: a backslash and an n are two characters."""
    played = await play(case, tools("write_file", content=str))
    assert tools.ran == [("write_file", {"content": r"a:\n\tb"})]
    assert played.last[1]["tool_calls"][0]["function"]["arguments"] == r'{"content":"a:\\n\\tb"}'


async def test_malformed_args_run_with_empty_dict(case: Case, tools: Tools) -> None:
    """A tool whose parameters all have defaults must not run with them when its arguments are broken."""

    @tool
    def cleanup(dry_run: bool = False) -> str:  # noqa: FBT001, FBT002 - the case's own signature
        """Clean up."""
        tools.ran.append(("cleanup", {"dry_run": dry_run}))
        return "cleaned"

    played = await play(case, cleanup)
    assert_refused(played, tools, "tru")
    assert "JSON" in played.results[0].content or "dry_run" in played.results[0].content


async def test_poisoned_history_invalid_arguments(case: Case) -> None:
    """One malformed call must not make every later request fail; what the model wrote stays in the history."""
    history = said(case.messages)
    played = await play(case, history=history, exchanges=[{"status": 200, "body": _DONE}])
    ((name, arguments),) = calls_of(played.last[1])
    assert (name, arguments) == ("f", {"_raw": 'description": "x"}'})
    assert played.result.messages[: len(history)] == tuple(history)


async def test_malformed_args_must_not_be_called_truncated(case: Case, tools: Tools) -> None:
    """A reply that ended normally was not cut, so nobody is sent after the wrong cause."""
    played = await play(case, tools("ui", action=str))
    assert_refused(played, tools, "JSON")
    assert "cut" not in played.results[0].content


_DONE = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}]}
