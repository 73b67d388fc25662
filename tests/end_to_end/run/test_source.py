"""`rowlock run --source`: ranks run in a copy of the directory, and say where what they wrote is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent

TRAIN = """
import os, sys
if len(sys.argv) > 1 and os.environ["RANK"] == "0":
    open(sys.argv[1], "w").close()
    open(sys.argv[2]).read()  # until the test has edited model.py
import model
print(model.VALUE, open("data/x").read())
open(f"result-{os.environ['RANK']}", "w").close()
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("source")) as made:
        made.up()
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    (directory / "data").mkdir(parents=True)
    (directory / ".gitignore").write_text("data\n")
    (directory / "data" / "x").write_text("7")
    (directory / "train.py").write_text(TRAIN)
    (directory / "model.py").write_text("VALUE = 1\n")
    subprocess.run(["git", "init", "-q", str(directory)], check=True)
    return directory


def test_an_edit_reaches_no_rank_that_runs(running: Cluster, project: Path, tmp_path: Path) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    os.mkfifo(began)
    os.mkfifo(go)
    argv = ["rowlock", "run", "--source", str(project), "--working-dir", str(project), "--name", "old", "--", "python"]
    with subprocess.Popen(
        [*argv, "train.py", str(began), str(go)], env=running.env, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1
    ) as process:
        began.read_bytes()
        (project / "model.py").write_text("VALUE = 2\n")
        go.write_text("")
        said, told = process.communicate(timeout=200)
    assert (process.returncode, said) == (0, b"[rank 0] 1 7\n"), told
    assert b"Written beside the source, in " in told and told.strip().endswith(b": result-0")
    assert sorted(path.name for path in project.iterdir() if path.name.startswith("result")) == []
    argv[argv.index("old")] = "new"
    assert "[rank 0] 2 7\n" in running.run(*argv, str(project / "train.py"))
    code = running.json("rowlock", "show", "new", "--json")["ran"]["code"]
    assert code["source"] == str(project) and len(code["snapshot"]) == 40


def test_nothing_is_left_of_a_job_that_is_refused(running: Cluster, project: Path) -> None:
    words = ("--source", str(project), "--working-dir", str(project), "--name", "greedy", "-g", "90", "--", "true")
    running.run("rowlock", "run", *words, code=1)
    assert list((running.data / "sources" / "runs").glob("greedy*")) == []


@pytest.mark.parametrize(
    "flags, sentence",
    [
        (("--source", "/nope"), "--source /nope: there is no such directory on this machine"),
        (
            ("--source", "/usr", "--working-dir", "/tmp"),
            "the command runs in /tmp, which is not in --source /usr: go there",
        ),
        (("--source", ".", "--image", "x"), "pods of an image have the image's files"),
    ],
)
def test_what_no_copy_can_be_made_of(running: Cluster, flags: tuple[str, ...], sentence: str) -> None:
    assert sentence in running.run("rowlock", "run", *flags, "--", "true", code=2)


def test_a_repository_within_is_said_to_be_in_place(running: Cluster, project: Path) -> None:
    """As a submodule is: who edits it meanwhile changes what a running rank reads."""
    subprocess.run(["git", "init", "-q", str(project / "library")], check=True)
    (project / "library" / "a.py").touch()
    argv = ["rowlock", "run", "--source", str(project), "--working-dir", str(project), "-d", "--", "true"]
    done = subprocess.run(argv, env=running.env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "Not copied, because they are git repositories of their own: library. Edits" in done.stderr
