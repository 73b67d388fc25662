"""Where CI=true, a skip whose reason is not listed makes the run red."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.evidence import DATA

CONFTEST = DATA.parent / "conftest.py"


@pytest.mark.parametrize(
    ("ci", "reason", "code"),
    [
        ("true", "only root changes users", 0),
        ("true", "it was late", 1),
        ("true", "only root changes users, and it was late", 1),
        ("true", "perhaps only root changes users", 1),
        ("true", "no Docker today", 1),
        ("", "it was late", 0),
    ],
)
def test_a_skip_needs_a_listed_reason(tmp_path: Path, ci: str, reason: str, code: int) -> None:
    for path in (CONFTEST, CONFTEST.with_name("allowed_skips.txt")):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        f"def test_skipped(): pytest.skip({reason!r})\n"
        "def test_passed(): pass\n"
        "@pytest.mark.xfail\n"
        "def test_expected(): assert False\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, env={"CI": ci}, text=True, capture_output=True, timeout=200)
    assert done.returncode == code, done.stdout + done.stderr
    named = f"test_it.py::test_skipped was skipped for a reason that allowed_skips.txt does not list: {reason}"
    assert (named in done.stdout) == bool(code)


def allowed_lines() -> list[str]:
    lines = CONFTEST.with_name("allowed_skips.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_an_allowed_reason_is_a_whole_sentence() -> None:
    """What is left open must be what the machine says itself, after a sentence of ours."""
    for line in allowed_lines():
        assert len(re.sub(r"\\.|[.*+?()\[\]]", "", line)) > 15, f"this could be any reason: {line}"
        assert not re.match(r"[.(\[]", line) and line.count(".*") <= 1, f"this is not one sentence: {line}"


def test_two_processes_tell_of_skips_and_failures_as_one_does(tmp_path: Path) -> None:
    for path in (CONFTEST, CONFTEST.with_name("allowed_skips.txt")):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "test_first.py").write_text("import pytest\ndef test_skipped(): pytest.skip('it was late')\n")
    (tmp_path / "test_second.py").write_text("def test_failed(): assert False\ndef test_passed(): pass\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-n",
        "2",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
    ]
    skipped, failed = (
        subprocess.run(
            [*command, "-k", word], cwd=tmp_path, env={"CI": "true"}, text=True, capture_output=True, timeout=90
        )
        for word in ("skipped or passed", "failed or passed")
    )
    assert skipped.returncode == 1 and "1 passed, 1 skipped" in skipped.stdout, skipped.stdout + skipped.stderr
    assert "test_first.py::test_skipped was skipped for a reason that allowed_skips.txt does not list" in skipped.stdout
    assert failed.returncode == 1 and "1 failed, 1 passed" in failed.stdout, failed.stdout + failed.stderr


def test_what_is_left_out_on_a_real_cluster_is_there_to_be_left_out() -> None:
    """A test that moves would run there again, or a name that nobody has would hide the next test that takes it."""
    root = CONFTEST.parent.parent
    lines = (CONFTEST.parent / "engines" / "not_on_a_real_cluster.txt").read_text(encoding="utf-8").splitlines()
    for line in filter(None, lines):
        if line.startswith("#"):
            continue
        file, _, function = line.partition("[")[0].partition("::")
        text = (root / file).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in text, f"{line}: there is no such test"


def test_every_test_of_a_real_control_plane_is_run_by_a_target() -> None:
    """Two rooms had tests that nobody ran."""
    makefile = (DATA.parents[1] / "Makefile").read_text()
    run = [word for line in re.findall(r"-m real (.+)", makefile) for word in line.split()]
    marked = re.compile(r"mark\.real\b")
    tests = [path for path in DATA.parent.rglob("test_*.py") if marked.search(path.read_text())]
    left = [
        name
        for path in tests
        if not any((name := str(path.relative_to(DATA.parents[1]))).startswith(each) for each in run)
    ]
    assert len(tests) > 20 and not left, f"`make test-real` does not run {left}"
