"""Services with addresses of their own: their variables, by equality; and connections to them, in real pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until
from tests.kubelet.network.test_host_ports import free_port, says, waits
from tests.kubelet.network.test_namespaces import on_namespaces

from rowlock import kinds
from rowlock.kubelet.network.env_rewrite import service_variables
from rowlock.kubelet.network.service_relays import target_port
from rowlock.objects import Object

SERVER = """
import os, socket, sys
with socket.create_server((os.environ.get("LISTEN", ""), int(sys.argv[1]))) as server:
    while True:
        connection, peer = server.accept()
        while connection.recv(1000): pass  # until the client has said all
        connection.sendall(f"{os.environ['HOSTNAME']} saw {peer[0]}".encode()); connection.close()
"""
CLIENT = """
import os, socket, sys, time
def ask(host, port):
    with socket.create_connection((host, port), timeout=60) as connection:
        connection.sendall(b"hello"); connection.shutdown(socket.SHUT_WR)
        return connection.makefile().read()
for words in sys.argv[1:]:
    host, port = (os.environ[w[1:]] if w[0] == "$" else w for w in words.split())
    print(ask(host, int(port)), flush=True)
"""


def test_variables_are_those_that_a_kubelet_sets() -> None:
    def service(name: str, address: str, *ports: Object) -> Object:
        return {"metadata": {"name": name, "namespace": "n"}, "spec": {"clusterIP": address, "ports": list(ports)}}

    track = service("track-ing", "1.2.3.4", {"port": 80, "name": "web-ui"}, {"port": 53, "protocol": "UDP"})
    assert service_variables([track], lambda _, address, port: (address, port)) == {
        "TRACK_ING_SERVICE_HOST": "1.2.3.4",
        "TRACK_ING_SERVICE_PORT": "80",
        "TRACK_ING_SERVICE_PORT_WEB_UI": "80",
        "TRACK_ING_PORT": "tcp://1.2.3.4:80",
        "TRACK_ING_PORT_80_TCP": "tcp://1.2.3.4:80",
        "TRACK_ING_PORT_80_TCP_PROTO": "tcp",
        "TRACK_ING_PORT_80_TCP_PORT": "80",
        "TRACK_ING_PORT_80_TCP_ADDR": "1.2.3.4",
        "TRACK_ING_PORT_53_UDP": "udp://1.2.3.4:53",
        "TRACK_ING_PORT_53_UDP_PROTO": "udp",
        "TRACK_ING_PORT_53_UDP_PORT": "53",
        "TRACK_ING_PORT_53_UDP_ADDR": "1.2.3.4",
    }


def test_a_target_port_is_a_number_or_the_name_of_a_containers_port() -> None:
    made = {"spec": {"containers": [{}, {"ports": [{"name": "web", "containerPort": 8000}]}]}}
    found = [target_port(made, port) for port in ({"port": 1}, {"port": 1, "targetPort": 2}, {"port": 1, "targetPort": "web"})]  # fmt: skip
    assert found == [1, 2, 8000] and target_port(made, {"port": 1, "targetPort": "other"}) == 0


def python(name: str, source: str, *args: str, env: Object | None = None, app: str = "", **spec: Any) -> Object:
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    ports = [{"name": "web", "containerPort": 8000}] if app else []
    container = {"command": ["python", "-c", source, *args], "env": variables, "ports": ports}
    if app:
        container["readinessProbe"] = {"tcpSocket": {"port": 8000}, "periodSeconds": 1}
    return pod(name, "", container=container, spec=spec, labels={"app": app or name})


async def add_service(node: Node, name: str, app: str, **spec: Any) -> Object:
    base = {"type": "ClusterIP", "clusterIP": "10.77.0.20", "ports": [{"port": 80, "targetPort": "web"}]}
    spec = {**base, "selector": {"app": app}, **spec}  # (this node's store admits nothing: admission gives addresses)
    meta = {"name": name, "namespace": "default"}
    return await node.store.create(
        kinds.SERVICE, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
    )


def is_ready(node: Node, name: str) -> Callable[[], bool]:
    def ready() -> bool:
        conditions = node.pod(name).get("status", {}).get("conditions", ())
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    return ready


Body = Callable[[Node], Coroutine[Any, Any, None]]


def test_a_service_leads_to_its_ready_pods_by_name_address_and_variables(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        made = await add_service(node, "track", "server")
        address = made["spec"]["clusterIP"]
        await add_service(node, "other-name", "", type="ExternalName", clusterIP="", externalName="track.default.svc.cluster.local", ports=[], selector={})  # fmt: skip
        await node.add(python("server", SERVER, "8000", app="server"))
        await until(is_ready(node, "server"), "the server is ready")
        places = ("track 80", "track.default.svc.cluster.local 80", f"{address} 80", "other-name 80")
        await node.add(python("client", CLIENT, *places, "$TRACK_SERVICE_HOST $TRACK_PORT_80_TCP_PORT", "$MINE 80", env={"MINE": "$(TRACK_SERVICE_HOST)"}))  # fmt: skip
        await node.ended("client")
        own = node.pod("client")["status"]["podIP"]
        assert (await node.log("client")).splitlines() == [f"server saw {own}"] * 6
        await node.add(python("silent", "import os; print([n for n in os.environ if n.startswith('TRACK')])", enableServiceLinks=False))  # fmt: skip
        await node.ended("silent")
        assert (await node.log("silent")).strip() == "[]"

    on_namespaces(tmp_path, body)


REFUSED = """
import socket, sys
try:
    with socket.create_connection(("track", 80), timeout=60) as connection:
        connection.sendall(b"x"); connection.shutdown(socket.SHUT_WR); print(connection.recv(100))
