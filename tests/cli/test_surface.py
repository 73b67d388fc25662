"""Every command and flag that Run:ai's references list is known; what is not refused has an effect."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rowlock import submit_fields
from rowlock.cli import runai_tree
from rowlock.cli.grammar import Command, CommandLine, Flag, Group, flags_of, parse
from rowlock.cli.submit.assets import asset_references
from rowlock.cli.submit.flags import ANY_FRAMEWORK, submit_flags
from rowlock.cli.submit.request import request_specs

REPO = Path(__file__).resolve().parents[2]
SURFACE = (REPO / "tests" / "cli" / "runai_surface.txt").read_text(encoding="utf-8").splitlines()
FIRST_GENERATION_FLAGS, SECOND_GENERATION_FLAGS = 71, 98


def _words(spelling: str) -> Iterator[str]:
    for text in SURFACE:
        if text.startswith(spelling):
            yield from text.partition(":")[2].split()


def test_every_line_is_known_and_the_table_says_its_state() -> None:
    """The counts are printed (`pytest -s`); docs/runai-flags.md has each line."""
    script = [sys.executable, "scripts/make_runai_table.py", "--check"]
    done = subprocess.run(script, cwd=REPO, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" 0 unknown") == 2


def test_the_list_is_whole() -> None:
    """The flags of a distributed submit: as many as the references of both generations have."""
    first = set(_words("1 submit-dist pytorch:"))
    second = set(_words("2 distributed submit:")) | set(_words("2 training standard submit:"))
    assert (len(first), len(second)) == (FIRST_GENERATION_FLAGS, SECOND_GENERATION_FLAGS)


# ---------------------------------------------------------------- nothing is ignored

CLIENT_SIDE = {
    "--name", "--job-name-prefix", "--name-prefix", "--attach", "--pod-running-timeout", "--wait-for-submit", "--dry-run",
    "--service-type", "--address", "--project", "--data-dir", "--framework", "--master-no-pvcs", "--args",
    "--nfs-server",  # it says whose directories -v names: tests/cli/test_runai.py
    "--compute",  # it stands beside the specs: test_runai_v2.py
}  # fmt: skip
"""Flags that do not change the `spec` by themselves; other tests say what they do."""
SAMPLES: dict[str, str] = {
    "int": "3", "float": "0.5", "--supplemental-groups": "10", "--toleration": "operator=Exists", "--new-pvc": "size=1Gi,path=/d",
    "--existing-pvc": "claimname=c,path=/d", "--pvc": "c:/d", "--volume": "/a:/b", "--host-path": "path=/a,mount=/b",
    "--configmap-volume": "name=c,path=/d", "--configmap-map-volume": "name=c,path=/d", "--secret-volume": "name=c,path=/d",
    "--empty-dir-volume": "path=/d", "--git-sync": "repository=r,path=/d", "--nfs": "server=n,path=/d,mountpath=/d",
    "--s3": "bucket=b,path=/d", "--env-secret": "A=s,key=k", "--env-my-credentials": "A=s,key=k",
    "--ttl-after-finish": "5s", "--auto-deletion-time-after-completion": "5s", "--termination-grace-period": "5s",
}  # fmt: skip


def _sample(flag: Flag, generation: int) -> list[str]:
    name = flag.names.split()[-1] if flag.names.split()[-1].startswith("--") else flag.names.split()[0]
    if not flag.takes_value:
        return [name]
    if "|" in flag.kind:
        return [name, next(word for word in flag.kind.split("|") if word not in (flag.default, "migProfile"))]
    if name == "--port":
        return [name, "8080:80" if generation == 1 else "container=80"]
    return [name, SAMPLES.get(name) or SAMPLES.get(flag.kind) or "A=1"]


def _specs(argv: list[str], generation: int, framework: str) -> tuple[dict[str, Any], ...]:
    command = Command("submit", "", "", "[NAME]", submit_flags(generation, framework), "ARGUMENTS...")
    line = parse(CommandLine("runai", "submit", argv), command, argv)
    return (*request_specs(line, generation, framework), asset_references(line))


CASES = [
    pytest.param(generation, framework, flag, id=f"V{generation} {framework} {flag.names}")
    for generation, framework in ((1, "PyTorch"), (1, "MPI"), (1, "Standard"), (2, ANY_FRAMEWORK), (2, "Standard"))
    for flag in submit_flags(generation, framework)
    if not flag.refuse and not set(flag.names.split()) & CLIENT_SIDE
]


@pytest.mark.parametrize(("generation", "framework", "flag"), CASES)
def test_a_flag_that_is_not_refused_changes_the_request(generation: int, framework: str, flag: Flag) -> None:
    rest = ["--", "python", "train.py"]
    before = _specs(rest, generation, framework)
    assert _specs([*_sample(flag, generation), *rest], generation, framework) != before


# ---------------------------------------------------------------- the tables


def _commands(node: Group | Command, path: str = "") -> Iterator[tuple[str, Command]]:
    if isinstance(node, Command):
        yield path, node
        return
    for child in node.commands:
        yield from _commands(child, f"{path} {child.name}".strip())


def test_no_command_spells_two_flags_alike() -> None:
    for path, command in _commands(runai_tree.ROOT):
        if not command.refuse:
            flags = flags_of(command)
            spellings = Counter(name for flag in flags for name in flag.spellings())
            places = Counter(flag.dest for flag in flags)
            assert max(spellings.values()) == max(places.values()) == 1, (
                path,
                spellings.most_common(1),
                places.most_common(1),
            )


def test_a_reason_is_a_sentence_that_promises_nothing() -> None:
    reasons = [row.refuse for row in submit_fields.SUBMIT_FIELDS if row.refuse]
    reasons += [command.refuse for _, command in _commands(runai_tree.ROOT) if command.refuse]
    for reason in reasons:
        assert len(reason.split()) >= 4 and not reason.endswith(".") and " yet" not in reason


def test_every_item_flag_has_its_keys() -> None:
    for row in submit_fields.SUBMIT_FIELDS:
        if row.kind == "items" and not row.refuse:
            for generation in (1, 2):
                if row.spellings(generation):
                    assert row.spellings(generation).split()[0] in submit_fields.ITEM_KEYS


@pytest.mark.parametrize("generation", [1, 2])
def test_a_field_of_the_request_is_named_by_its_flag(generation: int) -> None:
    names = submit_fields.flag_names(generation)
    portion = "-g, --gpu" if generation == 1 else "--gpu-portion-request"
    assert (names["spec.image"], names["spec.compute.gpuPortionRequest"]) == ("-i, --image", portion)
