"""Docstrings taken apart: what a model learns of each parameter, and that nothing else is lost."""

from __future__ import annotations

import pytest

from turnstile.tools.docstrings import Docstring

GOOGLE = """Current weather of a city.

    Slow in winter.

    Args:
        city: Name of the city, such as Beijing: the capital.
            It may be in Chinese.
        days (int, optional): How many.

        unit (tuple[int, str]): As it says.
            - c: Celsius

    Returns:
        One line of text.
    """

NUMPY = """Current weather of a city.

    Parameters
    ----------
    city : str
        Name of the city.

    days, hours : int, optional
        How many.

    Returns
    -------
    str
        One line of text.
    """

SPHINX = """Current weather of a city.

    :param city: Name of the city,
        such as Beijing.
    :type city: str
    :param int days: How many.
    :returns: One line of text.
    """


@pytest.mark.parametrize(
    ("docstring", "parameters", "text"),
    [
        pytest.param(
            GOOGLE,
            {
                "city": "Name of the city, such as Beijing: the capital. It may be in Chinese.",
                "days": "How many.",
                "unit": "As it says. - c: Celsius",
            },
            "Current weather of a city.\n\nSlow in winter.\n\nReturns:\n    One line of text.",
            id="google",
        ),
        pytest.param(
            NUMPY,
            {"city": "Name of the city.", "days": "How many.", "hours": "How many."},
            "Current weather of a city.\n\nReturns\n-------\nstr\n    One line of text.",
            id="numpy",
        ),
        pytest.param(
            SPHINX,
            {"city": "Name of the city, such as Beijing.", "days": "How many."},
            "Current weather of a city.\n\n:returns: One line of text.",
            id="sphinx",
        ),
        pytest.param("Only a line.", {}, "Only a line.", id="one line"),
        pytest.param("", {}, "", id="empty"),
        pytest.param("Parameters\n\nare not a section here.", {}, "Parameters\n\nare not a section here.", id="prose"),
        pytest.param("Run it.\n\nParameters\n----------\nx\n", {"x": ""}, "Run it.", id="no text, at the end"),
        pytest.param(
            "Run it.\n\nParameters\n----------\nx\n    The x.\nMore of it all.",
            {"x": "The x."},
            "Run it.\n\nMore of it all.",
            id="prose after a section",
        ),
    ],
)
def test_the_three_usual_ways_are_read(docstring: str, parameters: dict[str, str], text: str) -> None:
    """People write docstrings in the way of their house, and a model should not pay for it."""
    read = Docstring(docstring)
    assert (read.parameters, read.text) == (parameters, text)


def test_an_odd_line_does_not_cost_the_section() -> None:
    """One line out of form must not take the descriptions of all other parameters with it."""
    read = Docstring("Do.\n\nArgs:\n    stray words\n    a: The a.\n    odd line\n    b: The b.\n")
    assert read.parameters == {"a": "The a. odd line", "b": "The b."}
    assert read.text == "Do.\n\nstray words"


def test_a_section_that_is_no_parameter_stays() -> None:
    """A warning that a docstring gives is meant for whoever calls, so the model must see it."""
    read = Docstring("Drop a table.\n\nArguments:\n    name: Its name.\n\nWarning:\n    It is gone for good.\n")
    assert read.text == "Drop a table.\n\nWarning:\n    It is gone for good."
