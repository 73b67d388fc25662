"""Environments of earlier torch programs are imported when the server starts, so that the first one starts warm, too."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until
from tests.waiting import until_async

from rowlock import kinds
from rowlock.kubelet.node import warm_ahead
from rowlock.kubelet.node.warm_ahead import WARM_AHEAD_ANNOTATION, note_use, parents_that_fit, read_environments
from rowlock.kubelet.shim.fact_files import write_fact
from rowlock.kubelet.warm import eligibility
from rowlock.objects import annotations

GIB = 1 << 30


def environment(number: int, used: float = 1000.0) -> dict[str, Any]:
    """One as it is noted, of an interpreter of this machine."""
    flags, env, torch = ["-u"], {"HOME": f"/home/{number}"}, "torch/version.py 1"
    key = eligibility.key_of(sys.executable, flags, env, torch)
    return {"key": key, "interpreter": sys.executable, "flags": flags, "env": env, "torch": torch, "used": used}


def test_the_last_used_environments_are_kept_in_their_order() -> None:
    known: list[dict[str, Any]] = []
    for number in range(6):
        known = note_use(known, environment(number), 1000.0 + number)
    assert [each["env"]["HOME"] for each in known] == ["/home/5", "/home/4", "/home/3", "/home/2"]
    assert note_use(known, environment(5), 1100.0) is known, "a thousand ranks are one note"
    assert note_use(known, environment(5), 5000.0)[0]["used"] == 5000.0
    assert [each["env"]["HOME"] for each in note_use(known, environment(3), 1100.0)][:3] == [
        "/home/3",
        "/home/5",
        "/home/4",
    ]


@pytest.mark.parametrize(("free", "parents"), [(0, 0), (4 * GIB - 1, 0), (4 * GIB, 1), (8 * GIB, 2), (999 * GIB, 2)])
def test_parents_take_an_eighth_of_the_free_memory(free: int, parents: int) -> None:
    assert parents_that_fit(free) == parents


DAMAGE: list[Any] = [
    None,
    {},
    {**environment(1), "key": "another"},
    {**environment(1), "interpreter": "/bin/sh"},
    {**environment(1), "env": {"LD_PRELOAD": "/tmp/x.so"}},
    {**environment(1), "env": {"HOME": 1}},
    {**environment(1), "flags": "-u"},
    {**environment(1), "used": "yesterday"},
]


@pytest.mark.parametrize("damaged", DAMAGE)
def test_what_is_damaged_is_left_out(tmp_path: Path, damaged: Any) -> None:
    path = tmp_path / "warm.json"
    write_fact(str(path), {"environments": [damaged, environment(2)]})
    assert read_environments(path) == [environment(2)]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"environments": 3}', "x" * (1 << 19)])
def test_a_file_that_is_none_of_ours_holds_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "warm.json"
    assert read_environments(path) == []
    path.write_text(text)
    assert read_environments(path) == []


def test_a_fifo_does_not_hold_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "warm.json")
    assert read_environments(tmp_path / "warm.json") == []


def test_environments_that_have_changed_or_are_old_are_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eligibility, "torch_of", lambda interpreter: "torch/version.py 1")
    assert warm_ahead.is_current(environment(1), 1000.0)
    assert not warm_ahead.is_current(environment(1), 1000.0 + warm_ahead.LONGEST_AGO)
    assert not warm_ahead.is_current({**environment(1), "interpreter": "/nowhere/python"}, 1000.0)
    monkeypatch.setattr(eligibility, "torch_of", lambda interpreter: "torch/version.py 2")
    assert not warm_ahead.is_current(environment(1), 1000.0)


LOWERED = """
import os
from rowlock.kubelet.warm import priority
def both():
    try:
        session = open("/proc/self/autogroup").read().split()[-1]
    except OSError:
        session = "-"
    return os.getpriority(os.PRIO_PROCESS, 0), session
os.setsid()
before = both()
priority.lower()
lowered = both()
priority.raise_again(os.getpid())
print(before == both(), lowered != before or lowered[1] == "-")
"""


def test_the_priority_comes_back() -> None:
    """A parent that kept the lowest one would hand it to all of its programs."""
    assert subprocess.run([sys.executable, "-c", LOWERED], capture_output=True, text=True).stdout == "True True\n"


def test_the_first_torch_program_after_a_start_is_warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not eligibility.torch_of(sys.executable):
        pytest.skip("torch is not installed beside this interpreter")
    monkeypatch.setattr(warm_ahead, "parents_that_fit", lambda free: 1)
    monkeypatch.setattr(warm_ahead, "AT_LOWEST_PRIORITY", False)  # beside other tests that takes minutes

    async def body(node: Node) -> None:
        def said() -> str:
            found = node.store.view.get(kinds.NODE, "", node.name)
            return str(annotations(found or {}).get(WARM_AHEAD_ANNOTATION, ""))

        async def program(name: str) -> str:
            container = {
                "command": [sys.executable, "-c", "import torch, os; print(os.getpriority(os.PRIO_PROCESS, 0))"]
            }
            await node.add(pod(name, "", container=container))
            await node.ended(name)
            return await node.log(name)

        usual = await program("first")
        await until((tmp_path / "warm.json").exists, "the environment to be noted")
        assert not said(), "nothing was imported ahead"
        await node.stop()
        await node.start()
        await until_async(lambda: said().endswith(": ready"), lambda: f"the import: {said()!r}", 600)
        assert sys.executable in said()
        assert await program("second") == usual, "it has the priority of its parent's imports"
        await node.told("second", "warm: torch was imported already")
        await node.stop()
        (tmp_path / "warm.json").unlink()
        await node.start()
        await until(lambda: not said(), lambda: f"the word of the last start to go: {said()!r}")

    on_node(tmp_path, body)


def test_a_program_that_comes_during_the_import_hurries_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts cold itself. On a busy machine an import with the lowest priority takes minutes, and its successors would wait, too."""
    if not eligibility.torch_of(sys.executable):
        pytest.skip("torch is not installed beside this interpreter")
    monkeypatch.setattr(warm_ahead, "parents_that_fit", lambda free: 1)

    async def body(node: Node) -> None:
        async def is_warm(name: str) -> bool:
            container = {"command": [sys.executable, "-c", "'torch'"]}
            await node.add(pod(name, "", container=container))
            await node.ended(name)
            await until(lambda: any(reason == "Started" for _, reason, _ in node.events(name)))
            return any("warm: torch was imported already" in said for *_, said in node.events(name))

        await is_warm("first")
        await until((tmp_path / "warm.json").exists, "the environment to be noted")
        await node.stop()
        await node.start()
        number = 0
        while not await is_warm(f"next-{number}"):
            number += 1
            assert number < 1000

    on_node(tmp_path, body)
