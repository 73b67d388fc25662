"""What a shell is told that may come next, and that bash takes it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import BIN, Cluster, lent

from rowlock.cli import runai_tree
from rowlock.cli.commands import tree
from rowlock.cli.completion.command import candidates


def rowlock(*words: str) -> list[str]:
    return candidates(tree.ROOT, words, tree.SHARED)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("susp",), ["suspend"]),
        (("project", "de"), ["delete"]),
        (("--data-dir", "/x", "proj"), ["project"]),
        (("up", "--netw"), ["--network"]),
        (("up", "--network", ""), ["auto", "namespaces", "rewrite"]),
        (("up", "--network=r"), ["--network=rewrite"]),
        (("up", "--nodes", "2", "--network", "a"), ["auto"]),
        (("completion", ""), ["bash", "fish", "zsh"]),
        (("run", "--", "python", "tr"), []),
        (("run", "python", "--n"), []),
        (("nothing", ""), []),
        (("up", "--nonsense", "x"), []),
        (("__comp",), []),
        (("completion", '"f'), ["fish"]),
        (("completion", "fish", "z"), []),
    ],
)
def test_what_may_come_next(words: tuple[str, ...], found: list[str]) -> None:
    assert rowlock(*words) == found


def test_every_command_and_flag_of_both_programs_can_be_completed() -> None:
    assert {"run", "list", "verify-resume"} <= set(rowlock(""))
    assert {"submit", "training", "workspace"} <= set(candidates(runai_tree.ROOT, [""], runai_tree.SHARED))
    flags = candidates(runai_tree.ROOT, ["training", "pytorch", "submit", "--"], runai_tree.SHARED)
    assert {"--image", "--workers", "--gpu-devices-request", "--project"} <= set(flags)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("completion")) as made:
        made.up("--without", "kubelet")
        made.run("rowlock", "project", "create", "team-a")
        for name, project in (("mine", "default"), ("minor", "default"), ("theirs", "team-a")):
            made.run("rowlock", "run", "-d", "--name", name, "-p", project, "--", "true")
        made.run("rowlock", "run", "-d", "--name", "gone", "--", "true")
        made.run("rowlock", "delete", "--yes", "gone")
        yield made


SHELLS = {
    "bash": 'source <({program} completion bash); COMP_WORDS=({words}); COMP_CWORD={last}; _{program}; printf "%s\\n" "${{COMPREPLY[@]}}"',
    "fish": "{program} completion fish | source; complete -C '{line}'",
}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("rowlock logs mi", ["mine", "minor"]),
        ("rowlock delete mine mino", ["minor"]),
        ("rowlock describe -p team-a t", ["theirs"]),
        ("rowlock diff mine g", ["gone"]),
        ("rowlock plot mine g", ["gone"]),
        ("rowlock tensorboard g", ["gone"]),
        ("rowlock top mino", ["minor"]),
        ("rowlock run --resume-from g", ["gone"]),
        ("rowlock list --project te", ["team-a"]),
        ("runai suspend mine", ["mine"]),
        ("runai training pytorch logs minor", ["minor"]),
        ("runai config project te", ["team-a"]),
        ("rowlock suspen", ["suspend"]),
    ],
)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes(cluster: Cluster, shell: str, line: str, found: list[str]) -> None:
    """In a real one, with names from a real server."""
    if (path := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed: its completion is tried where it is")
    words = line.split()
    script = SHELLS[shell].format(program=words[0], words=line, last=len(words) - 1, line=line)
    done = subprocess.run([path, "-c", script], env=cluster.env, capture_output=True, text=True, timeout=200)
    assert done.stderr == ""
    assert done.stdout.split() == found


def test_without_a_server_there_are_no_names_and_no_errors(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "ROWLOCK_DATA_DIR": str(tmp_path)}
    argv = ["rowlock", "__complete", "--", "logs", ""]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_shell_that_is_not_known_is_refused(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["rowlock", "completion", "basch"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "there is no completion for basch. Did you mean `bash`? Known: bash, zsh, fish." in done.stderr
