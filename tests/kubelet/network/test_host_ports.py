"""hostPort: loopback of this machine leads to the pod while it runs, and what does not work is said."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until
from tests.kubelet.network.test_namespaces import on_namespaces

from rowlock.kubelet.network.host_ports import HostPort, host_ports
from rowlock.kubelet.pod.spec import PodSpec, parse_pod_spec
from rowlock.kubelet.pod.unsupported import field_warnings, network_warnings
from rowlock.objects import Object

SERVER = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    while True:
        connection, _ = server.accept()
        connection.sendall(b"here"); connection.close()
"""


def serving(name: str, host_port: int, port: int = 8000, **more: Any) -> Object:
    ports = [{"containerPort": port, "hostPort": host_port, **more}]
    return pod(name, "", container={"command": ["python", "-c", SERVER, str(port)], "ports": ports})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


async def says(port: int, address: str = "127.0.0.1") -> bytes:
    """What a client of this machine gets there; b"" when nobody listens, or nobody behind it."""
    try:
        reader, writer = await asyncio.open_connection(address, port)
    except OSError:
        return b""
    try:
        return await reader.read()
    except OSError:
        return b""
    finally:
        writer.close()


async def waits(what: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(200):
        while not await what():
            await asyncio.sleep(0.02)


def test_a_port_of_this_machine_leads_to_the_pod_until_it_ends(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        port = free_port()
        await node.add(serving("a", port))
        await waits(lambda: is_(says(port), b"here"))
        text = f"127.0.0.1:{port} of this machine leads to port 8000 of the pod"
        await until(lambda: ("Normal", "HostPort", text) in node.events("a"), "the event")
        await node.stop()
        await node.start()  # the next server opens it again
        await waits(lambda: is_(says(port), b"here"))
        await node.delete("a")
        await waits(lambda: is_(can_listen(port), True))

    on_namespaces(tmp_path, body)


async def is_(found: Awaitable[Any], wanted: Any) -> bool:
    return bool(await found == wanted)


async def can_listen(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_a_port_that_is_taken_is_said_and_opened_when_it_is_free(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            await node.add(serving("a", port))
            await until(lambda: [e for e in node.events("a") if e[1] == "HostPortNotOpen"], "the event")
            (said,) = [e[2] for e in node.events("a") if e[1] == "HostPortNotOpen"]
            assert said.startswith(
                f"hostPort {port}: 127.0.0.1:{port} of this machine does not lead to the pod (Address already"
            )
        await waits(lambda: is_(says(port), b"here"))
        await until(lambda: any(e[1] == "HostPort" for e in node.events("a")), "the event")

    on_namespaces(tmp_path, body)


def test_where_pods_have_this_machines_network_their_programs_listen_themselves(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        own, led, behind = free_port(), free_port(), free_port()
        await node.add(serving("same", own, own), serving("other", led, behind))
        await waits(lambda: is_(says(own), b"here"))
        await waits(lambda: is_(says(led), b"here"))
        await until(lambda: any(e[1] == "HostPort" for e in node.events("other")), "the event")
        assert [e for e in node.events("same") if e[1].startswith("HostPort")] == []

    on_node(tmp_path, body, network="rewrite")


def spec(container: dict[str, Any], **more: Any) -> PodSpec:
    containers = [{"name": "main", "image": "x", **container}]
    return parse_pod_spec(
        {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"containers": containers, **more}}
    )


def test_which_ports_are_led_and_who_may_have_them() -> None:
    ports = [
        {"containerPort": 80, "hostPort": 80},
        {"containerPort": 81, "hostPort": 8081, "hostIP": "127.0.0.2"},
        {"containerPort": 82, "hostPort": 8082, "hostIP": "10.0.0.1"},
        {"containerPort": 83, "hostPort": 8083, "protocol": "UDP"},
        {"containerPort": 84},
    ]
    root = [
        HostPort("127.0.0.1", 80, 80, True),
        HostPort("127.0.0.2", 8081, 81, True),
        HostPort("127.0.0.1", 8082, 82, True),
    ]
    assert list(host_ports(spec({"ports": ports}))) == root
    assert [p.is_allowed for p in host_ports(spec({"ports": ports}, securityContext={"runAsUser": 7}))] == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("container", "more", "own", "said"),
    [
        ({}, {"hostNetwork": True}, True, "hostNetwork: the pod has a network of its own all the same."),
        ({}, {"hostNetwork": True}, False, ""),
        ({}, {"dnsConfig": {"nameservers": ["192.0.2.1"]}}, True, "dnsConfig: pods ask no name server."),
        ({}, {"runtimeClassName": "gvisor"}, False, "runtimeClassName is not applied on this machine"),
        ({}, {"hostUsers": False}, True, "hostUsers: false is not applied on this machine"),
        ({}, {"hostUsers": True, "dnsPolicy": "ClusterFirst", "os": {"name": "linux"}}, True, ""),
        ({}, {"hostnameOverride": "a"}, True, "hostnameOverride is not applied on this machine"),
        ({}, {"resources": {"limits": {"cpu": "1"}}}, True, "spec.resources is neither counted nor enforced"),
        (
            {},
            {"readinessGates": [{"conditionType": "x/y"}]},
            True,
            "readinessGates: the pod is Ready without the condition x/y",
        ),
        ({}, {"os": {"name": "windows"}}, True, "os.name windows: its programs run on this machine"),
        ({"ports": [{"containerPort": 1, "hostPort": 2, "protocol": "UDP"}]}, {}, True, "hostPort over UDP: only TCP"),
        ({"ports": [{"containerPort": 1, "protocol": "UDP"}, {"containerPort": 1, "hostPort": 2}]}, {}, True, ""),
    ],
)
def test_what_of_the_host_is_not_there_is_said(
    container: dict[str, Any], more: dict[str, Any], own: bool, said: str
) -> None:
    made = spec(container, **more)
    found = network_warnings(made.object["spec"], has_own_network=own) + field_warnings(made.object["spec"])
    assert len(found) == bool(said) and all(text.startswith(said) for text in found)
