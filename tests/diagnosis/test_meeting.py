"""Ranks that are about to meet: all have come, and a library tries again after a pause. That is no hang until the longest pause is over."""

from __future__ import annotations

from typing import Any

import pytest
from tests.diagnosis.test_hang import LOAD, TORCH, dump, look

from rowlock.diagnosis.hang import judge_after, judge_ranks
from rowlock.diagnosis.observation import RankObservation
from rowlock.diagnosis.rendezvous import Rendezvous, expected_ranks, parse_rendezvous, torchrun_rendezvous
from rowlock.diagnosis.stacks import Stack

SITE = "/env/lib/python3.11/site-packages/"
INIT = dump(("init_process_group", f"{TORCH}distributed/distributed_c10d.py", 1800), ("<module>", "/w/ddp.py", 3))
JAX = dump(("State.initialize", f"{SITE}jax/_src/distributed.py", 173), ("<module>", "/w/ddp.py", 3))
OLD_JAX = dump(("initialize", f"{SITE}jax/_src/distributed.py", 332), ("<module>", "/w/ddp.py", 3))
TENSORFLOW = dump(
    (
        "CollectiveAllReduceExtended._initialize_multi_worker",
        f"{SITE}tensorflow/python/distribute/collective_all_reduce_strategy.py",
        602,
    ),
    ("<module>", "/w/ddp.py", 3),
)
XGBOOST = dump(
    ("init", f"{SITE}xgboost/collective.py", 102),
    ("CommunicatorContext.__enter__", f"{SITE}xgboost/collective.py", 353),
    ("<module>", "/w/ddp.py", 3),
)
AGENT = dump(
    ("_create_tcp_store", f"{TORCH}distributed/elastic/rendezvous/c10d_rendezvous_backend.py", 160),
    ("<module>", "/env/bin/torchrun", 10),
)


def join(seen: Stack, *ranks: int, size: int = 2, **more: Any) -> list[RankObservation]:
    return [
        look(n, seen, rendezvous=Rendezvous(size, rank, "m-0", 29500), looks=5, watched=4.0, **more)
        for n, rank in enumerate(ranks)
    ]


@pytest.mark.parametrize("seen", [INIT, JAX, OLD_JAX, TENSORFLOW, XGBOOST, AGENT])
@pytest.mark.parametrize(
    ("together", "is_connected", "kind"),
    [
        (0.0, True, "moving"),
        (16.0, True, "stuck"),
        (16.0, False, "moving"),
        (90.0, False, "moving"),
        (101.0, False, "stuck"),
    ],
)
def test_ranks_that_have_all_come_have_time_to_meet(
    seen: Stack, together: float, is_connected: bool, kind: str
) -> None:
    looks = join(seen, 0, 1, together=together, is_connected=is_connected)
    assert judge_ranks(looks).kind == kind
    assert judge_after(looks, 101.0).kind == "stuck", "a hang that is told again is as much later"


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        (join(INIT, 0, 1, size=3), "2 ranks run, they expect 3"),
        (join(INIT, 1, 1, 2, size=3), "rank 0 and rank 1 join as rank 1, and nobody as rank 0"),
        (join(INIT, 0, size=2), "1 rank runs, it expects 2"),
    ],
)
def test_what_is_missing_is_told_at_once(looks: list[RankObservation], said: str) -> None:
    fresh = [look(n, o.stack, rendezvous=o.rendezvous, together=0.0, is_connected=False) for n, o in enumerate(looks)]
    found = judge_ranks(fresh)
    assert found.kind == "stuck" and found.sentence.startswith(f"The rendezvous is not complete: {said};")


def test_what_is_said_of_ranks_that_are_about_to_meet_and_of_those_that_cannot() -> None:
    near, far = (join(INIT, 0, 1, together=12.0, is_connected=each) for each in (True, False))
    assert (
        judge_ranks(far).sentence
        == "Nothing hangs: all 2 ranks have been in init_process_group at ddp.py:3 for 12 s; rank 0 and rank 1 have no connection"
        " to another rank yet, for a library tries again after pauses of up to 90 s."
    )
    assert judge_ranks(near).sentence.endswith("for 12 s, and find each other.")
    assert judge_after(far, 100.0).sentence.startswith(
        "The rendezvous is not complete: all 2 ranks that run wait for others to come, and rank 0 and rank 1 have no connection to"
        " another rank; they are in init_process_group at ddp.py:3, silent for 106 s; compare WORLD_SIZE, RANK, MASTER_ADDR and"
    )


