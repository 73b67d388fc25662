"""The pod network with real namespaces, where the kernel allows it."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kubelet.conftest import Body, Node, on_node, pod, until

from rowlock import kinds
from rowlock.api import DeleteOptions
from rowlock.kubelet.network.pod_network import PodNetwork
from rowlock.kubelet.shim import netlink

SERVER = """
import socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", 23456)); s.listen()
print("listening", flush=True)
c, peer = s.accept(); print("from", peer[0], socket.gethostname()); c.sendall(sys.argv[1].encode()); c.close()
"""
CLIENT = """
import socket, sys, time
for host in sys.argv[1:]:
    while True:
        try: c = socket.create_connection((host, 23456), 5); break
        except ConnectionRefusedError: time.sleep(0.02)
    print(host, c.recv(99).decode()); c.close()
"""

MANY_PODS = """
import os, resource
from rowlock.kubelet.shim import netlink, netns
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # as the server does
waiting, ready = os.pipe()
successor = os.fork()
if successor == 0:
    os.read(waiting, 1)
    os._exit(0 if netns.BridgeNetwork.join_existing(os.getppid()).pod_netns("late", "10.77.1.254") else 1)
fabric = netns.BridgeNetwork()
fabric._netlink.add_link(netlink.bridge("pods3"))  # who made it ended before it led anywhere
pods = [f"10.77.{1 + n // 250}.{1 + n % 250}" for n in range(1100)]
for ip in pods:
    fabric.pod_netns(ip, ip)
os.write(ready, b".")
assert os.waitpid(successor, 0)[1] == 0, "the next pod host does not find the bridges that are there"
server = fabric.pod_socket(pods[-1])
server.bind((pods[-1], 80)); server.listen()
gateway = fabric.listen()
for ip in (pods[0], pods[1], pods[600], pods[-2]):
    with fabric.pod_socket(ip) as client, fabric.pod_socket(ip) as another:
        client.settimeout(60); client.connect((pods[-1], 80))
        another.settimeout(60); another.connect((netns.GATEWAY, netns.PROXY_PORT))
        print(server.accept()[1][0] == ip == gateway.accept()[1][0])
"""


def on_namespaces(data: Path, body: Body, **settings: object) -> None:
    """Runs a body on a node with real namespaces; skips where there are none."""

    async def checked(node: Node) -> None:
        if not node.kubelet.network.has_namespaces:
            pytest.skip(f"this kernel does not allow network namespaces here: {node.kubelet.network.choice.reason}")
        await body(node)

    on_node(data, checked, network="auto", **settings)


def _python(name: str, source: str, *args: str) -> dict[str, object]:
    return pod(name, "", container={"command": ["python", "-c", source, *args]})


def test_names_resolve_and_every_pod_keeps_its_port(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        meta = {"name": "all", "namespace": "default"}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": {"a": "b"}}}
        await node.store.create(kinds.SERVICE, service)
        await node.add(
            _python("s-0", SERVER, "zero"),
            _python("s-1", SERVER, "one"),
            _python("client", CLIENT, "s-0", "s-1.default.svc.cluster.local"),
        )
        await node.ended("s-0", "s-1", "client")
        assert await node.log("client") == "s-0 zero\ns-1.default.svc.cluster.local one\n"
        said = (await node.log("s-0")).split()
        assert said[-1] == "s-0" and said[-2] == node.pod("client")["status"]["podIP"]

    on_namespaces(tmp_path, body)


def test_a_pod_that_comes_later_is_known_to_those_that_run(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("early", "until getent hosts late; do sleep 0.02; done"))
        await node.phase("early", "Running")
        await node.add(pod("late", "true"))
        await node.ended("early", "late")
        assert node.pod("late")["status"]["podIP"] in await node.log("early")

    on_namespaces(tmp_path, body)


def test_a_pods_own_aliases_come_before_the_clusters_names_and_are_nobody_elses(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        aliased = pod("aliased", "getent hosts db; getent hosts other; getent hosts aliased; echo x >> /etc/hosts")
        aliased["spec"]["hostAliases"] = [{"ip": "10.1.2.3", "hostnames": ["db", "other"]}]
        await node.add(aliased, pod("other", "getent hosts db || echo nobody; sleep 30"))
        await node.ended("aliased")
        lines = (await node.log("aliased")).splitlines()
        assert [line.split()[0] for line in lines[:3]] == [
            "10.1.2.3",
            "10.1.2.3",
            node.pod("aliased")["status"]["podIP"],
        ]
        assert "Read-only" in lines[3]
        await node.phase("other", "Running")
        await node.said("other", "nobody")
        files = {path.name for path in (node.data / "hosts").iterdir()}
        assert files == {"default", f"default.{node.pod('aliased')['metadata']['uid']}"}
        await node.delete("aliased")
        await until(lambda: {path.name for path in (node.data / "hosts").iterdir()} == {"default"})

    on_namespaces(tmp_path, body)


def test_pods_that_go_one_by_one_are_forgotten_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each refresh looks at all pods: a thousand that were stopped cost a third of the server's time."""
    refreshes: list[float] = []
    refresh = PodNetwork.refresh_hosts

    async def refresh_as_of_many(network: PodNetwork) -> None:
        await refresh(network)
        network.refresh_seconds = 0.05
        refreshes.append(asyncio.get_running_loop().time())

    async def body(node: Node) -> None:
        monkeypatch.setattr(PodNetwork, "refresh_hosts", refresh_as_of_many)
        hosts, names = node.data / "hosts" / "default", [f"p-{n}" for n in range(20)]
        await node.add(*(pod(name, "sleep 60") for name in names), pod("stays", "sleep 60"))
        for name in names:
            await node.phase(name, "Running")
        assert all(f"{name}." in hosts.read_text() for name in names)
        before, began = len(refreshes), asyncio.get_running_loop().time()
        for left in range(20, 0, -1):
            await node.delete(names[left - 1], DeleteOptions(grace=0))
            await until(lambda left=left: len(node.kubelet.pod_states) == left, "a pod to go")  # type: ignore[misc]
        await until(lambda: not any(f"{name}." in hosts.read_text() for name in names), "their names to go")
        assert "stays." in hosts.read_text()
        seconds = asyncio.get_running_loop().time() - began
        assert len(refreshes) - before <= 2 + seconds, "one a second, and not one for each pod"

    on_namespaces(tmp_path, body)


