"""Where the web UI's tests run: over the embedded cluster, or over a real one with a real node. What differs for a test is here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.end_to_end.cluster import Cluster, lent
from tests.engines.real_node import HEARS, IMAGE, PYTHON, VIEWER, RealNode

BINDINGS = "/apis/rbac.authorization.k8s.io/v1"
PROJECT, GPUS = "team-a", 2
ACCOUNTS = "/api/v1/namespaces/runai-default/serviceaccounts"


class Site:
    """A cluster with two GPUs and the projects `default` and team-a, and a server of the UI."""

    image = "rowlock.dev/host"
    """Has this machine's programs."""
    environment = "this-machine"
    """The form's environment with this image; "" where the form has none."""
    failure_event = "RankFailed"
    """The reason of an event that tells of a rank that failed."""
    placed: Mapping[str, str] = {}
    """What a pod's spec says so that our scheduler places it, of a job that is not submitted but applied."""
    viewer = "view"
    """The cluster role of those who may look."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def command(self, program: str) -> list[str]:
        """What runs this program of Python in a pod."""
        return ["python", "-c", program]

    def run(self, name: str, program: str, *flags: str, argv: tuple[str, ...] = (), waits: bool = False) -> None:
        """`rowlock run`, which comes back at once or when the job is done."""
        words = ("--name", name, *self._where(), *flags, *(() if waits else ("-d",)))
        self.cluster.run("rowlock", "run", *words, "--", *self.command(program), *argv)

    def _where(self) -> tuple[str, ...]:
        return ()

    def address(self, user: str = "") -> str:
        """An address that opens the UI once, for the owner or for the user vera, who may look everywhere, or alan, who may nothing yet."""
        who = ("--user", user) if user else ()
        return str(self.cluster.json("rowlock", "ui", "--no-browser", "--json", *who)["url"])

    def full_name(self, user: str) -> str:
        """As the cluster calls him."""
        return user

    def token(self, user: str) -> str:
        """With which he signs in at the page; "" where nobody does so."""
        return ""

    def subject(self, user: str) -> Mapping[str, str]:
        return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}

    def grant(self, user: str, project: str) -> None:
        """He may look at a project."""
        binding = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.viewer},
            "subjects": [self.subject(user)],
        }
        self.cluster.api("POST", f"{BINDINGS}/namespaces/runai-{project}/rolebindings", binding)

    def revoke(self, user: str, project: str) -> None:
        self.cluster.api("DELETE", f"{BINDINGS}/namespaces/runai-{project}/rolebindings/{user}")

    def label_node(self, **labels: str) -> str:
        """Give the only node these labels ("example.com/rack": "r7"); its name."""
        (node,) = self.cluster.api("GET", "/api/v1/nodes")["items"]
        name = str(node["metadata"]["name"])
        self.cluster.api("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
        return name

    def stop_server(self, *, keeps_jobs: bool = False) -> None:
        self.cluster.run("rowlock", "down", "--keep-jobs" if keeps_jobs else "--yes")

    def start_server(self) -> None:
        people = self.cluster.data.parent / "users.csv"
        self.cluster.up("--simulated-gpus", str(GPUS), "--users", str(people))


class RealSite(Site):
    """Pods are containers there, and users have tokens of the cluster: those of service accounts of `runai-default`."""

    image, environment, viewer, failure_event = IMAGE, "", VIEWER, "ExitedWithCode"

    placed: Mapping[str, str] = {"schedulerName": "rowlock-scheduler"}

    def __init__(self, cluster: Cluster, engine: RealNode) -> None:
        super().__init__(cluster)
        self.engine = engine

    def command(self, program: str) -> list[str]:
        return [PYTHON, "-c", HEARS + program]

    def _where(self) -> tuple[str, ...]:
        return ("--image", self.image)

    def address(self, user: str = "") -> str:
        if not user:
            return super().address()
        answer = self.cluster.api("POST", "/api/v1/ui/codes", {}, token=self.token(user))
        return str(answer["url"])

    def token(self, user: str) -> str:
        """As `kubectl create token` prints one."""
        known = [one["metadata"]["name"] for one in self.cluster.api("GET", ACCOUNTS)["items"]]
        if user not in known:
            self.cluster.api("POST", ACCOUNTS, {"metadata": {"name": user}})
        return str(self.cluster.api("POST", f"{ACCOUNTS}/{user}/token", {"spec": {}})["status"]["token"])

    def full_name(self, user: str) -> str:
        return f"system:serviceaccount:runai-default:{user}"

    def subject(self, user: str) -> Mapping[str, str]:
        return {"kind": "ServiceAccount", "name": user, "namespace": "runai-default"}

    def let_look(self, user: str) -> None:
        """Everywhere."""
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.viewer}
        binding = {"metadata": {"name": f"rowlock-test-{user}"}, "roleRef": role, "subjects": [self.subject(user)]}
        found: list[Any] = self.cluster.api("GET", f"{BINDINGS}/clusterrolebindings")["items"]
        if binding["metadata"] not in [{"name": one["metadata"]["name"]} for one in found]:
            self.cluster.api("POST", f"{BINDINGS}/clusterrolebindings", binding)

    def stop_server(self, *, keeps_jobs: bool = True) -> None:
        self.engine.stop_server()

    def start_server(self) -> None:
        self.engine.start_server()
        self.engine.lend_directory(self.cluster.data)


@contextmanager
def embedded_site(home: Path) -> Iterator[Site]:
    with lent(home) as cluster:
        people = home / "users.csv"
        people.touch(0o600)
        people.write_text("vera-vera-vera-vera-vera,vera,1,rowlock:viewers\nalan-alan-alan-alan-alan,alan,2,\n")
        site = Site(cluster)
        site.start_server()
        cluster.run("rowlock", "project", "create", PROJECT, "--gpus", str(GPUS))
        yield site


@contextmanager
def real_site(engine: RealNode, home: Path) -> Iterator[Site]:
    cluster = engine.lend(home)
    site = RealSite(cluster, engine)
    for name, quota in (("default", ()), (PROJECT, ("--gpus", str(GPUS)))):
        cluster.run("rowlock", "project", "create", name, *quota)
    site.let_look("vera")
    yield site
    engine.sweep()
