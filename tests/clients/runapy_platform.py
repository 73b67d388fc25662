"""Run:ai's client, logged in as an application that may do everything: at the server of an embedded cluster, or of a real one."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.clients.conftest import Site
from tests.engines.real_engine import RealEngine

IMAGE = "/kubeflow/pytorch-dist-mnist:latest"
_RBAC = "rbac.authorization.k8s.io"


@dataclass
class Platform:
    """`core` is the official client of the cluster, as its administrator; `ask` sends a request of the REST API as the owner."""

    client: Any
    core: Any
    project: dict[str, Any]
    cluster: str
    ask: Callable[..., Any]
    portion: float
    """The part of a GPU that submits ask for: schedulers of real clusters give whole ones, unless they are KAI."""

    def api(self, name: str) -> Any:
        return getattr(import_module("runai.api"), name)(self.client)

    def submit(self, name: str) -> Any:
        models: Any = import_module("runai.models")
        compute = models.SupersetSpecAllOfCompute(
            gpu_devices_request=1, gpu_request_type="portion", gpu_portion_request=self.portion, cpu_core_request=0.1,
            cpu_memory_request="100M",
        )  # fmt: skip
        spec = models.DistributedSpecSpec(image=IMAGE, num_workers=2, distributed_framework="PyTorch", compute=compute)
        request = models.DistributedCreationRequest(
            name=name, project_id=self.project["id"], cluster_id=self.cluster, spec=spec
        )
        return self.api("DistributedApi").create_distributed(request)


@dataclass(frozen=True)
class _Door:
    """A server, and the credentials of an application: the client id and its secret."""

    data: Path
    owner: Any
    client_id: str
    client_secret: str
    subject: dict[str, str]
    """The application as a binding names it."""

    @property
    def url(self) -> str:
        return str(json.loads((self.data / "server.json").read_text())["url"])


@contextmanager
def embedded_platform(site: Site) -> Iterator[Platform]:
    """The application is one that the server keeps, with a secret of its own."""
    data, name = site.kubeconfig.parent, f"app-{uuid.uuid4().hex[:8]}"
    with import_module("kubernetes").config.new_client_from_config(str(site.kubeconfig)) as owner:
        made = _asker(data)("POST", "/api/v1/applications", {"name": name})
        subject = {"kind": "User", "name": f"app:{name}", "apiGroup": _RBAC}
        with _logged_in(_Door(data, owner, made["clientId"], made["clientSecret"], subject), 0.1) as platform:
            yield platform


@contextmanager
def real_platform(engine: RealEngine) -> Iterator[Platform]:
    """The application is a service account of the cluster, and its secret one of its tokens."""
    kubernetes: Any = import_module("kubernetes")
    name = f"app-{uuid.uuid4().hex[:8]}"
    with kubernetes.config.new_client_from_config(str(engine.kubeconfig)) as owner:
        core = kubernetes.client.CoreV1Api(owner)
        core.create_namespaced_service_account("default", {"metadata": {"name": name}})
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = core.create_namespaced_service_account_token(name, "default", request).status.token
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        door = _Door(engine.cluster.data, owner, f"default:{name}", token, subject)
        try:
            with _logged_in(door, 1) as platform:
                yield platform
        finally:
            engine.sweep()
            core.delete_namespaced_service_account(name, "default")


@contextmanager
def _logged_in(door: _Door, portion: float) -> Iterator[Platform]:
    kubernetes: Any = import_module("kubernetes")
    rights = kubernetes.client.RbacAuthorizationV1Api(door.owner)
    binding = f"runapy-{uuid.uuid4().hex[:8]}"
    everything = {
        "metadata": {"name": binding},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [door.subject],
    }
    rights.create_cluster_role_binding(everything)
    settings = import_module("runai.configuration").Configuration(
        client_id=door.client_id, client_secret=door.client_secret, runai_base_url=f"{door.url}/runai",
        ssl_ca_cert=str(door.data / "ca.crt"),
    )  # fmt: skip
    ask = _asker(door.data)
    with import_module("runai.api_client").ApiClient(settings) as client:
        project = ask("POST", "/api/v1/org-unit/projects", {"name": f"team-{binding}"})
        cluster = ask("GET", "/api/v1/clusters")[0]["uuid"]
        yield Platform(client, kubernetes.client.CoreV1Api(door.owner), project, cluster, ask, portion)
    rights.delete_cluster_role_binding(binding)


def _asker(data: Path) -> Callable[..., Any]:
    """Requests of the REST API as the owner of a data directory."""
    url, token = json.loads((data / "server.json").read_text())["url"], (data / "token").read_text().strip()
    pool = import_module("urllib3").PoolManager(ca_certs=str(data / "ca.crt"))

    def ask(method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        answer = pool.request(method, url + path, headers=headers, body=None if body is None else json.dumps(body))
        assert answer.status < 300, answer.data
        return json.loads(answer.data)

    return ask
