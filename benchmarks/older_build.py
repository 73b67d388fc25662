"""A budget of this build beside the same of an older one, in the same minutes: `make bench BENCH=first-byte AGAINST=REF`.

The two take turns, and the one that begins changes: what a machine does meanwhile meets both. The client is the same for both.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.jobs import Figure

REPO = Path(__file__).resolve().parents[1]
ROUNDS = 4


def beside(ref: str, measure: Callable[[], Iterator[Figure]]) -> Iterator[Figure]:
    """The figures of this build; the floor of each is the same figure of the build of `ref`, a commit of this repository."""
    rounds: dict[str, list[list[Figure]]] = {"": [], ref: []}
    with tempfile.TemporaryDirectory(prefix="rowlock-older-") as place:
        unpack(ref, Path(place))
        compile_sources(REPO / "src")
        for number in range(ROUNDS):
            for build in ("", ref) if number % 2 == 0 else (ref, ""):
                with use_build(Path(place) / "src" if build else REPO / "src"):
                    rounds[build].append(list(measure()))
                said = "; ".join(figure.row().split("|")[2].strip() for figure in rounds[build][-1])
                print(f"… round {number + 1}, {build or 'this build'}: {said}", file=sys.stderr, flush=True)
    for ours, theirs in zip(zip(*rounds[""], strict=True), zip(*rounds[ref], strict=True), strict=True):
        yield replace(ours[0], values=_all(ours), floor=_all(theirs), beside=f"the build of {ref}")


def _all(figures: tuple[Figure, ...]) -> list[float]:
    return [value for figure in figures for value in figure.values]


def unpack(ref: str, place: Path) -> None:
    """The sources of a commit, compiled, so that its first server need not do it."""
    packed = subprocess.run(["git", "-C", str(REPO), "archive", ref, "src"], stdout=subprocess.PIPE, check=False)
    if packed.returncode:
        raise SystemExit(f"{ref} is no commit of this repository: name one that `git log` shows")
    subprocess.run(["tar", "-x", "-C", str(place)], input=packed.stdout, check=True)
    compile_sources(place / "src")


def compile_sources(source: Path) -> None:
    """So that no server that is measured compiles its modules."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(source)], env=env, check=True)


@contextmanager
def use_build(source: Path) -> Iterator[None]:
    """Commands that are started meanwhile import rowlock from this directory."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(source)
    try:
        found = subprocess.run(
            [sys.executable, "-P", "-c", "import rowlock; print(rowlock.__file__)"],
            capture_output=True,
            text=True,
            check=True,
        )
        if not found.stdout.startswith(str(source)):
            raise SystemExit(f"{sys.executable} takes rowlock from {found.stdout.strip()}, not from {source}")
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
