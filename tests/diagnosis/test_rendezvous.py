"""Ranks that wait for each other to come: what each expects, and what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.diagnosis.rendezvous import (
    Rendezvous,
    have_all_come,
    parse_rendezvous,
    rendezvous_fault,
    torchrun_rendezvous,
)


def call(name: str, **variables: str) -> dict[str, Any]:
    return {"name": name, "locals": [{"name": key, "repr": value} for key, value in variables.items()]}


STORE = call(
    "_create_c10d_store", hostname='"m-0"', port="29500", rank="1", world_size="3", timeout="<datetime.timedelta>"
)
UNRESOLVED = "[W1129 09:30:31.4 socket.cpp:764] [c10d] The IPv6 network addresses of (m-0, 29500) cannot be retrieved (gai error: -2 - …)."


@pytest.mark.parametrize(
    ("frames", "log", "found"),
    [
        ([STORE, call("init_process_group", world_size="-1", rank="-1")], "", Rendezvous(3, 1, "m-0", 29500)),
        ([STORE], UNRESOLVED, Rendezvous(3, 1, "m-0", 29500, is_unresolved=True)),
        ([STORE], UNRESOLVED.replace("m-0", "m-00"), Rendezvous(3, 1, "m-0", 29500)),
        ([call("_store_based_barrier", rank="0", rendezvous_count="2")], "", Rendezvous(2, 0)),
        ([call("_new_process_group_helper", group_size="4", group_rank="2")], "", Rendezvous(4, 2)),
        ([call("main", rank="1", world_size="3")], "", None),
        ([call("_create_c10d_store", world_size="<object>", rank="-1")], "", None),
        ([{"name": 3, "locals": [None, {}]}, None], "", None),
    ],
)
def test_what_torchs_calls_tell(frames: list[Any], log: str, found: Rendezvous | None) -> None:
    assert parse_rendezvous([{"thread_name": "MainThread", "frames": frames}], log) == found


@pytest.mark.parametrize(
    "threads", [None, 3, [3], [{"frames": 4}], [{"frames": [{"name": "_create_c10d_store", "locals": 4}]}]]
)
def test_what_is_no_stack_tells_nothing(threads: object) -> None:
    assert parse_rendezvous(threads) is None


def agent(nodes: str, size: int, most: int, rank: int | None, host: str, port: int = 29500, **more: Any) -> Rendezvous:
    """What a torchrun was told."""
    return Rendezvous(size, rank, host, port, nodes=nodes, most=most, **{"group": "none", **more})


@pytest.mark.parametrize(
    ("command", "environ", "found"),
    [
        (
            "torchrun --nnodes 1:3 --rdzv_backend c10d --rdzv-endpoint m-0 a.py",
            {"PET_NNODES": "2"},
            agent("--nnodes 1:3", 1, 3, None, "m-0", 29400),
        ),
        ("torchrun --nnodes=3 a.py", {}, agent("--nnodes 3", 3, 3, 0, "127.0.0.1")),
        (
            "torchrun a.py",
            {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "m-0", "PET_MASTER_PORT": "23456"},
            agent("PET_NNODES=2", 2, 2, 1, "m-0", 23456),
        ),
        (
            "torchrun --nnodes 2 --rdzv-backend=c10d --rdzv_id=a",
            {},
            agent("--nnodes 2", 2, 2, None, "localhost", 29400, group="a"),
        ),
        (
            "torchrun --nnodes 2 a.py",
            {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "m-0:29401", "PET_RDZV_ID": "b"},
            agent("--nnodes 2", 2, 2, None, "m-0", 29401, group="b"),
        ),
        (
            "torchrun --standalone a.py",
            {"PET_NNODES": "2"},
            agent("PET_NNODES=2", 2, 2, 0, "127.0.0.1", standalone=True),
        ),
        ("torchrun --nnodes", {}, None),
        ("torchrun a.py", {}, None),
    ],
)
def test_what_a_torchrun_was_told(command: str, environ: dict[str, str], found: Rendezvous | None) -> None:
    assert torchrun_rendezvous(command.split(), environ) == found


def agents(*commands: str) -> list[tuple[str, str, Rendezvous | None]]:
    """One torchrun in each pod, which wait for each other."""
    found = [torchrun_rendezvous(["torchrun", *command.split()], {}) for command in commands]
    return [(f"rank {n}", f"j-{n}", each) for n, each in enumerate(found)]


TWO = "torchrun waits for 2 nodes (--nnodes 2), and 2 pods run one"
C10D = "--nnodes 2 --rdzv-backend c10d"


@pytest.mark.parametrize(
    ("commands", "text", "culprits"),
    [
        (
            [f"{C10D} --rdzv-id {n} --rdzv-endpoint m-0:29400" for n in "ab"],
            f"{TWO}, but their --rdzv-id differ: `a` and `b`",
            [],
        ),
        (
            [f"{C10D} --rdzv-endpoint m-0:2940{n}" for n in range(2)],
            f"{TWO}, but they look for each other at different ports: 29400 and 29401",
            [],
        ),
        (
            [C10D, C10D],
            f"{TWO}, but each looks for the others at localhost:29400, which in each pod is that pod itself: give all of them the"
            " --rdzv-endpoint of one pod",
            [],
        ),
        (
            ["--nnodes 2 --node-rank 0 --master-addr m-0"] * 2,
            f"{TWO}, and rank 0 and rank 1 run one with the same --node-rank",
            ["rank 0", "rank 1"],
        ),
        ([f"--nnodes 2 --node-rank {n} --master-addr m-0" for n in range(2)], "", []),
        ([f"--nnodes 1:2 --rdzv-backend c10d --rdzv-id {n}" for n in "ab"], "", []),
        ([f"{C10D} --rdzv-endpoint {host}:29400" for host in ("m-0", "10.0.0.7")], "", []),
    ],
)
def test_torchruns_that_cannot_find_each_other(commands: list[str], text: str, culprits: list[str]) -> None:
    """What their command lines tell is said at once; else they may be about to meet."""
    assert have_all_come(agents(*commands), far=True) is not bool(text)
    found = rendezvous_fault(agents(*commands), far=True)
    assert found == ((text, culprits) if text else (found[0], []))
    assert text or found[0].endswith("compare --rdzv-endpoint and --rdzv-id")


def test_torchruns_that_are_connected_share_one_address() -> None:
    """Pods may share a network, and with it localhost."""
    assert have_all_come(agents(C10D, C10D), far=False)


def join(*ranks: int, size: int = 3, **more: Any) -> list[tuple[str, str, Rendezvous | None]]:
    return [(f"rank {n}", f"j-{n}", Rendezvous(size, rank, "m-0", 29500, **more)) for n, rank in enumerate(ranks)]


COMING = "all {} ranks that run wait for others to come"
TORCHRUN = Rendezvous(2, nodes="PET_NNODES=2")
LOST = Rendezvous(2, 1, "old-0", 29500, is_unresolved=True)
ALONE = Rendezvous(2, 1, "127.0.0.1", 29500)


@pytest.mark.parametrize(
    ("waiting", "text", "culprits"),
    [
        (join(0, 1), "2 ranks run, they expect 3", []),
        (join(0, size=2), "1 rank runs, it expects 2", []),
        (join(0, 1, 1), "rank 1 and rank 2 join as rank 1, and nobody as rank 2", ["rank 1", "rank 2"]),
        (
            [*join(0, 1), ("rank 2", "j-2", Rendezvous(4, 2, "m-0", 29500))],
            "the ranks expect different numbers: rank 0 expects 3, rank 1 expects 3 and rank 2 expects 4",
            [],
        ),
        (
            [*join(0, size=2), ("rank 1", "j-1", LOST)],
            "rank 1 looks for rank 0 at old-0:29500, a name that does not resolve, and rank 0 listens at m-0:29500",
            ["rank 1"],
        ),
        (
            [*join(0, size=2), ("rank 1", "j-1", Rendezvous(2, 1, "m-0", 29501))],
            "rank 1 looks for rank 0 at m-0:29501, and rank 0 listens at m-0:29500",
            ["rank 1"],
        ),
        (
            [("rank 0", "j-0", Rendezvous(2, 0, "127.0.0.1", 29500)), ("rank 1", "j-1", ALONE)],
            "they look for rank 0 at 127.0.0.1:29500, which in each pod is that pod itself",
            [],
        ),
        ([("rank 0", "j-0", Rendezvous(2, 0, "127.0.0.1", 29500)), ("rank 1", "j-0", ALONE)], COMING.format(2), []),
        (join(0, 1, 2), COMING.format(3), []),
        ([("rank 0", "j-0", None)], "1 rank runs, it expects 4", []),
        (
            [("rank 0", "j-0", TORCHRUN)],
            "torchrun waits for 2 nodes (PET_NNODES=2), and 1 pod runs one",
            [],
        ),
        (
            [(f"rank {n}", f"j-{n}", TORCHRUN) for n in range(2)],
            "torchrun waits for 2 nodes (PET_NNODES=2), and 2 pods run one: they do not find each other, so compare"
            " --rdzv-endpoint and --rdzv-id",
            [],
        ),
        (
            [(f"rank {n}", f"j-{n}", Rendezvous(2, nodes="PET_NNODES=2", standalone=True)) for n in range(2)],
            "torchrun waits for 2 nodes (PET_NNODES=2) in each of 2 pods, but --standalone makes a rendezvous of its own in"
            " each pod: leave --standalone out",
            [],
        ),
    ],
)
def test_what_is_missing(waiting: list[tuple[str, str, Rendezvous | None]], text: str, culprits: list[str]) -> None:
    assert rendezvous_fault(waiting, 4) == (text, culprits)