def test_a_library_that_asks_again_in_a_rendezvous_has_not_moved() -> None:
    """torchrun asks once a second how many nodes have come, and may be seen at it; elsewhere another line is a movement."""

    def asks(*inside: tuple[str, str, int], at: int = 10) -> Stack:
        elastic = f"{TORCH}distributed/elastic/rendezvous/dynamic_rendezvous.py"
        return dump(
            *inside, ("DynamicRendezvousHandler.next_rendezvous", elastic, 1171), ("<module>", "/env/bin/torchrun", at)
        )

    sleeping, reading = (
        asks(("_delay", f"{TORCH}distributed/elastic/rendezvous/utils.py", 181)),
        asks(("get", "c10d.py", 3)),
    )
    assert sleeping.position == reading.position != asks(at=11).position
    assert INIT.position != LOAD.position and sleeping.format_frames() != reading.format_frames()


def agents(count: int, setting: str, **more: Any) -> list[RankObservation]:
    told = torchrun_rendezvous(["torchrun", "--nnodes", setting, "--rdzv-backend", "c10d"], {})
    return [look(n, AGENT, rendezvous=told, looks=5, watched=4.0, **more) for n in range(count)]


@pytest.mark.parametrize(
    ("count", "setting", "is_connected", "together", "kind"),
    [
        (2, "2:4", True, 0.0, "moving"),
        (2, "2:4", True, 44.0, "moving"),
        (2, "2:4", True, 46.0, "stuck"),
        (2, "2", True, 16.0, "stuck"),
        (4, "2:4", True, 16.0, "stuck"),
        (1, "1:2", False, 44.0, "moving"),
        (1, "2:4", False, 0.0, "stuck"),
    ],
)
def test_an_elastic_torchrun_waits_for_more_nodes_than_it_needs(
    count: int, setting: str, is_connected: bool, together: float, kind: str
) -> None:
    """For 30 seconds by default, and then begins with those that came."""
    found = judge_ranks(agents(count, setting, together=together, is_connected=is_connected))
    assert found.kind == kind
    if kind == "moving":
        came = "1 pod runs one" if count == 1 else f"{count} pods run one"
        most = setting.partition(":")[2]
        assert found.sentence.startswith(
            f"Nothing hangs so far: torchrun takes up to {most} nodes (--nnodes {setting}), and {came}; it waits for more (30 s"
        )


def test_each_library_has_its_own_settings_to_compare() -> None:
    for seen, words in ((JAX, "num_processes"), (TENSORFLOW, "TF_CONFIG"), (XGBOOST, "tracker")):
        sentence = judge_ranks(join(seen, 0, 1, size=3)).sentence
        assert words in sentence and "WORLD_SIZE" not in sentence


def test_what_jax_waits_for_is_in_the_variables_of_its_calls() -> None:
    def read(name: str, **variables: str) -> Rendezvous | None:
        found = [{"name": key, "repr": value} for key, value in variables.items()]
        return parse_rendezvous([{"thread_name": "MainThread", "frames": [{"name": name, "locals": found}]}])

    told = {"coordinator_address": '"m-0:1234"', "num_processes": "3", "process_id": "1"}
    assert read("State.initialize", **told) == read("initialize", **told) == Rendezvous(3, 1, "m-0", 1234)
    assert read("initialize", coordinator_address="None", num_processes="None", process_id="None") is None


@pytest.mark.parametrize(
    ("variables", "size"),
    [
        ({"WORLD_SIZE": "3"}, 3),
        ({"TF_CONFIG": '{"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}}'}, 3),
        ({"WORLD_SIZE": "many"}, 0),
        ({"TF_CONFIG": '{"cluster": ["a"]}'}, 0),
        ({"TF_CONFIG": '{"cluster": {"worker": 3}}'}, 0),
        ({"TF_CONFIG": "["}, 0),
        ({}, 0),
    ],
)
def test_how_many_ranks_the_variables_tell_of(variables: dict[str, str], size: int) -> None:
    assert expected_ranks(variables) == size
