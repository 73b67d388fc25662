"""What `rowlock skill` tells coding agents is what the commands take and answer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from rowlock.answers.sweeps import SweepDetailed
from rowlock.answers.workloads import Phase, Workload
from rowlock.cli.commands.tree import ROOT, SHARED
from rowlock.cli.grammar import Command, CommandError, CommandLine, parse, resolve
from rowlock.cli.main import run


def text(capsys: pytest.CaptureFixture[str]) -> str:
    assert run(ROOT, ["skill"], SHARED) == 0
    return capsys.readouterr().out


def typed(skill: str) -> Iterator[str]:
    """The command lines of its blocks, and those in its sentences."""
    for block in re.findall(r"```console\n(.*?)```", skill, re.S):
        yield from block.splitlines()
    yield from re.findall(r"`(rowlock [a-z][^`]*)`", re.sub(r"```.*?```", "", skill, flags=re.S))


def take(line: str) -> None:
    """Parse the line as the program does, and run nothing. Raises CommandError."""
    argv = shlex.split(line)[1:]
    node, path, args = resolve(ROOT, argv, SHARED)
    assert isinstance(node, Command), f"{line}: it is a group"
    command = CommandLine("rowlock", path, argv)
    parse(command, node, args, SHARED)


def test_its_commands_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    lines = list(typed(text(capsys)))
    assert len(lines) > 20 and any("--json" in line for line in lines)
    for line in lines:
        take(line)
    for wrong in ("rowlock lst", "rowlock why train --jsn"):
        with pytest.raises(CommandError):
            take(wrong)


def test_its_fields_and_phases_are_those_of_the_answers(capsys: pytest.CaptureFixture[str]) -> None:
    skill = text(capsys)
    fields = re.search(r"Fields of a job in .*?: ((?:`\w+`, )+`\w+`)\.", skill)
    assert fields and set(re.findall(r"`(\w+)`", fields[1])) <= set(Workload.__annotations__)
    phases = re.search(r"^Phases: (.*)\.$", skill, re.M)
    assert phases and set(phases[1].split(", ")) <= set(get_args(Phase))
    assert {"best", "entries"} <= set(SweepDetailed.__annotations__)


def test_its_exit_codes_are_those_of_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skill, here = text(capsys), ["--data-dir", str(tmp_path)]
    told = dict(re.findall(r"^\| (\d+) \| (\w+)", skill, re.M))
    assert told == {"0": "done", "1": "refused", "2": "the", "130": "interrupted"}
    found = [run(ROOT, argv, SHARED) for argv in (["version"], ["list", *here], ["list", "--jsn"])]
    assert found == [0, 1, 2], capsys.readouterr().err
