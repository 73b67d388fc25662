"""The official Python client: typed calls, watches, the dynamic client, custom objects, leader election."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.conftest import Site

from rowlock import KUBERNETES

kubernetes = pytest.importorskip("kubernetes", reason="the official Python client (kubernetes) is not installed")
dynamic = pytest.importorskip("kubernetes.dynamic")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

MINE = "made-by=a-test"
NOT_THE_CA = "metadata.name!=kube-root-ca.crt"
"""Every namespace gets a ConfigMap with the cluster's CA, some time after its birth."""


@pytest.fixture
def api(site: Site) -> Iterator[Any]:
    with kubernetes.config.new_client_from_config(str(site.kubeconfig)) as client:
        yield client


@pytest.fixture
def core(api: Any) -> Any:
    return kubernetes.client.CoreV1Api(api)


def test_the_server_says_who_it_is(api: Any) -> None:
    version = kubernetes.client.VersionApi(api).get_code()
    assert (version.major, version.minor) == tuple(KUBERNETES.split(".")[:2])
    groups = {g.name for g in kubernetes.client.ApisApi(api).get_api_versions().groups}
    assert {"kubeflow.org", "scheduling.run.ai", "scheduling.k8s.io", "coordination.k8s.io"} <= groups


def test_typed_objects_live(core: Any, site: Site) -> None:
    made = core.create_namespaced_config_map(site.namespace, site.config_map("a", x="1"))
    assert (made.metadata.name, made.data, made.metadata.labels) == ("a", {"x": "1"}, {"made-by": "a-test"})
    made.data["y"] = "2"
    assert core.replace_namespaced_config_map("a", site.namespace, made).data == {"x": "1", "y": "2"}
    patched = core.patch_namespaced_config_map("a", site.namespace, {"data": {"x": None}})
    assert patched.data == {"y": "2"}
    found = core.list_namespaced_config_map(site.namespace, label_selector=MINE).items
    assert [(o.metadata.name, o.data) for o in found] == [("a", {"y": "2"})]
    assert core.delete_namespaced_config_map("a", site.namespace).status == "Success"
    assert core.list_namespaced_config_map(site.namespace, label_selector=MINE).items == []


def test_pods_have_types_of_their_own(core: Any, site: Site) -> None:
    client = kubernetes.client
    container = client.V1Container(
        name="main",
        image="example.test/none:1",
        resources=client.V1ResourceRequirements(limits={"nvidia.com/gpu": "1"}),
    )
    spec = client.V1PodSpec(containers=[container], restart_policy="Never")
    pod = client.V1Pod(api_version="v1", kind="Pod", metadata=client.V1ObjectMeta(name="p"), spec=spec)
    made = core.create_namespaced_pod(site.namespace, pod)
    assert made.spec.containers[0].resources.requests == {"nvidia.com/gpu": "1"}
    assert made.status.phase == "Pending" and made.metadata.creation_timestamp.tzinfo is not None
    core.patch_namespaced_pod_status("p", site.namespace, {"status": {"phase": "Running"}})
    assert core.read_namespaced_pod_status("p", site.namespace).status.phase == "Running"
    binding = client.V1Binding(
        metadata=client.V1ObjectMeta(name="p"), target=client.V1ObjectReference(kind="Node", name="n1")
    )
    core.create_namespaced_binding(site.namespace, binding, _preload_content=False)
    assert core.read_namespaced_pod("p", site.namespace).spec.node_name == "n1"
    evicted = client.V1Eviction(metadata=client.V1ObjectMeta(name="p"))
    core.create_namespaced_pod_eviction("p", site.namespace, evicted)
    assert core.read_namespaced_pod("p", site.namespace).metadata.deletion_timestamp


def test_errors_carry_a_status(core: Any, site: Site) -> None:
    with pytest.raises(kubernetes.client.ApiException) as caught:
        core.read_namespaced_pod("nobody", site.namespace)
    assert caught.value.status == 404
    assert json.loads(caught.value.body)["message"] == 'pods "nobody" not found'


