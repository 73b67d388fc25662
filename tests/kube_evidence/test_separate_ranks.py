"""Ranks that never met, on a real cluster while they run: by the counters of their pods, their connections and their logs."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.kube_evidence.test_rank_observer import LOADS, Played, observed, pod, rank

from rowlock.errors import Forbidden
from rowlock.kube_evidence import rank_probe

STEPS = ["step 1 loss 0.9", "step 2 loss 0.8", "step 3 loss 0.7"]
ALONE = {"opened": 1, "accepted": 1, "failed": 0, "inside": 1, "peers": [], "packages": ["torch"], "variables": {}}
"""A pod that has connected to itself alone, as torch's store does in a world of one."""
APART = (
    "rank 0 and rank 1 never connected to each other (no pod has accepted a connection in 10 min): each works alone, as the only one;"
    " torch.distributed.init_process_group() was not called, or was told world_size=1"
)
SO_FAR = "rank 0 and rank 1 have not connected to each other so far (no pod has accepted a connection in 10 min)"
ONLY = "rank 0 and rank 1 each say in their log that they are the only rank (a world of 1): each works alone"
JOINS = [{"name": "init_process_group", "filename": "/site-packages/torch/distributed/c10d.py", "line": 1}, *LOADS]


def hexadecimal(address: str) -> str:
    """As /proc/net/tcp has it."""
    return ipaddress.ip_address(address).packed[::-1].hex().upper()


def said(
    words: list[str], *, answers: dict[str, Any] | None = None, host_network: bool = False, **network: Any
) -> list[str]:
    """The remarks on a job of two pods with these logs. `network`: what is another in the worker's."""
    master, worker = pod("master"), pod("worker")
    for number, one in enumerate((master, worker), 4):
        one["status"]["podIP"] = f"10.0.0.{number}"
        one["spec"]["hostNetwork"] = host_network
    seen: dict[str, Any] = {
        "j-master-0": {"ranks": [rank("0", LOADS)], "network": ALONE},
        "j-worker-0": {"ranks": [rank("1", LOADS)], "network": {**ALONE, **network}},
    }
    kube = Played(seen | (answers or {}), dict.fromkeys(seen, "2026-01-02T03:14:04.5Z"))
    kube.words = words
    return [remark["sentence"] for remark in observed(kube, master, worker).get("remarks", [])]


def test_ranks_that_train_and_have_met_nobody_are_told() -> None:
    assert said(STEPS) == [APART]
    assert said(["world_size: 1"]) == [APART]
    assert said(STEPS, peers=[hexadecimal("93.184.216.34")]) == [APART], "a server of something else is no rank"


@pytest.mark.parametrize(
    "network",
    [
        {"peers": [hexadecimal("10.0.0.4")]},
        {"accepted": 2},
        {"failed": 4},
    ],
)
def test_ranks_that_have_met_or_still_may_are_not(network: dict[str, Any]) -> None:
    """By a connection, by one that was accepted and is over, or by attempts that were refused."""
    assert said(STEPS, **network) == []


def test_ranks_without_figures_may_still_meet() -> None:
    assert said(["loads"]) == [SO_FAR]
    assert said(["loads"], packages=[]) == [], "nothing shows that it is a training"
    waits = {"j-worker-0": {"ranks": [rank("1", JOINS)], "network": ALONE}}
    assert said(["loads"], answers=waits) == said(STEPS, answers=waits) == [], "a rank that joins is said to wait"


def test_where_no_counters_are_the_logs_tell_if_each_does() -> None:
    refused = {"j-worker-0": Forbidden("no exec")}
    for more in ({"answers": refused}, {"host_network": True}, {"accepted": 2}):
        assert said(["rank 0 of 1", *STEPS], **more) == [ONLY]
        assert said(STEPS, **more) == said(["rank 0 of 1", "world_size=2"], **more) == []


@pytest.mark.parametrize(
    "network", [{"opened": "many"}, {"peers": "x"}, {"peers": ["zz", "00", "1" * 99]}, {"variables": [1]}]
)
def test_what_an_image_makes_up_is_no_evidence(network: dict[str, Any]) -> None:
    found = said(STEPS, **network)
    assert found == ([APART] if isinstance(network.get("peers"), list) else [])


def test_the_kernel_counts_what_a_pod_has_accepted_and_its_connections_to_itself() -> None:
    """Needs root, or user namespaces that an ordinary user may make."""
    program = """
import fcntl, json, os, socket, struct
from rowlock.kube_evidence import rank_probe
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 1))  # the interface goes up
tree = {os.getpid(): []}
def seen():
    found = rank_probe.pod_network([os.getpid()], tree)
    return [found[name] for name in ("opened", "accepted", "inside", "peers")]
server = socket.create_server(("127.0.0.2", 0))
states = [seen()]
near = socket.create_connection(server.getsockname(), source_address=("127.0.0.2", 0))
far, _ = server.accept()
states.append(seen())
far.close(); near.close()
states.append(seen())
near = socket.create_connection(server.getsockname(), source_address=("127.0.0.1", 0))
states.append(seen())
print(json.dumps(states))
"""
    apart = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net"]
    done = subprocess.run([*apart, sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[0, 0, 0, []], [1, 1, 1, []], [1, 1, 0, []], [2, 2, 0, ["0200007F"]]]


def test_of_the_environment_only_what_a_hint_needs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"LOCAL_RANK": "0", "TF_CONFIG": '{"secret": 1}', "TOKEN": "hunter2"}
    monkeypatch.setattr(rank_probe, "read_environ", lambda pid: told)
    assert rank_probe.hint_variables(1) == {"LOCAL_RANK": "0", "TF_CONFIG": "set"}
