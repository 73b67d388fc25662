"""Shapes of objects and requests that were found to be dear once, and their brothers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.hostile.limits.newer import NEWER
from tests.hostile.limits.shots import _ROLE_REF, JSON_PATCH, POD_SPEC, SPACE, Shot, Value, collection, small

from rowlock import kinds


def _config_map(name: str) -> dict[str, Value]:
    return small(kinds.CONFIG_MAP, name)


def owners(dice: Random, name: str) -> Iterator[Shot]:
    """One object of thousands of owners that do not exist."""
    count = dice.choice((500, 2_000, 9_000))
    made = _config_map(name)
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"n{n}", "uid": f"u{n}"} for n in range(count)
    ]
    yield Shot(f"{count} owners", "POST", collection(kinds.CONFIG_MAP), made)
    yield Shot("list after owners", "GET", collection(kinds.CONFIG_MAP))


def list_operations(dice: Random, name: str) -> Iterator[Shot]:
    """A JSON patch of as many operations as are taken, on a long list or a large map."""
    count, at = 10_000, f"{collection(kinds.CONFIG_MAP)}/{name}"
    made = _config_map(name)
    made["metadata"]["finalizers"] = [f"a/f{n}" for n in range(20_000)]
    made["data"] = {f"k{n}": "" for n in range(10_000)}
    yield Shot("create a long list", "POST", collection(kinds.CONFIG_MAP), made)
    for dry in ("?dryRun=All", ""):
        way = dice.choice(("replace", "insert", "append", "key", "copy", "move", "test"))
        operation: Callable[[int], dict[str, Value]] = {
            "replace": lambda n: {"op": "replace", "path": f"/metadata/finalizers/{n}", "value": f"b/g{n}"},
            "insert": lambda n: {"op": "add", "path": "/metadata/finalizers/0", "value": f"b/g{n}"},
            "append": lambda n: {"op": "add", "path": "/metadata/finalizers/-", "value": f"b/g{n}"},
            "key": lambda n: {"op": "add", "path": f"/data/k{n}", "value": ""},
            "copy": lambda n: {"op": "copy", "from": f"/data/k{n}", "path": f"/data/c{n}"},
            "move": lambda n: {"op": "move", "from": "/metadata/finalizers/0", "path": "/metadata/finalizers/-"},
            "test": lambda n: {"op": "test", "path": f"/metadata/finalizers/{n}", "value": f"a/f{n}"},
        }[way]
        yield Shot(
            f"json patch of {count} operations ({way}){dry}",
            "PATCH",
            at + dry,
            [operation(n) for n in range(count)],
            JSON_PATCH,
        )


def affinity(dice: Random, name: str) -> Iterator[Shot]:
    """Thousands of terms of dozens of pods."""
    terms = [{"matchExpressions": [{"key": f"k{n}", "operator": "In", "values": ["x"]}]} for n in range(4_000)]
    node = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    preferred = [{"weight": 1, "preference": term} for term in terms]
    pods = [
        {"weight": 1, "podAffinityTerm": {"topologyKey": f"t{n}", "labelSelector": {"matchLabels": {"a": "x"}}}}
        for n in range(4_000)
    ]
    chosen = dice.choice(
        (
            node,
            {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
            {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": pods}},
        )
    )
    for n in range(12):
        made = small(kinds.POD, f"{name}-{n}")
        yield Shot(
            f"4,000 terms of {next(iter(chosen))}",
            "POST",
            collection(kinds.POD),
            {**made, "spec": {**POD_SPEC, "affinity": chosen}},
        )


def role(dice: Random, name: str) -> Iterator[Shot]:
    """A role of many rules that somebody has, and what that user asks and grants."""
    way = dice.choice(("groups", "names", "verbs", "product"))
    rules = [
        {
            "apiGroups": [f"g{n}" if way == "groups" else ""],
            "resources": ["pods"],
            "verbs": [f"v{n}" if way == "verbs" else "get"],
        }
        | ({"resourceNames": [f"n{n}"]} if way == "names" else {})
        for n in range(12_000)
    ]
    if way == "product":
        many = [f"x{n}" for n in range(3_000)]
        rules = [{"apiGroups": many, "resources": many, "verbs": many}]
    made = {**small(kinds.ROLE, name), "rules": rules}
    yield Shot(f"a role of many rules ({way})", "POST", collection(kinds.ROLE), made)
    binding = small(kinds.ROLE_BINDING, name)
    binding["roleRef"] = {"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    yield Shot("a binding to many rules", "POST", collection(kinds.ROLE_BINDING), binding)
    editor = {**small(kinds.ROLE_BINDING, f"{name}-admin"), "roleRef": {**_ROLE_REF, "name": "admin"}}
    yield Shot("a binding to admin", "POST", collection(kinds.ROLE_BINDING), editor)
    for n in range(3):
        yield Shot("what somebody may not", "GET", f"{collection(kinds.LEASE)}/x{n}{dice.random()}", user="somebody")
    yield Shot(
        "all rules of somebody",
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        {"spec": {"namespace": SPACE}},
        user="somebody",
    )
    again = {**small(kinds.ROLE, f"{name}-again"), "rules": rules}
    yield Shot(f"somebody grants as many ({way})", "POST", collection(kinds.ROLE), again, user="somebody")
    more = {**again, "rules": [{**rule, "verbs": ["other"]} for rule in rules[:10_000]]}
    yield Shot(f"somebody grants others ({way})", "POST", collection(kinds.ROLE), more, user="somebody")


def downward_files(dice: Random, name: str) -> Iterator[Shot]:
    """One large annotation that thousands of files show."""
    made = small(kinds.POD, name)
    made["metadata"]["annotations"] = {"large": "x" * 250_000}
    items = [{"path": f"f{n}", "fieldRef": {"fieldPath": "metadata.annotations['large']"}} for n in range(2_000)]
    made["spec"]["volumes"] = [{"name": "v", "downwardAPI": {"items": items}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    yield Shot("2,000 files of one annotation", "POST", collection(kinds.POD), made)


def variables(dice: Random, name: str) -> Iterator[Shot]:
    """Variables and arguments that grow."""
    made = small(kinds.POD, name)
    doubles = [{"name": "V", "value": "ab"}, *({"name": "V", "value": "$(V)$(V)"} for _ in range(60))]
    many = [{"name": f"V{n}", "value": "$(V0)$$"} for n in range(20_000)]
    made["spec"]["containers"][0]["env"] = dice.choice((doubles, many))
    yield Shot("variables that grow", "POST", collection(kinds.POD), made)


def volumes(dice: Random, name: str) -> Iterator[Shot]:
    """A config map near its limit that thousands of volumes show, or thousands of mounts of one."""
    large = _config_map(name)
    large["data"] = {"k": "x" * 1_000_000}
    yield Shot("a config map of a megabyte", "POST", collection(kinds.CONFIG_MAP), large)
    made, count = small(kinds.POD, name), dice.choice((50, 2_000))
    made["spec"]["volumes"] = [{"name": f"v{n}", "configMap": {"name": name}} for n in range(count)]
    mounts = [{"name": f"v{n}", "mountPath": f"/m{n}"} for n in range(count)]
    if dice.random() < 0.5:
        made["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
        mounts = [{"name": "v", "mountPath": f"/m{n}", "subPath": f"s{n}"} for n in range(10_000)]
    made["spec"]["containers"][0]["volumeMounts"] = mounts
    yield Shot(f"{len(mounts)} volumes or mounts", "POST", collection(kinds.POD), made)


def containers(dice: Random, name: str) -> Iterator[Shot]:
    """Thousands of containers."""
    made, count = small(kinds.POD, name), dice.choice((100, 1_000))
    made["spec"][dice.choice(("containers", "initContainers"))] = [
        {"name": f"c{n}", "image": "host", "command": ["true"]} for n in range(count)
    ]
    yield Shot(f"{count} containers", "POST", collection(kinds.POD), made)


def selectors(dice: Random, name: str) -> Iterator[Shot]:
    """Selectors as long as a request's head may be."""
    terms = ",".join(f"k{n}!=v" for n in range(5_000))
    yield Shot("5,000 terms of a selector", "GET", f"{collection(kinds.POD)}?labelSelector={terms}")
    values = ",".join(f"v{n}" for n in range(7_000))
    yield Shot("7,000 values of a selector", "GET", f"/api/v1/pods?labelSelector=a+in+({values})")


