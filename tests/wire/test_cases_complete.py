"""Every case has its test, and every test its case."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from wire_case import CASES


def named() -> Iterator[str]:
    """The ids of the cases that the tests beside this one are about."""
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "case" in (a.arg for a in node.args.args):
                marked = [mark.args for mark in node.decorator_list if _is_cases(mark) and isinstance(mark, ast.Call)]
                ids = [each.value for args in marked for each in args if isinstance(each, ast.Constant)]
                yield from map(str, ids or [node.name.removeprefix("test_").replace("_", "-")])


def _is_cases(mark: ast.expr) -> bool:
    return isinstance(mark, ast.Call) and isinstance(mark.func, ast.Attribute) and mark.func.attr == "cases"


def test_every_case_has_one_test() -> None:
    """A case that nobody tests is a fault that comes back."""
    tested = Counter(case_id for case_id in named() if case_id in CASES)
    assert sorted(CASES.keys() - tested.keys()) == []
    assert [case_id for case_id, times in tested.items() if times > 1] == []
