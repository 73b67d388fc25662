"""What runs on the embedded engine only is in one list, with a reason, and is there."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conftest import ON_REAL, is_listed, name_on_both, only_embedded

REPO = Path(__file__).resolve().parents[2]


def functions_of(file: str) -> set[str]:
    tree = ast.parse((REPO / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_line_names_a_test_and_has_a_reason() -> None:
    for line, reason in only_embedded().items():
        file, _, function = line.partition("::")
        assert (REPO / file).is_file(), f"there is no {file}"
        assert not function or function.partition("[")[0] in functions_of(file), f"there is no test {line}"
        assert len(reason) > 40 and reason.endswith("."), f"{line} has no sentence that says why"


def test_only_the_real_engine_leaves_a_listed_test_out() -> None:
    listed = {"a.py::test_one", "a.py::test_two[x-1]", "b.py"}
    for words in (
        f"a.py::test_one[{ON_REAL}]",
        f"a.py::test_one[{ON_REAL}-y]",
        f"a.py::test_two[x-1-{ON_REAL}]",
        f"b.py::test[{ON_REAL}]",
    ):
        assert is_listed(words, listed), words
    for words in ("a.py::test_one[embedded]", "a.py::test_one", f"a.py::test_two[{ON_REAL}-x-2]", "b.py::test"):
        assert not is_listed(words, listed), words
    assert name_on_both(f"a.py::test[{ON_REAL}]") == "a.py::test"
