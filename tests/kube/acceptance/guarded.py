"""A server whose credentials or rights are taken away while it runs, for the acceptance tests of that: `guarded_server`."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from tests.end_to_end.cluster import Cluster, lent, make
from tests.engines.played_kubelet import PlayedKubelet, played_kubelet
from tests.kube.acceptance.real_plane import ACCOUNTS, RBAC, RealPlane, make_account, make_token, run, write_kubeconfig

from rowlock.errors import AlreadyExists, ApiError
from rowlock.kube.connection import Request
from rowlock.objects import Object, timestamp

EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
RESEARCHER = [
    {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods", "pods/log", "events"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
]
"""What a user who works in a project may do there."""
TOLD_S = 40.0
"""Seconds until a user is told: the API server believes a token for ten after it was taken back."""
BACK_S = 60.0


@dataclass
class GuardedServer:
    """A server over a real control plane, with the rights of a service account of its own, whose credentials a test takes away; one
    project, and one node, which the test plays."""

    plane: RealPlane
    served: Cluster
    kubelet: PlayedKubelet
    account: str
    """In `default`; project and node are named after it."""
    write_token: Callable[[str], None]
    """Where the server looks for it."""

    @property
    def project(self) -> str:
        return f"{self.account}-project"

    @property
    def node(self) -> str:
        return f"{self.account}-node"

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/runai-{self.project}/pods"

    def patch(self, path: str, body: Any) -> None:
        async def send() -> None:
            async with self.plane.connect() as kube:
                await kube.connection.send(
                    Request("PATCH", path, body=body, media="application/strategic-merge-patch+json")
                )

        run(send())

    def beat(self) -> None:
        amounts = {"cpu": "64", "memory": "64Gi", "pods": "500"}
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": timestamp(time.time())}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready], **self.kubelet.address}
        self.patch(f"/api/v1/nodes/{self.node}/status", {"status": status})

    def pods(self, job: str) -> list[Object]:
        found: list[Object] = self.plane.send("GET", self.pods_path)["items"]
        return [pod for pod in found if pod["metadata"]["labels"].get("training.kubeflow.org/job-name") == job]

    def submit(self, job: str) -> str:
        """What the command prints, refused or not."""
        command = ("runai", "submit-dist", "pytorch", job, "-i", "nothing:1", "--workers=1", "-p", self.project)
        return self.served.run(*command, code=None)

    def let_work(self, subject: Object, name: str, project: str = "") -> None:
        """Give a user or a group the rights of a researcher in a project; `name`: of the binding."""
        role = f"{self.account}-researcher"
        with suppress(AlreadyExists):
            self.plane.send("POST", f"{RBAC}/clusterroles", {"metadata": {"name": role}, "rules": RESEARCHER})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        path = f"{RBAC}/namespaces/runai-{project or self.project}/rolebindings"
        self.plane.send("POST", path, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})

    def ask_as(self, token: str, method: str, path: str, body: Any = None) -> httpx.Response:
        """What the REST API answers whoever has this token."""
        url, _, authority = self.served.door(path)
        tls = ssl.create_default_context(cafile=str(authority))
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, verify=tls, headers=headers, timeout=200) as client:
            return client.request(method, path, json=body)

    def workloads_of(self, token: str) -> list[str]:
        answer = self.ask_as(token, "GET", "/api/v1/workloads")
        assert answer.status_code == 200, answer.text
        return sorted(one["name"] for one in answer.json()["workloads"])

    def submit_as(self, token: str, job: str, project: str = "") -> httpx.Response:
        projects = self.served.api("GET", "/api/v1/org-unit/projects")["projects"]
        (number,) = (one["id"] for one in projects if one["name"] == (project or self.project))
        cluster = self.served.api("GET", "/api/v1/clusters")[0]["uuid"]
        spec = {"image": "nothing:1", "distributedFramework": "PyTorch", "numWorkers": 1}
        body = {"name": job, "projectId": number, "clusterId": cluster, "spec": spec}
        return self.ask_as(token, "POST", "/api/v1/workloads/distributed", body)

    def log_in(self, home: Path, client_id: str, token: str) -> Cluster:
        """The commands of somebody on a machine of his own, who has logged in with this token."""
        commands = make(home / "data", home)
        url, _, authority = self.served.door("/")
        commands.data.mkdir(parents=True)
        (commands.data / "ca.crt").write_bytes(authority.read_bytes())
        commands.run("runai", "config", "set", "--cp-url", url)
        commands.run("runai", "login", "application", "--client-id", client_id, "--secret", token)
        return commands

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
            self.patch(f"{self.pods_path}/{name}/status", {"status": {"phase": phase, "containerStatuses": [main]}})

    def write_log(self, job: str) -> None:
        for rank in ("master-0", "worker-0"):
            self.kubelet.logs = {
                **self.kubelet.logs,
                f"{job}-{rank}": [f"2026-01-02T03:04:05.000000000Z {job} said it in {rank}"],
            }

    def is_said(self, job: str) -> bool:
        said = self.served.run("rowlock", "logs", job, "-p", self.project, code=None)
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
        lines = [line for line in run(self._metrics()).splitlines() if line.startswith("authentication_attempts{")]
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
        self.write_token(run(self._new_token()))

    async def _new_token(self) -> str:
        async with self.plane.connect() as kube:
            return await make_token(kube, self.account)


@contextmanager
def beating(world: GuardedServer) -> Iterator[None]:
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
        thread.join(200)


@contextmanager
def guarded_server(
    plane: RealPlane,
    home: Path,
    account: str,
    kubeconfig: Path | None = None,
    write_token: Callable[[str], None] | None = None,
) -> Iterator[GuardedServer]:
    """With the scheduler and the operators; of the kubeconfig of a new service account, unless another is given. `write_token` where
    its token does not stand in the kubeconfig."""
    kubeconfig = kubeconfig or run(make_account(plane, account, EVERYTHING))

    def write_into_kubeconfig(token: str) -> None:
        write_kubeconfig(plane, account, {"token": token})

    with ExitStack() as stack:
        kubelet = stack.enter_context(played_kubelet(plane.directory / "keys"))
        served = stack.enter_context(lent(home))
        own = ("--scheduler", "own", "--operator", "own", "--install-crds")
        served.up("--kubeconfig", str(kubeconfig), *own)
        made = GuardedServer(plane, served, kubelet, account, write_token or write_into_kubeconfig)
        labels = {"kubernetes.io/hostname": made.node}
        plane.send("POST", "/api/v1/nodes", {"metadata": {"name": made.node, "labels": labels}})
        stack.callback(plane.send, "DELETE", f"/api/v1/nodes/{made.node}")
        made.beat()
        stack.enter_context(beating(made))
        served.run("rowlock", "project", "create", made.project)
        yield made
