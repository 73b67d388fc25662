"""`pyproject.toml` says what rowlock needs, `constraints.txt` which versions development and CI install.

`make lock` makes the second from the first. These tests say, without a network, when it has to be run again.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPO = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
PRIVATE = re.compile(r"(^|\.)_[a-z]|^uvicorn\.protocols\.")
"""Modules that their library may change in any release: underscored ones, and uvicorn's protocol classes."""


def environment(python: str, system: str, machine: str) -> dict[str, str]:
    """The variables of PEP 508 for one machine, as far as they differ between those that rowlock supports."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": system,
        "platform_machine": machine,
        "platform_system": system.capitalize(),
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }


ENVIRONMENTS = [environment(python, *machine) for python, machine in itertools.product(PYTHONS, MACHINES)]


def requirements() -> list[Requirement]:
    """All that pyproject.toml asks for: at run time, in its extras, and to build the package."""
    project = PROJECT["project"]
    lines = itertools.chain(
        project["dependencies"], *project["optional-dependencies"].values(), PROJECT["build-system"]["requires"]
    )
    return [r for r in map(Requirement, lines) if r.name != project["name"]]


def pins() -> list[tuple[Requirement, bool]]:
    """Each line of constraints.txt, and whether pyproject.toml itself asked for it (uv notes that)."""
    found = []
    for line in (REPO / "constraints.txt").read_text(encoding="utf-8").splitlines():
        pin, _, note = line.partition("#")
        if pin.strip():
            found.append((Requirement(pin), "(pyproject.toml)" in note))
    return found


def applies(requirement: Requirement, where: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(where)


@pytest.mark.parametrize(
    "where", ENVIRONMENTS, ids=lambda e: f"{e['python_version']}-{e['sys_platform']}-{e['platform_machine']}"
)
def test_every_requirement_has_a_pin_that_satisfies_it(where: dict[str, str]) -> None:
    pinned: dict[str, list[str]] = {}
    for pin, _ in pins():
        if applies(pin, where):
            (only,) = pin.specifier
            assert only.operator == "==", f"{pin} is no pin"
            pinned.setdefault(canonicalize_name(pin.name), []).append(only.version)
    for wanted in requirements():
        if applies(wanted, where):
            versions = pinned.get(canonicalize_name(wanted.name), [])
            assert len(versions) == 1 and wanted.specifier.contains(versions[0], prereleases=True), (
                f"pyproject.toml asks for {wanted}, constraints.txt has {versions or 'nothing'}: run `make lock`"
            )


def test_no_pin_is_left_over() -> None:
    wanted = {canonicalize_name(r.name) for r in requirements()}
    left = sorted(pin.name for pin, direct in pins() if direct and canonicalize_name(pin.name) not in wanted)
    assert not left, f"pyproject.toml asks no longer for {', '.join(left)}: run `make lock`"


def test_the_supported_pythons_are_said_alike() -> None:
    versions = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert tuple(versions) == PYTHONS and PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in (REPO / "README.md").read_text(encoding="utf-8")


def private_imports() -> Iterator[tuple[Path, str]]:
    for path in sorted((REPO / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                if PRIVATE.search(name) and name.split(".")[0] not in {*sys.stdlib_module_names, "rowlock"}:
                    yield path, name


def test_libraries_whose_private_parts_are_used_have_an_upper_bound() -> None:
    bounded = {r.name for r in requirements() if any(s.operator in ("<", "<=", "==", "~=") for s in r.specifier)}
    used = list(private_imports())
    assert used
    for path, name in used:
        assert name.split(".")[0] in bounded, f"{path.name} imports {name}: give it an upper bound in pyproject.toml"