def test_a_wrong_token_is_unauthorized(site: Site) -> None:
    config = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(site.kubeconfig), client_configuration=config)
    config.api_key["authorization"] = "Bearer wrong"
    config.refresh_api_key_hook = None
    with kubernetes.client.ApiClient(config) as api, pytest.raises(kubernetes.client.ApiException) as caught:
        kubernetes.client.CoreV1Api(api).list_namespace()
    assert caught.value.status == 401


def test_pages(core: Any, site: Site) -> None:
    for number in range(5):
        core.create_namespaced_config_map(site.namespace, site.config_map(f"a{number}"))
    first = core.list_namespaced_config_map(site.namespace, limit=2, field_selector=NOT_THE_CA)
    assert len(first.items) == 2 and first.metadata._continue
    rest = core.list_namespaced_config_map(
        site.namespace, _continue=first.metadata._continue, field_selector=NOT_THE_CA
    )
    assert [o.metadata.name for o in (*first.items, *rest.items)] == [f"a{n}" for n in range(5)]


def test_a_watch_sees_typed_changes_in_order(core: Any, site: Site) -> None:
    core.create_namespaced_config_map(site.namespace, site.config_map("a"))
    watch, seen = kubernetes.watch.Watch(), []

    def write() -> None:
        core.patch_namespaced_config_map("a", site.namespace, {"data": {"x": "1"}})
        core.delete_namespaced_config_map("a", site.namespace)

    for event in watch.stream(core.list_namespaced_config_map, site.namespace, timeout_seconds=60, label_selector=MINE):
        seen.append((event["type"], event["object"].metadata.name, event["object"].data))
        if len(seen) == 1:
            threading.Thread(target=write).start()
        if event["type"] == "DELETED":
            watch.stop()
    assert seen == [("ADDED", "a", None), ("MODIFIED", "a", {"x": "1"}), ("DELETED", "a", {"x": "1"})]


def test_the_pods_behind_a_service_are_watched(api: Any, core: Any, site: Site) -> None:
    """EndpointSlices are computed; an informer lists them and watches from the list's revision."""
    client, discovery = kubernetes.client, kubernetes.client.DiscoveryV1Api(api)
    spec = client.V1ServiceSpec(cluster_ip="None", selector={"none": "has-it"}, ports=[client.V1ServicePort(port=80)])
    core.create_namespaced_service(
        site.namespace, client.V1Service(metadata=client.V1ObjectMeta(name="one"), spec=spec)
    )
    label = "kubernetes.io/service-name in (one, two)"
    listed = discovery.list_namespaced_endpoint_slice(site.namespace, label_selector=label)
    assert [one.metadata.labels["kubernetes.io/service-name"] for one in listed.items] == ["one"]
    core.create_namespaced_service(
        site.namespace, client.V1Service(metadata=client.V1ObjectMeta(name="two"), spec=spec)
    )
    core.delete_namespaced_service("one", site.namespace)
    watch, seen = kubernetes.watch.Watch(), set()
    revision = listed.metadata.resource_version
    for event in watch.stream(
        discovery.list_namespaced_endpoint_slice,
        site.namespace,
        timeout_seconds=60,
        label_selector=label,
        resource_version=revision,
    ):
        seen.add((event["type"], event["object"].metadata.labels["kubernetes.io/service-name"]))
        if len(seen) == 2:
            watch.stop()
    assert seen == {("ADDED", "two"), ("DELETED", "one")}
    assert int(watch.resource_version) > int(revision)
    core.delete_namespaced_service("two", site.namespace)


def test_a_watch_goes_on_from_a_revision(core: Any, site: Site) -> None:
    listed = core.list_namespaced_config_map(site.namespace)
    core.create_namespaced_config_map(site.namespace, site.config_map("a"))
    stream = kubernetes.watch.Watch().stream(
        core.list_namespaced_config_map, site.namespace, resource_version=listed.metadata.resource_version,
        timeout_seconds=1, allow_watch_bookmarks=True,
    )  # fmt: skip
    assert [(e["type"], e["object"].metadata.name) for e in stream if e["object"].metadata.name == "a"] == [
        ("ADDED", "a")
    ]


