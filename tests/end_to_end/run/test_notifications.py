"""Notifications of real jobs to a real receiver: what arrives, what nobody sees, and that a restart of the server repeats nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.end_to_end.cluster import Cluster
from tests.waiting import until

KEY = "a-key-that-nobody-else-knows"
SECRET = "T0-the-address-is-a-password"


class Receiver(ThreadingHTTPServer):
    """Keeps what is posted to it. It has a port from the beginning, and refuses connections until `receiver` serves it."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", 0), _Request, bind_and_activate=False)
        self.server_bind()

    def events(self, name: str) -> list[tuple[str, str]]:
        told = [json.loads(body) for _, body in self.got]
        return [(one["event"], one["sentence"]) for one in told if one.get("job") == name]


class _Request(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), body))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def receiver(bound: Receiver | None = None) -> Iterator[Receiver]:
    """A receiver that answers: this one, or a new one."""
    with bound or Receiver() as server:
        server.server_activate()
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def test_a_job_tells_how_it_ended_and_hides_the_address(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    with receiver() as told, receiver() as all_jobs:
        port = told.server_port
        url = f"http://127.0.0.1:{port}/{SECRET}"
        operator = tmp_path / "operator"
        operator.write_text(f"http://127.0.0.1:{all_jobs.server_port}/{SECRET}\n")
        cluster.up("--notify-allow", f"127.0.0.1:{port}", "--notify", f"@{operator}")
        flags = ("--notify", url, "--notify-key-file", str(tmp_path / "key"))
        assert "answered 200: ok, signed" in cluster.run("rowlock", "notify", "test", url, *flags[2:])
        assert "answered 200: ok" in cluster.run("rowlock", "notify", "test")
        cluster.run("rowlock", "run", "--name", "good", *flags, "--", "true")
        failing = ("python", "-c", "raise ValueError('the learning rate is a colour')")
        cluster.run("rowlock", "run", "--name", "bad", "--rm", *flags, "--", *failing, code=1)
        cluster.run("rowlock", "run", "--name", "quiet", *flags, "--notify-on", "failed", "--", "true")
        until(lambda: told.events("good") and told.events("bad"), lambda: f"both are told: {told.got}")
        until(lambda: len(all_jobs.events("quiet")) == 1, "the operator is told of all jobs")
        assert [event for event, _ in told.events("good")] == ["completed"]
        [(event, sentence)] = told.events("bad")
        assert event == "failed" and "ValueError: the learning rate is a colour" in sentence
        assert told.events("quiet") == []
        for headers, body in told.got:
            signature = hmac.new(KEY.encode(), body, hashlib.sha256).hexdigest()
            assert headers["X-Rowlock-Signature"] == f"sha256={signature}"
        seen = [
            cluster.run("rowlock", "describe", "good"), cluster.run("rowlock", "show", "bad", "--json"), cluster.run("rowlock", "list", "--json"),
            cluster.run("rowlock", "show", "good"), json.dumps(cluster.api("GET", "/apis/kubeflow.org/v1/pytorchjobs")),
            json.dumps(cluster.api("GET", "/api/v1/pods")), json.dumps(cluster.api("GET", "/api/v1/events")),
            (cluster.data / "server.log").read_text(), (cluster.data / "server.json").read_text(),
        ]  # fmt: skip
        assert [text[:200] for text in seen if SECRET in text or KEY in text] == []


def is_noted(cluster: Cluster, job: str, mark: str) -> bool:
    """Whether the job says that this was told: a server that dies before that tells it again."""
    group = "batch/v1" if job.startswith("jobs/") else "kubeflow.org/v1"
    found = cluster.api("GET", f"/apis/{group}/namespaces/runai-default/{job}")
    return mark in found["metadata"].get("annotations", {}).get("rowlock.dev/notified", "").split()


def test_a_server_that_was_killed_tells_it_later_and_once(cluster: Cluster) -> None:
    bound = Receiver()  # a free port could be another program's when it is listened to
    port = bound.server_port
    allowed = ("--notify-allow", f"127.0.0.1:{port}")
    cluster.up(*allowed)
    url = f"http://127.0.0.1:{port}/{SECRET}"
    cluster.run("rowlock", "run", "--name", "before", "--notify", url, "--", "true")  # nobody listens there
    os.kill(cluster.pid, signal.SIGKILL)
    with receiver(bound) as told:
        cluster.up(*allowed)
        until(lambda: told.events("before"), lambda: f"the next server tells it\n{cluster.last_words()}")

        until(lambda: is_noted(cluster, "pytorchjobs/before", "completed"), "it is noted on the job", every=0.1)
        os.kill(cluster.pid, signal.SIGKILL)
        cluster.up(*allowed)
        cluster.run("rowlock", "run", "--name", "after", "--notify", url, "--", "true")
        until(lambda: told.events("after"), "the next job is told")
        assert [event for event, _ in told.events("before")] == ["completed"]


def test_a_project_is_told_of_all_its_jobs_whoever_made_them_also_after_a_restart(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    with receiver() as team:
        allowed = ("--notify-allow", f"127.0.0.1:{team.server_port}")
        cluster.up(*allowed)
        (tmp_path / "address").write_text(f"http://127.0.0.1:{team.server_port}/{SECRET}\n")
        assert "tells nobody" in cluster.run("rowlock", "project", "notify", "default")
        said = cluster.run(
            "rowlock", "project", "notify", "default", f"@{tmp_path / 'address'}", "--on", "failed", "--key-file", str(tmp_path / "key")
        )  # fmt: skip
        assert f"tells http://127.0.0.1:{team.server_port}/… of its jobs: failed, signed" in said
        assert "answered 200: ok, signed" in cluster.run("rowlock", "notify", "test", "-p", "default")
        cluster.run("rowlock", "run", "--name", "typed", "--", "false", code=1)
        cluster.run("rowlock", "run", "--name", "good", "--", "true")
        template = {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host", "command": ["false"]}]}
        }
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "posted"},
            "spec": {"backoffLimit": 0, "template": template},
        }
        cluster.api("POST", "/apis/batch/v1/namespaces/runai-default/jobs", job)
        until(lambda: team.events("typed") and team.events("posted"), lambda: f"both are told: {team.got}")
        jobs = ("pytorchjobs/typed", "jobs/posted")
        until(lambda: all(is_noted(cluster, name, "project/failed") for name in jobs), "it is noted", every=0.1)
        os.kill(cluster.pid, signal.SIGKILL)
        cluster.up(*allowed)
        cluster.run("rowlock", "run", "--name", "later", "--", "false", code=1)
        until(lambda: team.events("later"), "it is known after a restart")
        for headers, body in team.got:
            signature = hmac.new(KEY.encode(), body, hashlib.sha256).hexdigest()
            assert headers["X-Rowlock-Signature"] == f"sha256={signature}"
        shown = cluster.json("rowlock", "project", "notify", "default", "--json")
        assert shown["on"] == ["failed"] and shown["target"].endswith("/…") and not shown["problem"]
        seen = [
            json.dumps(shown), cluster.run("rowlock", "describe", "typed"), cluster.run("rowlock", "show", "typed", "--json"),
            cluster.run("rowlock", "project", "list", "--json"), json.dumps(cluster.api("GET", "/api/v1/namespaces")),
            json.dumps(cluster.api("GET", "/apis/kubeflow.org/v1/pytorchjobs")), json.dumps(cluster.api("GET", "/api/v1/events")),
            (cluster.data / "server.log").read_text(), (cluster.data / "audit.jsonl").read_text(),
        ]  # fmt: skip
        assert [text[:200] for text in seen if SECRET in text or KEY in text] == []
        assert "tells nobody" in cluster.run("rowlock", "project", "notify", "default", "--off")
        assert "tells nobody" in cluster.run("rowlock", "notify", "test", "-p", "default", code=1)
        cluster.run("rowlock", "run", "--name", "untold", "--", "false", code=1)
        assert [(name, team.events(name)) for name in ("good", "untold") if team.events(name)] == []
        assert [len(team.events(name)) for name in ("typed", "posted", "later")] == [1, 1, 1]


