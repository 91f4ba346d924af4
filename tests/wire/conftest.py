"""Gives each test its case: the one whose id stands in the test's name, or those that its mark `cases` names."""

from __future__ import annotations

import pytest

from wire_case import CASES, Tools


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", "cases(*ids): the cases of cases.jsonl that a test is about")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each of its cases, with the case's id in the name."""
    if "case" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("cases")
    ids = mark.args if mark else [metafunc.function.__name__.removeprefix("test_").replace("_", "-")]
    metafunc.parametrize("case", [CASES[case_id] for case_id in ids], ids=ids)


@pytest.fixture
def tools() -> Tools:
    """Tools that remember how they were called."""
    return Tools()
