"""A program that plays kubelet registers a node in a server without one: logs of that node's pods come from it."""

from __future__ import annotations

import http.server
import ssl
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.conftest import Site

from rowlock.http_server import certificates

kubernetes = pytest.importorskip("kubernetes", reason="the official Python client (kubernetes) is not installed")


class Kubelet(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked, in two pieces."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if "/missing" in self.path:
            self.send_error(404, "no such container")
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        for line in (f"{self.path}\n".encode(), b"bye\n"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None:
        pass


class Served(http.server.ThreadingHTTPServer):
    daemon_threads = False
    """So that closing it waits for them."""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    papers = certificates.ensure_certificates(tmp_path)
    with Served(("127.0.0.1", 0), Kubelet) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(papers.certificate, papers.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


NODE = "of-another-kubelet-"


@pytest.fixture
def core(site: Site) -> Iterator[Any]:
    """The cluster is other tests', too: no node is left, since a job that no node of a cluster can hold is refused."""
    with kubernetes.config.new_client_from_config(str(site.kubeconfig)) as api:
        yield (core := kubernetes.client.CoreV1Api(api))
        for node in core.list_node().items:
            if node.metadata.name.startswith(NODE):
                core.delete_node(node.metadata.name)
        api.rest_client.pool_manager.clear()


def bound_pod(core: Any, site: Site, name: str, port: int | None) -> str:
    """A pod on a node of its own, which names a port of a kubelet or none."""
    node = f"{NODE}{uuid.uuid4().hex[:8]}"
    core.create_node({"metadata": {"name": node}})
    endpoint = {} if port is None else {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
    status = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], **endpoint}
    core.patch_node_status(node, {"status": status})
    core.create_namespaced_pod(site.namespace, site.pod(name))
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"metadata": {"name": name}, "target": target}
    core.create_namespaced_binding(site.namespace, body, _preload_content=False).close()  # its model refuses the answer
    return name


def test_the_kubelet_of_the_node_is_asked(core: Any, site: Site, port: int) -> None:
    pod = bound_pod(core, site, "there", port)
    path = f"/containerLogs/{site.namespace}/{pod}/main"
    assert core.read_namespaced_pod_log(pod, site.namespace) == f"{path}\nbye\n"
    asked = core.read_namespaced_pod_log(pod, site.namespace, follow=True, tail_lines=3, timestamps=True)
    assert asked == f"{path}?follow=true&timestamps=true&tailLines=3\nbye\n"


def test_a_refusal_and_silence_of_a_kubelet_are_told(core: Any, site: Site, port: int) -> None:
    for name, where, what in (
        ("missing", port, "answered 404"),
        ("silent", 1, "does not answer"),
        ("none", None, "names no port"),
    ):
        pod = bound_pod(core, site, name, where)
        with pytest.raises(kubernetes.client.ApiException) as refused:
            core.read_namespaced_pod_log(pod, site.namespace)
        assert what in refused.value.body
