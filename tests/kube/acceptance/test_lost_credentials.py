"""A server whose rights are taken away, or whose token is taken back, that of its kubeconfig or one that a program gave, while jobs run:
users are told in a sentence, the cluster is asked seldom, and when the server has its rights again all goes on by itself, with nothing
lost of what ended meanwhile."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.engines.played_kubelet import PlayedKubelet, played_kubelet
from tests.kube.acceptance.real_plane import ACCOUNTS, RBAC, RealPlane, make_account, make_token, write_kubeconfig

from rowlock.errors import ApiError
from rowlock.kube.connection import Request
from rowlock.objects import Object, timestamp

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
PROJECT, NODE = "guarded", "guarded-node"
PODS = f"/api/v1/namespaces/runai-{PROJECT}/pods"
TOLD_S = 40.0
"""Seconds until a user is told: the API server believes a token for ten after it was taken back."""
BACK_S = 60.0
OWN_REQUESTS, MOST_A_SECOND = 200, 10.0
"""Requests while they are refused: those that this test's own commands cost, with room, and all others in a second."""
RUNS = 20
"""Of the program that gives credentials, and one a second besides: each part of the server starts it every five seconds at most."""
MAX_MIB = 60
"""By which the server may grow meanwhile."""


class TokenPlugin:
    """A program as a kubeconfig names it under `exec`: it gives the token of the last login, and notes each run."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._credential, self._runs, self.program = directory / "credential", directory / "runs", directory / "log-in"
        self.program.write_text(f"#!/bin/sh\necho run >> {self._runs}\ncat {self._credential}\n")
        self.program.chmod(0o700)

    @property
    def user(self) -> dict[str, Any]:
        """As the kubeconfig has it."""
        version = "client.authentication.k8s.io/v1"
        return {"exec": {"apiVersion": version, "command": str(self.program), "interactiveMode": "Never"}}

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines())

    def write_token(self, token: str) -> None:
        content = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": token},
        }
        written = self._credential.with_name("written")
        written.touch(mode=0o600)
        written.write_text(json.dumps(content))
        written.replace(self._credential)


@dataclass
class World:
    plane: RealPlane
    served: Cluster
    kubelet: PlayedKubelet
    account: str
    plugin: TokenPlugin | None
    """The program of its kubeconfig that gives the token; None = it stands in the file."""

    def patch(self, path: str, body: Any) -> None:
        async def send() -> None:
            async with self.plane.connect() as kube:
                await kube.connection.send(
                    Request("PATCH", path, body=body, media="application/strategic-merge-patch+json")
                )

        asyncio.run(send())

    def beat(self) -> None:
        amounts = {"cpu": "64", "memory": "64Gi", "pods": "500"}
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": timestamp(time.time())}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready], **self.kubelet.address}
        self.patch(f"/api/v1/nodes/{NODE}/status", {"status": status})

    def pods(self, job: str) -> list[Object]:
        found: list[Object] = self.plane.send("GET", PODS)["items"]
        return [pod for pod in found if pod["metadata"]["labels"].get("training.kubeflow.org/job-name") == job]

    def submit(self, job: str) -> str:
        """What the command prints, refused or not."""
        command = ("runai", "submit-dist", "pytorch", job, "-i", "nothing:1", "--workers=1", "-p", PROJECT)
        return self.served.run(*command, code=None)

    def await_bound(self, job: str) -> None:
        def is_bound() -> bool:
            pods = self.pods(job)
            return len(pods) == 2 and all(pod["spec"].get("nodeName") for pod in pods)

        self.served.until(is_bound, f"the pods of {job} have a node", BACK_S)

    def run(self, job: str, state: str) -> None:
        """What the node's kubelet says of the pods of a job: `running`, or `terminated`."""
        now = timestamp(time.time())
        facts = {"startedAt": now} if state == "running" else {"exitCode": 0, "startedAt": now, "finishedAt": now}
        for pod in self.pods(job):
            name = pod["metadata"]["name"]
            main = {"name": pod["spec"]["containers"][0]["name"], "restartCount": 0, "state": {state: facts},
                    "ready": state == "running", "image": "nothing:1", "imageID": ""}  # fmt: skip
            phase = "Running" if state == "running" else "Succeeded"
            self.patch(f"{PODS}/{name}/status", {"status": {"phase": phase, "containerStatuses": [main]}})

    def write_log(self, job: str) -> None:
        for rank in ("master-0", "worker-0"):
            self.kubelet.logs = {
                **self.kubelet.logs,
                f"{job}-{rank}": [f"2026-01-02T03:04:05.000000000Z {job} said it in {rank}"],
            }

    def is_said(self, job: str) -> bool:
        said = self.served.run("rowlock", "logs", job, "-p", PROJECT, code=None)
        return all(f"{job} said it in {rank}" in said for rank in ("master-0", "worker-0"))

    def await_kept(self, job: str) -> None:
        """Once it is deleted."""
        self.served.until(lambda: not self.pods(job), f"the pods of {job} are gone", BACK_S)
        self.served.until(lambda: self.is_said(job), f"the log of {job} is kept", BACK_S)

    def log(self) -> str:
        return (self.served.data / "server.log").read_text()

    def await_told(self, words: str, since: int) -> None:
        """In the server's log, behind so many characters."""
        self.served.until(lambda: words in self.log()[since:], f"the log says: {words}", BACK_S)

    def memory(self) -> float:
        """MiB of the server."""
        return float(psutil.Process(self.served.pid).memory_info().rss / 2**20)

    def asked(self, since: str) -> float:
        """How often the server has asked the cluster for something since a moment, and how often anybody was not let in at all."""
        lines = [
            line for line in asyncio.run(self._metrics()).splitlines() if line.startswith("authentication_attempts{")
        ]
        strangers = sum(float(line.rpartition(" ")[2]) for line in lines if 'result="success"' not in line)
        return strangers + len(self.plane.asked(since)[self.account])

    async def _metrics(self) -> str:
        async with self.plane.connect() as kube:
            return (await kube.connection.fetch(Request("GET", "/metrics"))).decode()

    # ------------------------------------------------------------ what is lost, and given again

    def take_binding(self) -> None:
        self.plane.send("DELETE", f"{RBAC}/clusterrolebindings/{self.account}")

    def give_binding(self) -> None:
        subject = {"kind": "ServiceAccount", "name": self.account, "namespace": "default"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.account}
        body = {"metadata": {"name": self.account}, "roleRef": role, "subjects": [subject]}
        self.plane.send("POST", f"{RBAC}/clusterrolebindings", body)

    def take_token(self) -> None:
        """An account that is made again is another one: tokens of the first count no longer."""
        self.plane.send("DELETE", f"{ACCOUNTS}/{self.account}")

    def give_token(self) -> None:
        self.plane.send("POST", ACCOUNTS, {"metadata": {"name": self.account}})
        token = asyncio.run(self._new_token())
        if self.plugin is None:
            write_kubeconfig(self.plane, self.account, {"token": token})
        else:
            self.plugin.write_token(token)

    async def _new_token(self) -> str:
        async with self.plane.connect() as kube:
            return await make_token(kube, self.account)