def submits(dice: Random, name: str) -> Iterator[Shot]:
    """Submits of the REST API with long lists and texts."""
    spec: dict[str, Value] = {"image": "host", "command": "true"}
    way = dice.choice(("variables", "arguments", "command", "labels", "what if"))
    if way == "variables":
        spec["environmentVariables"] = [{"name": f"V{n}", "value": "x" * 100} for n in range(4_900)]
    elif way == "arguments":
        spec["args"] = dice.choice(("a ", "'a' ", "\\ ", "$(A) ")) * 500_000
    elif way == "command":
        spec["command"] = dice.choice(("a ", "'a' ", "\\ ")) * 500_000
    else:
        spec["labels"] = [{"name": f"l{n}", "value": "x"} for n in range(4_900)]
    body = {"name": name, "projectId": "default", "spec": spec}
    yield Shot(f"a submit near the limit of {way}", "POST", "/api/v1/workloads/trainings", body)


def own_annotations(dice: Random, name: str) -> Iterator[Shot]:
    """Annotations that we read: each near its limit, on a pod and on a job."""
    kind = dice.choice((kinds.POD, kinds.PYTORCHJOB))
    key = dice.choice((
        "gpu-fraction", "rowlock.dev/devices", "rowlock.dev/directory", "rowlock.dev/shell-environment", "rowlock.dev/limits", "rowlock.dev/max-runtime",
        "rowlock.dev/request", "rowlock.dev/source", "rowlock.dev/workload-id", "kai.scheduler/queue", "pod-group-name",
    ))  # fmt: skip
    made = small(kind, name)
    made["metadata"]["annotations"] = {
        key: dice.choice(("[" * 250_000, "9" * 250_000, '{"a":' * 40_000, "a," * 120_000, "a b " * 60_000))
    }
    yield Shot(f"{kind.name} with {key}", "POST", collection(kind), made)
    yield Shot(f"workloads after {key}", "GET", "/api/v1/workloads")


