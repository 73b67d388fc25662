"""kr8s, lightkube and kubernetes_asyncio: each in its own way of speaking."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.clients.conftest import Site

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def test_kr8s(site: Site) -> None:
    kr8s = pytest.importorskip("kr8s", reason="kr8s is not installed")
    objects = pytest.importorskip("kr8s.asyncio.objects")

    async def run() -> None:
        api = await kr8s.asyncio.api(kubeconfig=str(site.kubeconfig), namespace=site.namespace)
        assert (await api.version())["major"] == "1"
        pod = await objects.Pod(site.pod("p"), api=api)
        await pod.create()
        assert await pod.exists() and pod.status.phase == "Pending"
        await pod.label({"colour": "red"})
        await pod.annotate({"note": "seen"})
        await pod.patch({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, subresource="status")
        await pod.wait("condition=Ready", timeout=200)
        found = [p.name async for p in api.get("pods", namespace=site.namespace, label_selector={"colour": "red"})]
        assert found == ["p"]
        kind = objects.new_class("PyTorchJob", "kubeflow.org/v1", asyncio=True, namespaced=True, plural="pytorchjobs")
        job = await kind(site.job("j"), api=api)
        await job.create()
        assert [j.name async for j in api.get("pytorchjobs.kubeflow.org", namespace=site.namespace)] == ["j"]
        async for event, watched in api.watch("pods", namespace=site.namespace):
            assert event == "ADDED"
            if watched.name == "p":
                break
        await pod.delete()
        await pod.wait("delete", timeout=200)
        with pytest.raises(kr8s.NotFoundError):
            await pod.refresh()

    asyncio.run(run())


def _lightkube(site: Site) -> tuple[Any, Any]:
    lightkube = pytest.importorskip("lightkube", reason="lightkube is not installed")
    return lightkube, lightkube.KubeConfig.from_file(site.kubeconfig)


def test_lightkube(site: Site) -> None:
    lightkube, config = _lightkube(site)
    core = pytest.importorskip("lightkube.resources.core_v1")
    codecs = pytest.importorskip("lightkube.codecs")
    generic = pytest.importorskip("lightkube.generic_resource")
    with lightkube.Client(config=config, namespace=site.namespace, field_manager="light") as client:
        made = client.create(codecs.from_dict(site.config_map("a", x="1")))
        made.data["y"] = "2"
        assert client.replace(made).data == {"x": "1", "y": "2"}
        applied = client.apply(codecs.from_dict(site.config_map("b", z="1")))
        assert [f.manager for f in applied.metadata.managedFields] == ["light"]
        assert [o.metadata.name for o in client.list(core.ConfigMap, labels={"made-by": "a-test"})] == ["a", "b"]
        type_, watched = next(iter(client.watch(core.ConfigMap, labels={"made-by": "a-test"}, server_timeout=30)))
        assert (type_, watched.metadata.name) == ("ADDED", "a")
        client.create(codecs.from_dict(site.pod("p")))
        client.patch(core.Pod.Status, "p", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        client.wait(core.Pod, "p", for_conditions=["Ready"])
        jobs = generic.create_namespaced_resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
        client.create(jobs(**site.job("j")))
        assert client.get(jobs, "j").spec["pytorchReplicaSpecs"]["Worker"]["replicas"] == 1
        client.deletecollection(core.ConfigMap)
        assert list(client.list(core.ConfigMap, labels={"made-by": "a-test"})) == []
        with pytest.raises(lightkube.ApiError) as caught:
            client.get(core.Pod, "nobody")
        assert (caught.value.status.code, caught.value.status.reason) == (404, "NotFound")


def test_lightkube_async(site: Site) -> None:
    lightkube, config = _lightkube(site)
    core = pytest.importorskip("lightkube.resources.core_v1")
    codecs = pytest.importorskip("lightkube.codecs")

    async def run() -> None:
        client = lightkube.AsyncClient(config=config, namespace=site.namespace)
        await client.create(codecs.from_dict(site.config_map("a", x="1")))
        async for type_, watched in client.watch(core.ConfigMap, labels={"made-by": "a-test"}):
            assert (type_, watched.data) == ("ADDED", {"x": "1"})
            break
        await client.delete(core.ConfigMap, "a")
        await client.close()

    asyncio.run(run())


def test_kubernetes_asyncio(site: Site) -> None:
    library = pytest.importorskip("kubernetes_asyncio", reason="kubernetes_asyncio is not installed")

    async def run() -> None:
        config = library.client.Configuration()
        await library.config.load_kube_config(str(site.kubeconfig), client_configuration=config)
        async with library.client.ApiClient(config) as api:
            core = library.client.CoreV1Api(api)
            await core.create_namespaced_config_map(site.namespace, site.config_map("a", x="1"))
            watch = library.watch.Watch()
            async with watch.stream(
                core.list_namespaced_config_map, site.namespace, timeout_seconds=5, label_selector="made-by=a-test"
            ) as events:
                async for event in events:
                    assert (event["type"], event["object"].metadata.name) == ("ADDED", "a")
                    break
            client = await library.dynamic.DynamicClient(api)
            jobs = await client.resources.get(api_version="kubeflow.org/v1", kind="PyTorchJob")
            await jobs.create(body=site.job("j"), namespace=site.namespace)
            found = await jobs.get(namespace=site.namespace)
            assert [j.metadata.name for j in found.items] == ["j"]
            await core.delete_namespaced_config_map("a", site.namespace)
            with pytest.raises(library.client.ApiException):
                await core.read_namespaced_config_map("a", site.namespace)

    asyncio.run(run())