@contextmanager
def beating(world: World) -> Iterator[None]:
    """The cluster takes a node for lost after 40 s of silence."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(8.0):
            with suppress(ApiError):
                world.beat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


@pytest.fixture(scope="module")
def world(
    request: pytest.FixtureRequest, plane: RealPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """`request.param`: what its kubeconfig has, a `token` or a `program` that gives one."""
    account = f"guard-{request.param}"
    kubeconfig = asyncio.run(make_account(plane, account, EVERYTHING))
    directory, plugin = tmp_path_factory.mktemp("guarded"), None
    if request.param == "program":
        plugin = TokenPlugin(directory / "plugin")
        plugin.write_token(json.loads(kubeconfig.read_text())["users"][0]["user"]["token"])
        write_kubeconfig(plane, account, plugin.user)
    with ExitStack() as stack:
        kubelet = stack.enter_context(played_kubelet(plane.directory / "keys"))
        served = stack.enter_context(lent(directory))
        own = ("--scheduler", "own", "--operator", "own", "--install-crds")
        served.up("--kubeconfig", str(kubeconfig), *own)
        made = World(plane, served, kubelet, account, plugin)
        plane.send("POST", "/api/v1/nodes", {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}})
        stack.callback(plane.send, "DELETE", f"/api/v1/nodes/{NODE}")
        made.beat()
        stack.enter_context(beating(made))
        served.run("rowlock", "project", "create", PROJECT, code=None)  # that of the other kubeconfig may be there
        yield made


LOSSES: dict[str, tuple[Callable[[World], None], Callable[[World], None], str]] = {
    "rights": (
        World.take_binding,
        World.give_binding,
        'is forbidden: User "system:serviceaccount:default:guard-token"',
    ),
    "token": (
        World.take_token,
        World.give_token,
        "the cluster does not accept the credentials (Unauthorized): write new",
    ),
    "login": (World.take_token, World.give_token, "gives them: log in with it again"),
}
"""How they are taken, how they are given again, and what who submits is told meanwhile."""


@pytest.mark.parametrize(
    ("world", "loss"),
    [("token", "rights"), ("token", "token"), ("program", "login")],
    indirect=["world"],
    scope="module",
)
def test_all_goes_on_when_the_rights_are_back(world: World, loss: str) -> None:
    take, give, sentence = LOSSES[loss]
    long, late, next_one = f"{loss}-long", f"{loss}-late", f"{loss}-next"
    for job in (long, late):
        assert "submitted" in world.submit(job)
        world.await_bound(job)
    world.write_log(long)
    world.run(long, "running")
    world.served.until(lambda: world.is_said(long), "the log of a running job is shown")
    had, marks, runs = world.memory(), len(world.log()), world.plugin.runs if world.plugin else 0
    take(world)
    try:
        names = itertools.count()
        world.served.until(lambda: sentence in world.submit(f"{loss}-{next(names)}"), "who submits is told", TOLD_S)
        began = time.monotonic()
        since = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        asked_before = world.asked(since)
        world.write_log(late)
        world.run(late, "running")
        for job in (long, late):
            world.run(job, "terminated")
        assert long in world.served.run("rowlock", "list", "-p", PROJECT), "lists are what was known"
        status = world.served.run("rowlock", "status")
        assert "Scheduler:   not known:" in status and sentence in status
        world.await_told("logs are not kept in the archive while the cluster refuses them", marks)
        world.await_told("leads no longer", marks)
        seconds, asked = time.monotonic() - began, world.asked(since) - asked_before
    finally:
        give(world)
        back = time.monotonic()
    print(f"{loss}: {asked:.0f} requests in {seconds:.1f} s")
    if world.plugin is not None:
        print(f"{loss}: the program ran {world.plugin.runs - runs} times")
        assert 0 < world.plugin.runs - runs < RUNS + seconds, "it may ask a person, or a service far away"
    assert asked < OWN_REQUESTS + MOST_A_SECOND * seconds
    world.served.until(lambda: "submitted" in world.submit(next_one), "submits are accepted again", BACK_S)
    world.await_bound(next_one)
    print(f"{loss}: a new job has nodes {time.monotonic() - back:.1f} s after they were back")
    for job in (long, late):
        world.served.run("rowlock", "wait", job, "-p", PROJECT, "--timeout", f"{BACK_S:.0f}s")
        world.served.run("rowlock", "delete", job, "-p", PROJECT)
        world.await_kept(job)
    history = world.served.run("rowlock", "history", "-p", PROJECT)
    assert sum(line.startswith((long, late)) and "Completed" in line for line in history.splitlines()) == 2, history
    assert world.memory() - had < MAX_MIB