def test_the_machines_own_names_and_users_are_untouched(tmp_path: Path) -> None:
    before = (Path("/etc/hosts").read_bytes(), os.uname().nodename)

    async def body(node: Node) -> None:
        await node.add(
            pod("a", "id -u; cat /proc/self/uid_map | wc -l; ls -d /dev/shm /tmp; ip -o link 2>/dev/null | wc -l")
        )
        await node.ended("a")
        assert (await node.log("a")).split()[0] == str(os.getuid())

    on_namespaces(tmp_path, body)
    assert (Path("/etc/hosts").read_bytes(), os.uname().nodename) == before


def test_a_new_pod_host_joins_the_network_of_pods_that_run(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(_python("s-0", SERVER, "still here"))
        await node.phase("s-0", "Running")
        await node.said("s-0", "listening")
        await node.stop()
        os.kill(node.kubelet.host.hello["pid"], signal.SIGKILL)
        await node.start()
        await node.add(_python("client", CLIENT, "s-0"))
        await node.ended("client", "s-0")
        assert await node.log("client") == "s-0 still here\n"

    on_namespaces(tmp_path, body)


def test_a_restarted_container_keeps_the_pods_address(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(
            pod("a", "getent hosts a >> seen; test $(wc -l < seen) -ge 3 || exit 1; sort -u seen", "OnFailure")
        )
        await node.ended("a")
        assert (await node.log("a")).count("\n") == 1

    on_namespaces(tmp_path, body)


FETCH = """
import sys, urllib.request
for port in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(f"http://host.rowlock.internal:{port}/x", timeout=20).read().decode())
    except OSError as error:
        print(error.reason)
"""


def test_pods_reach_the_ports_of_the_machine_that_are_opened_to_them_and_no_others(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as opened, socket.create_server(("127.0.0.1", 0)) as closed:
        ports = [listener.getsockname()[1] for listener in (opened, closed)]

        async def body(node: Node) -> None:
            await node.add(_python("client", FETCH, *map(str, ports)))
            answering = asyncio.ensure_future(asyncio.to_thread(_answer_once, opened))
            await node.ended("client")
            await answering
            said = await node.log("client")
            assert said.splitlines() == ["GET /x HTTP/1.1", "[Errno 111] Connection refused"]

        on_namespaces(tmp_path, body, host_ports=(ports[0],))


def _answer_once(listener: socket.socket) -> None:
    listener.settimeout(30)
    with listener.accept()[0] as connection:
        line = connection.recv(4096).split(b"\r\n")[0]
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + line)


@contextlib.asynccontextmanager
async def _web() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        text = head.split(b"\r\n")[0]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def test_the_proxy_is_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("rowlock.kubelet.network.egress_proxy.denial", lambda *_: "")
    fetch = "import os, urllib.request as u; os.environ['no_proxy'] = ''; print(u.urlopen('http://localhost:%d/x?y=1').read().decode())"

    async def body(node: Node) -> None:
        async with _web() as port:
            await node.add(_python("a", fetch % port))
            await node.ended("a")
            assert await node.log("a") == "GET /x?y=1 HTTP/1.1\n"

    on_namespaces(tmp_path, body)


def test_a_hundred_pods_and_nothing_is_left(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(*(pod(f"p{i}", "true") for i in range(100)))
        await node.ended(*(f"p{i}" for i in range(100)))
        for i in range(100):
            await node.store.delete(kinds.POD, "default", f"p{i}", options=DeleteOptions(grace=0))
        await until(lambda: not list((tmp_path / "pods").iterdir()), "directories to go")

    on_namespaces(tmp_path, body)


def test_both_ends_of_a_pair_have_one_queue_each_way() -> None:
    pair = netlink.veth("pod1", 7, "eth0", index=1001, namespace=3)
    assert [pair.count(netlink.attribute(kind, b"\1\0\0\0")) for kind in (31, 32)] == [2, 2]


def test_more_pods_than_a_bridge_has_ports_reach_each_other(tmp_path: Path) -> None:
    async def body(_: Node) -> None:
        fabric = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", MANY_PODS], capture_output=True, text=True
        )
        assert (fabric.stdout, fabric.stderr) == ("True\n" * 4, "")

    on_namespaces(tmp_path, body)
