"""Completion as it is typed: a real bash, zsh and fish on a terminal, TAB, Enter, and the words that the program was then given."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import BIN, Cluster, lent
from tests.end_to_end.run.terminal import Terminal

STUB = """#!/bin/sh
case $1 in completion|__complete) exec {program} "$@";; esac
printf '%s\\n' "$@" >{given} && echo it was called
"""
"""In place of the program: it completes, and writes down what it is called with."""
START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(rowlock completion bash); PS1='rea''dy '\r"),
    "zsh": (["zsh", "-f", "-i"], "source <(rowlock completion zsh); PS1='rea''dy '\r"),
    "fish": (
        ["fish", "--no-config", "-i"],
        "rowlock completion fish | source; function fish_prompt; printf 'rea'; printf 'dy '; end\r",
    ),
}
"""A new account has no start-up files: zsh's completion is not switched on."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lent(tmp_path_factory.mktemp("typed")) as made:
        made.up("--without", "kubelet")
        made.run("rowlock", "project", "create", "team-a")
        for name, project in (("mine", "default"), ("other", "default"), ("theirs", "team-a")):
            made.run("rowlock", "run", "-d", "--name", name, "-p", project, "--", "true")
        yield made


@pytest.mark.parametrize(
    ("keys", "given"),
    [
        ("rowlock verify-res\t--st\t12", ["verify-resume", "--steps", "12"]),
        ("rowlock logs mi\t", ["logs", "mine"]),
        ("rowlock logs --project=te\tth\t", ["logs", "--project=team-a", "theirs"]),
        ("rowlock logs --project te\tth\t", ["logs", "--project", "team-a", "theirs"]),
        ("rowlock up --network=rew\t", ["up", "--network=rewrite"]),
        ("rowlock delete mine \t", ["delete", "mine", "other"]),
        ("rowlock run -- python a_fi\t", ["run", "--", "python", "a_file.py"]),
        ("rowlock logs 'mi\t", ["logs", "mine"]),
    ],
)
@pytest.mark.parametrize("shell", START)
def test_what_is_typed_is_completed(cluster: Cluster, tmp_path: Path, shell: str, keys: str, given: list[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its completion is tried where it is")
    stub, written = tmp_path / "bin" / "rowlock", tmp_path / "given"
    stub.parent.mkdir()
    stub.write_text(STUB.format(program=BIN / "rowlock", given=written))
    stub.chmod(0o755)
    (tmp_path / "a_file.py").touch()
    argv, start = START[shell]
    variables = [f"PATH={stub.parent}:{cluster.env['PATH']}", f"HOME={tmp_path}", f"ZDOTDIR={tmp_path}", "TERM=xterm"]
    terminal = Terminal(cluster, "env", "-C", str(tmp_path), *variables, *argv)
    terminal.type(start.encode())
    terminal.hear(b"ready ", 60)
    terminal.type(keys.encode() + b"\r")
    terminal.hear(b"it was called", 60)
    terminal.type(b"exit\r")
    terminal.end()
    assert written.read_text().split() == given, terminal.all_said