def test_custom_objects(api: Any, site: Site) -> None:
    jobs = kubernetes.client.CustomObjectsApi(api)
    where = ("kubeflow.org", "v1", site.namespace, "pytorchjobs")
    made = jobs.create_namespaced_custom_object(*where, site.job("j"))
    assert made["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 1
    scaled = jobs.patch_namespaced_custom_object(*where, "j", {"spec": {"runPolicy": {"suspend": True}}})
    assert scaled["spec"]["runPolicy"]["suspend"] is True
    assert [j["metadata"]["name"] for j in jobs.list_namespaced_custom_object(*where)["items"]] == ["j"]
    assert jobs.delete_namespaced_custom_object(*where, "j")["status"] == "Success"


def test_the_dynamic_client_finds_and_applies(api: Any, site: Site) -> None:
    client = dynamic.DynamicClient(api)
    jobs = client.resources.get(api_version="kubeflow.org/v1", kind="PyTorchJob")
    maps = client.resources.get(api_version="v1", kind="ConfigMap")
    assert (jobs.name, jobs.namespaced, jobs.group) == ("pytorchjobs", True, "kubeflow.org")
    jobs.create(body=site.job("j"), namespace=site.namespace)
    assert jobs.get(name="j", namespace=site.namespace).spec.pytorchReplicaSpecs.Worker.replicas == 1
    applied = maps.server_side_apply(
        body=site.config_map("a", x="1"), name="a", namespace=site.namespace, field_manager="me"
    )
    assert applied.metadata.managedFields[0].manager == "me"
    with pytest.raises(dynamic.exceptions.ConflictError):
        body = site.config_map("a", x="2")
        maps.server_side_apply(body=body, name="a", namespace=site.namespace, field_manager="you")
    event = next(iter(maps.watch(namespace=site.namespace, timeout=200, label_selector=MINE)))
    assert (event["type"], event["object"].metadata.name) == ("ADDED", "a")
    deleted = maps.delete(namespace=site.namespace, label_selector=MINE)
    assert deleted.kind in ("ConfigMapList", "Status")
    assert maps.get(namespace=site.namespace, label_selector=MINE).items == []


def test_a_manifest_is_created_from_yaml(api: Any, core: Any, site: Site, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    items = [site.config_map("one"), site.pod("two")]
    path.write_text("\n---\n".join(json.dumps(item) for item in items))
    kubernetes.utils.create_from_yaml(api, str(path), namespace=site.namespace)
    assert core.read_namespaced_pod("two", site.namespace).metadata.name == "two"


def test_rights_can_be_asked_for(api: Any, site: Site) -> None:
    client = kubernetes.client
    attributes = client.V1ResourceAttributes(namespace=site.namespace, verb="create", resource="pods")
    spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
    asked = client.V1SelfSubjectAccessReview(spec=spec)
    answer = client.AuthorizationV1Api(api).create_self_subject_access_review(asked)
    assert answer.status.allowed is True


def test_one_leader_at_a_time(api: Any, site: Site) -> None:
    leases = kubernetes.client.CoordinationV1Api(api)
    # Not on a whole second: this client writes such a time without decimals, and no server takes that in a Lease.
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.250000Z"}
    made = leases.create_namespaced_lease(site.namespace, {"metadata": {"name": "leader"}, "spec": spec})
    first = leases.read_namespaced_lease("leader", site.namespace)
    first.spec.holder_identity = "two"
    leases.replace_namespaced_lease("leader", site.namespace, first)
    made.spec.holder_identity = "three"
    with pytest.raises(kubernetes.client.ApiException) as caught:
        leases.replace_namespaced_lease("leader", site.namespace, made)
    assert caught.value.status == 409
