"""A test that needs a framework which `make test-examples` installs is marked `examples`: CI's environment has none of them while
`make test` runs, but that of whoever writes the test may have them all. Files that start a real node are known to be such."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import REAL_NODE

TESTS = Path(__file__).parent
HEAVY = "accelerate|jax|keras|lightning|mpi4py|tensorflow|transformers|xgboost"
IMPORTS = re.compile(rf"(?m)(?:^|;)\s*(?:import|from) +(?:\w+, *)*(?:{HEAVY})\b")
PROGRAMS = {
    path: bool(IMPORTS.search(path.read_text(encoding="utf-8")))
    for folder in (TESTS.parent / "examples", TESTS / "diagnosis" / "programs")
    for path in folder.rglob("*.py")
}
"""Whether each program imports one."""
NAMES = sorted(
    {path.name for path, heavy in PROGRAMS.items() if heavy} - {p.name for p, heavy in PROGRAMS.items() if not heavy}
)
NEEDS = re.compile(rf"{IMPORTS.pattern}|(?:^|[/ ])(?:{'|'.join(map(re.escape, NAMES))})\b")
ANYWHERE = re.compile(rf"\b(?:{HEAVY}|{'|'.join(map(re.escape, NAMES))})\b")
"""Of modules whose text has none of these words nothing more is read."""


def needs_framework(node: ast.AST) -> bool:
    """Whether this code imports one, or holds the text of a program that does, or its name."""
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and NEEDS.search(one.value):
            return True
        if isinstance(one, (ast.Import, ast.ImportFrom)) and IMPORTS.search(ast.unparse(one)):
            return True
    return False


def names_in(node: ast.AST) -> set[str]:
    """What it refers to, the fixtures among its parameters included."""
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return found | {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}


def unmarked_tests(text: str) -> Iterator[str]:
    """The tests of a module that need such a framework, themselves or by what they use of their module, and are not marked so."""
    module = ast.parse(text)
    parts: dict[str, ast.AST] = {}
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            parts[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts |= {name: node.value for target in targets for name in names_in(target)}
    marks = {name for name, part in parts.items() if "pytest.mark.examples" in ast.unparse(part)} - {"pytestmark"}
    needing = {name for name, part in parts.items() if needs_framework(part)}
    while more := {name for name, part in parts.items() if names_in(part) & needing} - needing:
        needing |= more
    if "pytestmark" in parts and "pytest.mark.examples" in ast.unparse(parts["pytestmark"]):
        return
    for name in sorted(needing):
        part = parts[name]
        if not name.startswith("test_") or not isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        said = " ".join(map(ast.unparse, part.decorator_list))
        if "pytest.mark.examples" not in said and not set(re.findall(r"\w+", said)) & marks:
            yield name


def test_what_needs_a_framework_is_marked() -> None:
    paths = [path for path in TESTS.rglob("test_*.py") if "programs" not in path.parts and path != Path(__file__)]
    texts = {path: text for path in paths if ANYWHERE.search(text := path.read_text(encoding="utf-8"))}
    found = [f"{path.relative_to(TESTS)}::{name}" for path, text in texts.items() for name in unmarked_tests(text)]
    assert not found, f"mark them pytest.mark.examples, and put them where `make test-examples` looks: {found}"


def test_what_is_marked_is_run() -> None:
    """By `make test-examples`, or by `make frameworks`, which asks a registry for packages."""
    makefile = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
    lines = [line for line in makefile.splitlines() if "pytest" in line and "-m examples" in line]
    looked_at = [TESTS.parent / word for line in lines for word in line.split() if word.startswith("tests/")]
    marked = [
        p for p in TESTS.rglob("test_*.py") if p != Path(__file__) and "pytest.mark.examples" in p.read_text("utf-8")
    ]
    assert len(marked) > 3
    missed = [str(p) for p in marked if not any(p.is_relative_to(folder) for folder in looked_at)]
    assert not missed, f"`make test-examples` does not look there: {missed}"


RUNS = 'def test_it(cluster): cluster.run("python", "-c", PROGRAM)\n'


@pytest.mark.parametrize(
    "text",
    [
        'PROGRAM = "import os, jax; jax.distributed.initialize()"\n' + RUNS,
        'START = """\nfrom tensorflow import keras\n"""\nPROGRAM = START + "print()"\n' + RUNS,
        "def test_it():\n    import xgboost\n",
        'import pytest\n@pytest.fixture\ndef job(): return "healthy/frameworks/jax_steps.py"\ndef test_it(job): assert job\n',
    ],
)
def test_an_unmarked_test_is_found(text: str) -> None:
    assert list(unmarked_tests(text)) == ["test_it"]
    assert not list(unmarked_tests(f"import pytest\npytestmark = [pytest.mark.examples]\n{text}"))
    marked = text.replace("def test_it", "@heavy\ndef test_it")
    assert not list(unmarked_tests(f"import pytest\nheavy = pytest.mark.examples\n{marked}"))


@pytest.mark.parametrize(
    "text", ['SAID = "cannot import tensorflow"\ndef test_it(): assert SAID\n', "def test_jax(): pass\n"]
)
def test_a_framework_that_is_only_spoken_of_needs_no_mark(text: str) -> None:
    assert not list(unmarked_tests(text))


def test_files_that_start_a_real_node_run_one_after_the_other() -> None:
    """Two kubelets share the control groups of a machine, and each ends the other's pods."""
    starts = re.compile(r"(?m)^\s+(?:with )?.*\breal_node\(")
    found = {
        path.relative_to(TESTS.parent).as_posix()
        for path in TESTS.rglob("test_*.py")
        if starts.search(path.read_text(encoding="utf-8"))
    }
    assert found == REAL_NODE
