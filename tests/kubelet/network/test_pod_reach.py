"""HTTP between pods for clients that go through the proxy: by every name and address, as the pod itself connects."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.pods.test_egress import ask
from tests.kubelet.conftest import Node, pod
from tests.kubelet.network.test_namespaces import on_namespaces

from rowlock import kinds
from rowlock.errors import Unavailable
from rowlock.kubelet.network.egress_proxy import EgressProxy
from rowlock.kubelet.network.hosts import PodNames
from rowlock.kubelet.network.pod_reach import PodReach
from rowlock.objects import Key, Object

SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = f"{self.client_address[0]} {self.path} {self.headers['Host']}".encode()
        self.send_response(200); self.send_header("Content-Length", str(len(text))); self.end_headers()
        self.wfile.write(text)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("", 8000), Handler).serve_forever()
"""
CLIENT = """
import sys, time, urllib.error, urllib.request
for host in sys.argv[1:]:
    url = f"http://{host}:8000/x?y=1"
    while True:
        try: said = urllib.request.urlopen(url, timeout=60).read().decode(); break
        except urllib.error.HTTPError as error:
            said = f"{error.code} {error.read().decode().strip()}"
            if error.code != 502 or "refused" not in said: break
        time.sleep(0.05)
    print(said, flush=True)
"""
LIBRARIES = """
import subprocess, sys, httpx, requests
url = sys.argv[1]
print(httpx.get(url, timeout=60).status_code, requests.get(url, timeout=60).status_code)
print(subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", url], capture_output=True, text=True).stdout)
"""


def python(name: str, source: str, *args: str, **spec: Any) -> Object:
    return pod(name, "", container={"command": ["python", "-c", source, *args]}, spec=spec, labels={"app": name})


async def add_service(node: Node, name: str, app: str, namespace: str = "default") -> None:
    spec = {"clusterIP": "None", "selector": {"app": app}}
    meta = {"name": name, "namespace": namespace}
    await node.store.create(kinds.SERVICE, {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec})


@pytest.mark.parametrize("no_proxy", [None, ""], ids=["the node's no_proxy", "no exceptions at all"])
def test_http_reaches_pods_and_services_by_every_name_and_address(tmp_path: Path, no_proxy: str | None) -> None:
    async def body(node: Node) -> None:
        await add_service(node, "tracking", "server")
        await node.add(python("server", SERVER, hostname="web", subdomain="tracking"))
        await node.phase("server", "Running")
        address = node.pod("server")["status"]["podIP"]
        suffixes = ("", ".default", ".default.svc", ".default.svc.cluster.local")
        hosts = [address, *(base + end for base in ("server", "tracking", "web.tracking") for end in suffixes)]
        client = python("client", CLIENT, *hosts, "mine", hostAliases=[{"ip": address, "hostnames": ["mine"]}])
        if no_proxy is not None:
            client["spec"]["containers"][0]["env"] = [{"name": name, "value": ""} for name in ("no_proxy", "NO_PROXY")]
        await node.add(client)
        await node.ended("client")
        own = node.pod("client")["status"]["podIP"]
        assert (await node.log("client")).splitlines() == [f"{own} /x?y=1 {host}:8000" for host in [*hosts, "mine"]]

    on_namespaces(tmp_path, body)


def test_libraries_that_read_the_proxy_each_in_its_way(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await add_service(node, "tracking", "server")
        await node.add(python("server", SERVER), python("ready", CLIENT, "tracking"))
        await node.ended("ready")
        address = node.pod("server")["status"]["podIP"]
        for name, host in (("by-name", "tracking"), ("by-address", address)):
            await node.add(python(name, LIBRARIES, f"http://{host}:8000/"))
            await node.ended(name)
            assert await node.log(name) == "200 200\n200\n", await node.log(name)

    on_namespaces(tmp_path, body)


def test_what_a_pod_cannot_reach_itself_the_proxy_does_not_reach(tmp_path: Path) -> None:
    """Loopback of the machine under any name, the proxy through itself; and what is not there is said."""

    async def body(node: Node) -> None:
        with socket.create_server(("127.0.0.1", 0)) as of_machine:
            port = of_machine.getsockname()[1]
            aliases = [{"ip": "127.0.0.1", "hostnames": ["own"]}, {"ip": "169.254.169.254", "hostnames": ["cloud"]}]
            hosts = ["own", "cloud", "10.77.0.1", "10.77.200.200", "127.0.0.1"]
            client = CLIENT.replace('"refused" not in said', "True")
            client = client.replace(":8000/", f"{{':3128' if host == '10.77.0.1' else ':{port}'}}/")
            made = python("client", client, *hosts, hostAliases=aliases)
            made["spec"]["containers"][0]["env"] = [{"name": name, "value": ""} for name in ("no_proxy", "NO_PROXY")]
            await node.add(made)
            await node.ended("client")
            of_machine.setblocking(False)
            with pytest.raises(BlockingIOError):
                of_machine.accept()
        said = (await node.log("client")).splitlines()
        assert [line.split()[0] for line in said] == ["502", "403", "403", "502", "403"], said
        assert f"127.0.0.1:{port}: Connection refused" in said[0] and "No route to host" in said[3]

    on_namespaces(tmp_path, body)


# ---------------------------------------------------------------- without pods

NAMES = PodNames({Key("a", "p"): "10.77.1.2"}, owners={"127.0.0.1": Key("a", "uid-1")})


def through_proxy(reach: PodReach, request: bytes, environment: dict[str, str] | None = None) -> bytes:
    async def whole() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            proxy = asyncio.create_task(EgressProxy(listener, environment or {}, reach=reach).run())
            try:
                return await ask(listener.getsockname()[1], request)
            finally:
                proxy.cancel()
                await asyncio.gather(proxy, return_exceptions=True)

    return asyncio.run(whole())


def test_pods_are_reached_directly_where_the_machine_needs_a_proxy_itself() -> None:
    async def connected(uid: str) -> socket.socket:
        raise Unavailable(f"asked for a socket of {uid}")

    said = through_proxy(
        PodReach(lambda: NAMES, connected), b"GET http://p:1/ HTTP/1.1\r\n\r\n", {"https_proxy": "http://127.0.0.1:9"}
    )
    assert b" 502 Bad Gateway\r\n" in said and said.endswith(b"could not connect: asked for a socket of uid-1\n")


def test_a_stranger_to_the_pods_network_reaches_no_pod() -> None:
    def no_socket(_: str) -> Awaitable[socket.socket]:
        raise AssertionError("a socket was asked for")

    for request in (b"CONNECT 10.77.1.2:80 HTTP/1.1\r\n\r\n", b"GET http://[::ffff:10.77.1.2]/ HTTP/1.1\r\n\r\n"):
        said = through_proxy(PodReach(lambda: PodNames(NAMES.pods), no_socket), request)
        assert b" 403 Forbidden\r\n" in said and b"belongs to the pods' network" in said
