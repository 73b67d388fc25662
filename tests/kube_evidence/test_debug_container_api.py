"""How a real kube-apiserver takes debug containers: no kubelet is there, so none of them ever runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.subjects import real_cluster, real_cluster_missing
from tests.kube.test_served_cluster import kubectl

from rowlock.errors import Invalid
from rowlock.kinds import POD
from rowlock.kube.client import Kube
from rowlock.kube_evidence.debug_container import SUBRESOURCE, DebugContainers, NoDebugContainer

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
ENOUGH_S = 4.0
"""Seconds in which a busy machine adds one; nothing runs it, so each try takes them all."""
PAUSE = {"name": "main", "image": "nothing:1"}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if missing := real_cluster_missing():
        pytest.skip(missing)
    with real_cluster(tmp_path_factory.mktemp("real")) as made:
        kubectl(made, "create", "namespace", "debugged")
        kubectl(made, "create", "serviceaccount", "ana", "-n", "debugged")
        kubectl(
            made,
            "create",
            "rolebinding",
            "ana",
            "--clusterrole=view",
            "--serviceaccount=debugged:ana",
            "-n",
            "debugged",
        )
        yield made


def user_config(kubeconfig: Path, directory: Path) -> Path:
    """Of an account that may look at pods and change none."""
    config = json.loads(kubeconfig.read_text())
    token = kubectl(kubeconfig, "create", "token", "ana", "-n", "debugged").strip()
    config["users"] = [{"name": one["name"], "user": {"token": token}} for one in config["users"]]
    (directory / "ana.json").write_text(json.dumps(config))
    return directory / "ana.json"


async def ask(kube: Kube, name: str, image: str) -> str:
    pod = await kube.get(POD, "debugged", name)
    with pytest.raises(NoDebugContainer) as error:
        await DebugContainers(image).ensure_running(kube, pod, asyncio.get_running_loop().time() + ENOUGH_S)
    return str(error.value)


async def make_pod(kube: Kube, name: str) -> None:
    metadata = {"name": name, "namespace": "debugged"}
    spec = {"containers": [PAUSE], "automountServiceAccountToken": False}
    await kube.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def test_two_servers_add_one_and_a_third_images_container_is_another(kubeconfig: Path) -> None:
    async def walk() -> list[tuple[str, str]]:
        async with Kube.connect(kubeconfig) as kube:
            await make_pod(kube, "twice")
            said = await asyncio.gather(*(ask(kube, "twice", "debug:1") for _ in range(4)))
            assert all(one.endswith(": ask again") for one in said), said
            await ask(kube, "twice", "debug:2")
            pod = await kube.get(POD, "debugged", "twice")
            return sorted((one["name"], one["image"]) for one in pod["spec"]["ephemeralContainers"])

    assert asyncio.run(walk()) == [("rowlock-debug-1", "debug:1"), ("rowlock-debug-2", "debug:2")]


def test_what_the_api_server_refuses_is_what_is_expected(kubeconfig: Path, tmp_path: Path) -> None:
    """A name that another image has, a pod that is another one, an account without the right, Pod Security."""

    async def walk() -> list[str]:
        async with Kube.connect(kubeconfig) as kube, Kube.connect(user_config(kubeconfig, tmp_path)) as user:
            await make_pod(kube, "refused")
            unallowed = await ask(user, "refused", "debug:1")
            await ask(kube, "refused", "debug:1")
            taken = {"spec": {"ephemeralContainers": [{"name": "rowlock-debug-1", "image": "other:1"}]}}
            with pytest.raises(Invalid, match="may not be changed"):
                await kube.patch(POD, "debugged", "refused", taken, type="strategic", subresource=SUBRESOURCE)
            with pytest.raises(Invalid, match=r"metadata\.uid: "):
                another = {"metadata": {"uid": "another"}, **taken}
                await kube.patch(POD, "debugged", "refused", another, type="strategic", subresource=SUBRESOURCE)
            said = [unallowed]
            for level in ("baseline", "restricted"):
                label = f"pod-security.kubernetes.io/enforce={level}"
                await asyncio.to_thread(kubectl, kubeconfig, "label", "namespace", "debugged", "--overwrite", label)
                said.append(await ask(kube, "refused", f"debug:{level}"))
            return said

    assert asyncio.run(walk()) == [
        "you may not `patch` `pods/ephemeralcontainers`",
        "the Pod Security of its namespace (baseline) refuses SYS_PTRACE",
        "the Pod Security of its namespace (restricted) refuses SYS_PTRACE",
    ]