def services(dice: Random, name: str) -> Iterator[Shot]:
    """A service that selects many pods, with as many ports as fit."""
    made = small(kinds.SERVICE, name)
    made["spec"]["ports"] = [{"name": f"p{n}", "port": n + 1} for n in range(10_000)]
    yield Shot("a service of 10,000 ports", "POST", collection(kinds.SERVICE), made)
    yield Shot("its slices", "GET", f"/apis/discovery.k8s.io/v1/namespaces/{SPACE}/endpointslices")


def large_templates(dice: Random, name: str) -> Iterator[Shot]:
    """A job that runs: its controller makes pods, Services and a status of a template near the limit."""
    container: dict[str, Value] = {"name": "main", "image": "host", "command": ["true"]}
    way = dice.choice(("ports", "variables", "annotations", "volumes"))
    if way == "ports":
        container["ports"] = [{"name": f"p{n}", "containerPort": 1 + n} for n in range(14_000)]
    elif way == "variables":
        container["env"] = [{"name": f"V{n}", "value": "x" * 20} for n in range(14_000)]
    template: dict[str, Value] = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    if way == "annotations":
        template["metadata"]["annotations"] = {f"a{n}": "x" * 10 for n in range(9_000)}
    elif way == "volumes":
        template["spec"]["volumes"] = [{"name": f"v{n}", "emptyDir": {}} for n in range(15_000)]
    replicas, kind = (
        dice.choice((2, 8, 40, 400)),
        dice.choice((kinds.TFJOB, kinds.PYTORCHJOB, kinds.BATCH_JOB, kinds.JOB_SET)),
    )
    made: dict[str, Value] = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": name, "namespace": SPACE},
    }
    of_job = {"parallelism": replicas, "completions": replicas, "template": template}
    if kind is kinds.BATCH_JOB:
        made["spec"] = of_job
    elif kind is kinds.JOB_SET:
        made["spec"] = {"replicatedJobs": [{"name": "r", "replicas": 1, "template": {"spec": of_job}}]}
    else:
        container["name"] = "tensorflow" if kind is kinds.TFJOB else "pytorch"
        field = "tfReplicaSpecs" if kind is kinds.TFJOB else "pytorchReplicaSpecs"
        made["spec"] = {field: {"Worker": {"replicas": replicas, "template": template}}}
    yield Shot(f"a {kind.name} of {replicas} pods with many {way}", "POST", collection(kind), made)
    for path in ("/api/v1/workloads", "/api/v1/workloads/pods", "/api/v1/runs", f"/api/v1/namespaces/{SPACE}/pods"):
        yield Shot(f"{path} after many {way}", "GET", path)
    yield Shot(f"a label of a {kind.name} with many {way}", "PATCH", f"{collection(kind)}/{name}", {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")  # fmt: skip
    yield Shot(f"delete a {kind.name} with many {way}", "DELETE", f"{collection(kind)}/{name}", {"propagationPolicy": "Background"})  # fmt: skip


KNOWN: tuple[Callable[[Random, str], Iterator[Shot]], ...] = (
    owners, list_operations, affinity, role, downward_files, variables, volumes, containers, selectors, submits, own_annotations, services,
    large_templates, *NEWER,
)  # fmt: skip
"""Shapes that were found to be dear, and their brothers."""
