"""Docs that run: the commands on the docs pages are executed, in order, each page on a cluster of its own.

A fenced block marked `console` is run: lines that start with `$ ` are commands, the lines below them must appear in
the output in that order (`…` stands for anything). `console no-run` is shown only; `exit N` after `console` says that
the last command of the block must fail with that code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from benchmarks.__main__ import SECTIONS
from tests.kubectl.walks import kubectl

REPO = Path(__file__).resolve().parents[1]
PAGES = [REPO / "README.md", *sorted((REPO / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```console([^\n]*)\n(.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Step:
    command: str
    expected: tuple[str, ...]
    code: int


def steps(page: Path) -> Iterator[Step]:
    for info, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if "no-run" in info:
            continue
        fails = re.search(r"exit (\d+)", info)
        commands = re.split(r"^\$ ", body, flags=re.M)[1:]
        for i, text in enumerate(commands):
            command, *output = _joined(text)
            last = i == len(commands) - 1
            yield Step(command, tuple(output), int(fails[1]) if fails and last else 0)


def _joined(text: str) -> list[str]:
    """A command goes on after a backslash, and in lines that are indented."""
    lines = text.rstrip("\n").split("\n")
    command = lines.pop(0)
    while lines and (command.endswith("\\") or lines[0].startswith("  ")):
        command += "\n" + lines.pop(0)
    return [command, *(line for line in lines if line.strip())]


def matches(expected: tuple[str, ...], output: str) -> str | None:
    """None when every expected line appears in order; else the first that does not."""
    rest = iter(output.splitlines())
    for line in expected:
        if line.strip() == "…":
            continue
        pattern = re.compile(
            ".*".join(r"\s+".join(map(re.escape, part.split(" "))) for part in line.strip().split("…"))
        )
        if not any(pattern.search(re.sub(r"\s+", " ", have.strip())) for have in rest):
            return line
    return None


def search_path() -> str:
    """PATH; where it has no kubectl, with the folder of the control plane that `make real-cluster` built behind it."""
    path = os.environ["PATH"]
    if not shutil.which("kubectl") and (program := kubectl()):
        path = f"{path}{os.pathsep}{Path(program).parent}"
    return path


@pytest.mark.parametrize("page", [p for p in PAGES if list(steps(p))], ids=lambda p: p.name)
def test_commands_on_the_page_run(page: Path, tmp_path: Path) -> None:
    path = search_path()
    for tool in ("kubectl", "curl"):
        if any(tool in step.command for step in steps(page)) and not shutil.which(tool, path=path):
            pytest.skip(f"{tool} is not installed; this page's commands need it")
    bin_dir = Path(sys.executable).parent
    data = tmp_path / "data"
    env = {
        "PATH": f"{bin_dir}{os.pathsep}{path}",
        "HOME": str(tmp_path),
        "ROWLOCK_DATA_DIR": str(data),
        "LANG": "C.UTF-8",
    }
    place = tmp_path / "clone"  # what a page writes down stays out of the repository
    place.mkdir()
    for entry in REPO.iterdir():
        (place / entry.name).symlink_to(entry)
    try:
        for step in steps(page):
            done = subprocess.run(
                ["bash", "-c", step.command], cwd=place, env=env, text=True, capture_output=True, timeout=240
            )
            told = f"$ {step.command}\n{done.stdout}{done.stderr}"
            assert done.returncode == step.code, told
            missing = matches(step.expected, done.stdout + done.stderr)
            assert missing is None, f"the page promises {missing!r}\n{told}"
    finally:
        subprocess.run([bin_dir / "rowlock", "down", "--yes"], env=env, capture_output=True, timeout=200)


@pytest.mark.parametrize(
    "script",
    ["make_cli_reference.py", "make_runai_table.py", "make_room_map.py", "make_sync_client.py", "make_ui_types.py"],
)
def test_generated_files_are_what_the_code_says(script: str) -> None:
    done = subprocess.run([sys.executable, f"scripts/{script}", "--check"], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PATH = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.py|(?:[\w-]+/)+)`")
"""A backticked path of a module (`api.py`, `training/job.py`) or of a folder (`training/`)."""
ROOTS = (REPO, REPO / "src" / "rowlock", REPO / "examples")
DESIGN = sorted((REPO / "docs" / "design").glob("*.md"))


@cache
def rooms_and_modules() -> tuple[list[Path], set[str]]:
    """The folders of the package, and the names of all modules: looked up once for all pages."""
    rooms = [p.parent for p in (REPO / "src" / "rowlock").rglob("__init__.py")]
    roots = ("src", "tests", "scripts", "benchmarks", "examples")
    return rooms, {p.name for root in roots for p in (REPO / root).rglob("*.py")}


@pytest.mark.parametrize("page", [*PAGES, *DESIGN], ids=lambda p: p.name)
def test_paths_that_a_page_names_exist(page: Path) -> None:
    """With a slash: below the repository, the package, the examples, or a room that the page is about; else by name."""
    rooms, names = rooms_and_modules()
    for path in PATH.findall(page.read_text(encoding="utf-8")):
        if "/" in path:
            assert any((root / path).exists() for root in (*ROOTS, *rooms)), f"no such path: {path}"
        else:
            assert path in names, f"no such file: {path}"


TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.mark.parametrize("page", [*PAGES, *DESIGN], ids=lambda p: p.name)
def test_tests_that_a_page_names_exist(page: Path) -> None:
    """Who is told that a test holds something shall find it."""
    for path, name in TEST.findall(page.read_text(encoding="utf-8")):
        assert f"def {name}(" in (REPO / path).read_text(encoding="utf-8"), f"{path} has no {name}"


LINK = re.compile(r"\]\(([^)\s]+)\)")


def heading_anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get: lower case, dashes for spaces, no other signs."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [REPO / "CHANGELOG.md", *PAGES, *DESIGN], ids=lambda p: p.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"no such page: {link}"
        assert not anchor or anchor in heading_anchors(target), f"no such heading: {link}"


def test_the_page_of_benchmarks_holds_what_the_command_wrote_and_nothing_else() -> None:
    """A table that somebody pasted would say what nobody can measure again."""
    head, *sections = re.split(r"(?m)^## ", (REPO / "docs" / "benchmarks.md").read_text())
    assert head.startswith("# Benchmarks\n\nWritten by `make bench` (")
    first, *others = sections
    assert first.startswith("From submit to running ranks\n") and first.rstrip().endswith("|")
    form = re.compile(
        r"[^\n]+\n\n`python [^`\n]+` \([-\d]+, load before the start [\d.]+\)\n\n```text\n[^`]*\n```\n\s*"
    )
    for section in others:
        assert form.fullmatch(section), f"this is not what the command writes: {section[:80]}"
    assert {section.partition("\n")[0] for section in others} <= SECTIONS.keys(), "`make bench` would not write these"
