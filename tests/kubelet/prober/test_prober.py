"""Probes and lifecycle hooks of pods that are processes."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock.api import DeleteOptions
from rowlock.kubelet.pod.spec import parse_container
from rowlock.kubelet.prober import grpc_health
from rowlock.kubelet.prober.probe_handlers import port_of
from rowlock.objects import Object, is_condition_true

SERVER = """
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(self.headers.get("X-Code", 404 if self.path == "/no" else 200))); self.end_headers()
    def log_message(self, *words): pass
server = http.server.HTTPServer(("0.0.0.0", int(os.environ.get("PORT") or 0)), Answer)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
LIVES = "while :; do sleep 0.02; done"


def exec_(script: str, **more: Any) -> Object:
    """Its answer may take long: beside a load a second is not enough."""
    timing = {"periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 1}
    return {"exec": {"command": ["sh", "-c", script]}, **timing, **more}


async def gone(node: Node, name: str = "a") -> None:
    await node.delete(name, DeleteOptions(grace=0))


def test_a_pod_is_ready_when_its_probe_says_so_and_not_when_it_does_not(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", LIVES, container={"readinessProbe": exec_("test -e up || { echo not yet; exit 1; }")}))
        await node.phase("a", "Running")
        assert (
            not is_condition_true(node.pod("a"), "Ready")
            and node.state("a", "started")
            and not node.state("a", "ready")
        )
        up = tmp_path / "pods" / node.pod("a")["metadata"]["uid"] / ".work" / "up"
        up.touch()
        await until(lambda: is_condition_true(node.pod("a"), "Ready"))
        assert is_condition_true(node.pod("a"), "ContainersReady") and node.state("a", "ready")
        up.unlink()
        await until(lambda: not is_condition_true(node.pod("a"), "Ready"))
        await until(lambda: ("Warning", "Unhealthy", "Readiness probe failed: not yet") in node.events("a"))
        assert node.state("a", "restartCount") == 0
        await gone(node)

    on_node(tmp_path, body)


def test_a_pod_that_is_not_alive_is_killed_and_runs_again(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        probe = exec_("test $(cat tries | wc -l) -ge 2 || { echo stuck; exit 1; }", terminationGracePeriodSeconds=1)
        await node.add(pod("a", "echo x >> tries; " + LIVES, policy="Always", container={"livenessProbe": probe}))
        # once more, if a probe of its second run was faster than its first line
        await until(lambda: (node.state("a", "restartCount") or 0) >= 1 and node.state("a", "state.running"))
        for told in (
            ("Warning", "Unhealthy", "Liveness probe failed: stuck"),
            ("Normal", "Killing", "Container main failed liveness probe, will be restarted"),
        ):
            await until(lambda told=told: told in node.events("a"))  # type: ignore[misc]
        assert node.state("a", "lastState.terminated.exitCode") in (143, 137)
        await gone(node)

    on_node(tmp_path, body)


def test_a_slow_start_holds_the_other_probes_and_a_start_that_fails_ends_it(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        startup = exec_("test -e started", failureThreshold=60)
        slow = pod("a", "until test -e go; do sleep 0.02; done; touch started; " + LIVES,
                   container={"startupProbe": startup, "livenessProbe": exec_("test -e started")})  # fmt: skip
        never = pod("b", LIVES, container={"startupProbe": exec_("echo no; exit 1")})
        never["spec"]["terminationGracePeriodSeconds"] = 1
        await node.add(slow, never)
        await node.phase("a", "Running")
        assert not node.state("a", "started") and not is_condition_true(node.pod("a"), "Ready")
        (tmp_path / "pods" / node.pod("a")["metadata"]["uid"] / ".work" / "go").touch()
        await until(lambda: is_condition_true(node.pod("a"), "Ready"))
        await node.phase("b", "Failed")
        await until(lambda: ("Normal", "Killing", "Container main failed startup probe") in node.events("b"))
        assert node.state("a", "restartCount") == 0
        await gone(node)

    on_node(tmp_path, body)


@pytest.mark.parametrize("network", ["rewrite", "auto"])
def test_ports_and_pages_are_asked_in_the_pods_own_network(tmp_path: Path, network: str) -> None:
    async def body(node: Node) -> None:
        where = "18080" if node.kubelet.network.has_namespaces else str(node.kubelet.network._assign_port("x/y", 1))
        container = {"command": [sys.executable, "-c", SERVER], "env": [{"name": "PORT", "value": where}]}
        container["ports"] = [{"name": "web", "containerPort": int(where)}]
        page = {"httpGet": {"port": "web", "path": "/", "httpHeaders": [{"name": "X-Code", "value": "302"}]}}
        lost = {"httpGet": {"port": int(where), "path": "/no"}, "periodSeconds": 1}
        made = pod(
            "a", "", container={**container, "readinessProbe": {"tcpSocket": {"port": "web"}, "periodSeconds": 5}}
        )
        await node.add(made)
        await until(lambda: is_condition_true(node.pod("a"), "Ready"))
        assert not [m for _, r, m in node.events("a") if r == "Unhealthy"]
        await gone(node)
        await node.add(pod("b", "", container={**container, "startupProbe": page, "readinessProbe": lost}))
        sentence = "Readiness probe failed: HTTP probe failed with statuscode: 404"
        await until(lambda: ("Warning", "Unhealthy", sentence) in node.events("b"))
        assert node.state("b", "started") and not node.state("b", "ready")
        await gone(node, "b")
        closed = {"httpGet": {"port": int(where)}, "periodSeconds": 1}
        await node.add(pod("c", LIVES, container={"readinessProbe": closed}))
        await until(lambda: [m for _, r, m in node.events("c") if r == "Unhealthy"])
        said = next(m for _, r, m in node.events("c") if r == "Unhealthy")
        ip = node.pod("c")["status"]["podIP"]
        assert said == (
            f'Readiness probe failed: Get "http://{ip}:{where}/": dial tcp {ip}:{where}: connect: connection refused'
        )
        await gone(node, "c")

    on_node(tmp_path, body, network=network)


def test_a_probe_that_hangs_has_failed(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", LIVES, container={"readinessProbe": exec_("sleep 99", timeoutSeconds=1)}))
        sentence = 'Readiness probe failed: command timed out: "sh -c sleep 99" timed out after 1s'
        await until(lambda: ("Warning", "Unhealthy", sentence) in node.events("a"))
        await gone(node)

    on_node(tmp_path, body)


def test_hooks_run_after_the_start_and_before_the_end(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        hooks = {"postStart": exec_("echo began >> told"), "preStop": exec_("echo leaving >> told")}
        for hook in hooks.values():
            del hook["periodSeconds"], hook["failureThreshold"]
        script = "trap 'echo term >> told; cat told; exit 0' TERM; " + LIVES
        await node.add(pod("a", script, container={"lifecycle": hooks}))
        await until(lambda: is_condition_true(node.pod("a"), "Ready"))
        log = tmp_path / "pods" / node.pod("a")["metadata"]["uid"] / "main" / "log.0"
        seen = log.open("rb")
        with seen:
            await node.delete("a", DeleteOptions(grace=20))
            words = [line.split()[-1] for line in seen.read().splitlines()]
        assert words[-3:] == [b"began", b"leaving", b"term"]

    on_node(tmp_path, body)


def test_a_hook_that_fails_is_said(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        fails = {"exec": {"command": ["sh", "-c", "echo broken; exit 3"]}}
        first = pod("a", LIVES, container={"lifecycle": {"postStart": fails}})
        first["spec"]["terminationGracePeriodSeconds"] = 1
        await node.add(first, pod("b", LIVES, container={"lifecycle": {"preStop": fails}}))
        await node.phase("a", "Failed")
        await until(lambda: ("Warning", "FailedPostStartHook", "PostStartHook failed: broken") in node.events("a"))
        await node.phase("b", "Running")
        await node.delete("b", DeleteOptions(grace=3))
        await until(lambda: ("Warning", "FailedPreStopHook", "PreStopHook failed: broken") in node.events("b"))

    on_node(tmp_path, body)


def test_a_new_server_believes_what_the_status_says(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        probe = exec_("test -e up", periodSeconds=600)
        startup = exec_("rm once", periodSeconds=600)
        script = "touch once up; " + LIVES
        await node.add(pod("a", script, container={"readinessProbe": probe, "startupProbe": startup}))
        await until(lambda: is_condition_true(node.pod("a"), "Ready"))
        before = node.pod("a")["metadata"]["resourceVersion"]
        await node.stop()
        await node.start()
        uid = node.pod("a")["metadata"]["uid"]
        await until(lambda: node.kubelet.pod_states[uid].containers["main"].ready)
        assert is_condition_true(node.pod("a"), "Ready") and node.pod("a")["metadata"]["resourceVersion"] == before
        await gone(node)

    on_node(tmp_path, body)


GRPC = """
import os, sys, threading
from concurrent import futures
import grpc
class Health(grpc.GenericRpcHandler):
    def service(self, details):
        if details.method == "/grpc.health.v1.Health/Check":
            return grpc.unary_unary_rpc_method_handler(self.check)
    def check(self, request, context):
        name = request[2:].decode()
        if name == "missing":
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown service: 100%")
        return {"": b"\\x08\\x01", "sick": b"\\x08\\x02", "new": b""}[name]
class Deaf(grpc.GenericRpcHandler):
    def service(self, details): return None
server = grpc.server(futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers((Deaf() if "deaf" in sys.argv else Health(),))
print(server.add_insecure_port(f"0.0.0.0:{os.environ.get('PORT', 0)}"), flush=True)
server.start()
threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("server", "service", "why"),
    [
        (GRPC, "", ""),
        (GRPC, "sick", 'service unhealthy (responded with "NOT_SERVING")'),
        (GRPC, "new", 'service unhealthy (responded with "UNKNOWN")'),
        (GRPC, "missing", "error: health rpc probe failed: unknown service: 100%"),
        (
            "deaf",
            "",
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): Method not found!",
        ),
        (SERVER, "", "error: health rpc probe failed: "),
    ],
)
def test_grpc_health_is_asked_in_the_kubelets_words(server: str, service: str, why: str) -> None:
    words = [sys.executable, "-c", GRPC if server == "deaf" else server, *(["deaf"] if server == "deaf" else [])]

    async def ask(port: int) -> str:
        made = socket.create_connection(("127.0.0.1", port))
        try:
            return await grpc_health.health_failure(made, f"127.0.0.1:{port}", service, "test")
        except OSError as error:
            return str(error)

    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        said = asyncio.run(asyncio.wait_for(ask(int(serving.stdout.readline())), 200))
        serving.kill()
    assert said == why or (why.endswith(": ") and said.startswith(why))


def test_a_pod_whose_health_is_asked_by_grpc_is_ready(tmp_path: Path) -> None:

    async def body(node: Node) -> None:
        port = 18081 if node.kubelet.network.has_namespaces else node.kubelet.network._assign_port("x/y", 1)
        env = {"env": [{"name": "PORT", "value": str(port)}]}
        probe = {"grpc": {"port": port}, "periodSeconds": 1}
        await node.add(
            pod("a", "", container={"command": [sys.executable, "-c", GRPC], **env, "readinessProbe": probe})
        )
        await until(lambda: is_condition_true(node.pod("a"), "Ready"))
        sick = {"grpc": {"port": port, "service": "sick"}, "periodSeconds": 1, "failureThreshold": 1}
        await gone(node)
        await node.add(pod("b", "", container={"command": [sys.executable, "-c", GRPC], **env, "readinessProbe": sick}))
        sentence = 'Readiness probe failed: service unhealthy (responded with "NOT_SERVING")'
        await until(lambda: ("Warning", "Unhealthy", sentence) in node.events("b"))
        await gone(node, "b")

    on_node(tmp_path, body)


def test_ports_have_names() -> None:
    container = parse_container({"name": "c", "ports": [{"name": "web", "containerPort": 80}]})
    assert [port_of(container, p) for p in (1, "2", "web")] == [1, 2, 80]
    with pytest.raises(ValueError, match="container c names no such port"):
        port_of(container, "other")


@pytest.mark.parametrize("network", ["rewrite", "auto"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2", "10.77.0.1", "0.0.0.0", "example.invalid"])
def test_probes_and_hooks_reach_no_service_of_the_machine(tmp_path: Path, host: str, network: str) -> None:
    """It is the server who connects: what its own loopback has is not for pods, but for ports that the owner names."""

    async def body(node: Node) -> None:
        is_shared = not node.kubelet.network.has_namespaces
        if is_shared and host in ("127.0.0.1", "localhost"):
            return  # the pod's own address there, which its programs reach, too
        quick = {"periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 1}
        probe = {"httpGet": {"host": host, "port": port}, **quick}
        hook = {"tcpSocket": {"host": host, "port": port}}
        await node.add(
            pod("probe", LIVES, container={"readinessProbe": probe}),
            pod("hook", LIVES, container={"lifecycle": {"postStart": hook}}),
        )
        refused = f"{host}:{port} is not the pod's address, and probes and hooks go to the pod alone"
        await until(
            lambda: any(r == "Unhealthy" and refused in m for _, r, m in node.events("probe")), "the probe's event"
        )
        await until(
            lambda: any(r == "FailedPostStartHook" and refused in m for _, r, m in node.events("hook")),
            "the hook's event",
        )
        assert not is_condition_true(node.pod("probe"), "Ready")
        with pytest.raises(BlockingIOError):
            listener.accept()
        await gone(node, "probe")
        await gone(node, "hook")

    with socket.create_server(("0.0.0.0", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        on_node(tmp_path, body, network=network)


def test_a_probe_reaches_a_port_of_the_machine_that_its_owner_names(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        if not node.kubelet.network.has_namespaces:
            pytest.skip(f"this kernel does not allow network namespaces here: {node.kubelet.network.choice.reason}")
        probe = {"tcpSocket": {"host": "127.0.0.1", "port": port}, "periodSeconds": 1, "timeoutSeconds": 30}
        await node.add(pod("a", LIVES, container={"readinessProbe": probe}))
        await until(lambda: is_condition_true(node.pod("a"), "Ready"), "the probe to pass")
        await gone(node)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        on_node(tmp_path, body, network="auto", host_ports=(port,))