def test_a_project_is_not_given_an_address_that_is_none(cluster: Cluster) -> None:
    cluster.up()
    for words, said in (
        (("default", "nowhere"), "URL: must begin with https://"),
        (("default", "https://example.com/", "--on", "finished"), "--on: may have started, failed"),
        (("default", "--on", "failed"), "--on goes with an address"),
        (("default", "https://example.com/", "--off"), "leave one of them out"),
        (("defualt",), "Did you mean `default`?"),
        ((), "needs the project's name"),
    ):
        assert said in cluster.run("rowlock", "project", "notify", *words, code=None), words
    assert cluster.json("rowlock", "project", "notify", "default", "--json")["target"] == ""


def test_what_the_server_must_not_reach_is_refused_with_a_sentence(cluster: Cluster) -> None:
    cluster.up()
    for url, words in (
        (f"http://127.0.0.1:{free_port()}/", "is this machine's loopback, and jobs may not send there"),
        ("http://169.254.169.254/latest/meta-data", "is the metadata service of a cloud"),
        ("ftp://example.com/", "must begin with https://, http:// or mailto:"),
    ):
        said = cluster.run("rowlock", "notify", "test", url, code=None)
        assert words in said, said
    assert "--notify: must begin with" in cluster.run("rowlock", "run", "--notify", "nowhere", "--", "true", code=None)
    assert "there is no address" in cluster.run("rowlock", "notify", "test", code=1)
    assert "--notify-on goes with an address" in cluster.run(
        "rowlock", "run", "--notify-on", "failed", "--", "true", code=2
    )
