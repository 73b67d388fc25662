"""Ports of the node: who asks for one that is taken waits, in kube-scheduler's words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scheduling.cluster import Bench

from rowlock import api
from rowlock.kinds import POD
from rowlock.objects import condition
from rowlock.scheduling.model.host_ports import ALL, requested_ports


def port(number: int, address: str = "", protocol: str = "TCP") -> dict[str, Any]:
    return {"containerPort": 80, "hostPort": number, "hostIP": address, "protocol": protocol}


def add_pod(b: Bench, name: str, *ports: dict[str, Any], kind: str = "containers") -> None:
    containers: dict[str, Any] = {"containers": [{"name": "main", "image": "x"}]}
    containers.setdefault(kind, [{"name": "init", "image": "x", "restartPolicy": "Always"}])
    containers[kind][0]["ports"] = list(ports)
    b.pod(name, 0, spec=containers)


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        (port(6006), port(6006), True),
        (port(6006), port(6007), False),
        (port(6006), port(6006, protocol="UDP"), False),
        (port(6006), port(6006, "127.0.0.1"), True),
        (port(6006, "127.0.0.1"), port(6006, "0.0.0.0"), True),
        (port(6006, "127.0.0.1"), port(6006, "127.0.0.2"), False),
        (port(6006, "127.0.0.1"), port(6006, "127.0.0.1"), True),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_two_pods_on_one_node(first: dict[str, Any], second: dict[str, Any], meet: bool, kind: str) -> None:
    b = Bench()
    b.node("n1")
    b.queue("default")
    add_pod(b, "a", first, port(1000 + first["hostPort"]))
    b.turn()
    b.kubelet()
    add_pod(b, "b", second, kind=kind)
    b.turn()
    assert b.node_of("a") == "n1" and b.node_of("b") == ("" if meet else "n1")


def test_who_waits_is_told_and_starts_when_the_port_is_free() -> None:
    b = Bench()
    b.node("n1")
    b.node("n2")
    b.queue("default")
    for name in "abc":
        add_pod(b, name, port(6006))
    b.turn()
    waiting = next(name for name in "abc" if not b.node_of(name))
    assert {b.node_of(name) for name in "abc"} == {"", "n1", "n2"}
    found = condition(b.all(POD)[waiting], "PodScheduled") or {}
    assert "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports." in found["message"]
    b.kubelet()
    b.store.core.delete(POD, "t", next(name for name in "abc" if name != waiting), api.DeleteOptions(grace=0))
    b.store.commit()
    b.now += 2
    b.turn()
    assert b.node_of(waiting)


def test_ports_of_one_pod_do_not_meet() -> None:
    ports = [port(1), port(1, "127.0.0.1"), port(2, "127.0.0.1"), port(2, "127.0.0.2"), {"containerPort": 80}]
    assert requested_ports({"containers": [{"ports": ports}], "initContainers": [{"ports": [port(3)]}]}) == {
        "host port 1/TCP": ALL,
        "host port 1/TCP at 127.0.0.1": 1,
        "host port 2/TCP": 2,
        "host port 2/TCP at 127.0.0.1": 1,
        "host port 2/TCP at 127.0.0.2": 1,
    }