except ConnectionError as error:
    print("refused")
"""


def test_a_service_without_ready_pods_refuses_and_one_of_two_pods_may_go(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await add_service(node, "track", "server")
        only_loopback = python("server", SERVER, "8000", app="server", env={"LISTEN": "127.0.0.1"})
        await node.add(only_loopback)  # its probe asks the pod's address, as a Service does
        await node.add(python("early", REFUSED))
        await node.ended("early")
        assert (await node.log("early")).strip() == "refused"
        await node.add(*(python(name, SERVER, "8000", app="server") for name in ("a", "b")))
        await until(lambda: is_ready(node, "a")() and is_ready(node, "b")(), "both are ready")
        await node.add(python("client", CLIENT, *["track 80"] * 4))
        await node.ended("client")
        assert {line.split()[0] for line in (await node.log("client")).splitlines()} == {"a", "b"}
        await node.delete("a")
        await node.add(python("later", CLIENT, *["track 80"] * 4))
        await node.ended("later")
        assert {line.split()[0] for line in (await node.log("later")).splitlines()} == {"b"}

    on_namespaces(tmp_path, body)


@pytest.mark.parametrize("has_namespaces", [True, False])
def test_a_node_port_is_a_port_of_this_machine(tmp_path: Path, has_namespaces: bool) -> None:
    number = 0

    async def body(node: Node) -> None:
        nonlocal number
        number = free_port()
        port = {"port": 80, "targetPort": 8000 if has_namespaces else (own := free_port()), "nodePort": number}
        await add_service(node, "track", "server", type="NodePort", ports=[port])
        await node.add(pod("server", "", container={"command": ["python", "-c", SERVER, str(8000 if has_namespaces else own)]}, labels={"app": "server"}))  # fmt: skip
        await until(is_ready(node, "server"), "the server is ready")
        await waits(lambda: _answers(number))
        await node.add(python("client", CLIENT, "$TRACK_SERVICE_HOST $TRACK_SERVICE_PORT"))
        await node.ended("client")
        assert "saw" in await node.log("client")
        await node.store.delete(kinds.SERVICE, "default", "track")
        await waits(lambda: _is_closed(number))

    (on_namespaces if has_namespaces else on_node)(tmp_path, body)


async def _answers(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.write_eof()
    try:
        return b"saw" in await reader.read()
    except OSError:
        return False
    finally:
        writer.close()


async def _is_closed(port: int) -> bool:
    return await says(port) == b""


ANSWERS_UDP = """
import socket
listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listener.bind(("0.0.0.0", 8125))
while True:
    data, client = listener.recvfrom(99)
    listener.sendto(data + b" from " + client[0].encode(), client)
"""
SENDS_UDP = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.settimeout(0.5)
    for _ in range(200):
        try:
            sender.sendto(b"hits:1|c", ("stats", 8125))
            print(sender.recv(99).decode())
            break
        except OSError:
            pass
"""


def test_over_udp_a_headless_name_leads_to_the_pod_and_an_address_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        ports = [{"port": 8125, "protocol": "UDP"}]
        await add_service(node, "stats", "stats", clusterIP="None", ports=ports)
        await add_service(node, "stats-address", "stats", ports=ports)
        await node.add(pod("stats", "", container={"command": ["python", "-c", ANSWERS_UDP]}, labels={"app": "stats"}))
        await node.add(python("sender", SENDS_UDP))
        await node.ended("sender")
        own = node.pod("sender")["status"]["podIP"]
        assert (await node.log("sender")).strip() == f"hits:1|c from {own}"
        await node.told("stats-address", "ports over UDP of a Service with an address lead nowhere")
        assert all(reason != "Unsupported" for _, reason, _ in node.events("stats"))

    on_namespaces(tmp_path, body)
