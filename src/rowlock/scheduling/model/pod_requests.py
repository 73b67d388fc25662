"""What a pod requests: its spec and annotations as a `Shape`.

CPU and memory as the kubelet counts them (the larger of the containers' sum and any init container, plus overhead),
GPUs as whole devices or KAI's fraction annotations, and where it may be placed. Unsupported fields are never ignored: they make the shape
`unsupported`, with a message.

On GPUs that NVIDIA's device plugin advertises several times each (time-slicing or MPS, by the labels of GPU feature discovery) a pod gets
one replica of one GPU, whatever it requests: an equal part of the GPU's time and, with MPS, of its memory. The kubelet chooses the GPU.
So on such a node no pod has a whole GPU, and a share is as large as a replica.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from rowlock import quantity
from rowlock.errors import BadRequest
from rowlock.objects import Object, annotations, dig, is_digits, labels
from rowlock.scheduling.model.host_ports import requested_ports
from rowlock.scheduling.model.resources import WHOLE_GPU
from rowlock.scheduling.model.snapshot import Requirement, Shape, Toleration

GPU_RESOURCE = "nvidia.com/gpu"
FRACTION_ANNOTATION, GPU_MEMORY_ANNOTATION, NUM_DEVICES_ANNOTATION = (
    "gpu-fraction",
    "gpu-memory",
    "gpu-fraction-num-devices",
)
FRACTION_CONTAINER_ANNOTATION = "gpu-fraction-container-name"
NODE_POOL_LABEL = "kai.scheduler/node-pool"
IGNORED_RESOURCES = frozenset({"ephemeral-storage"})
"""Neither the nodes of one machine nor the kubelet limit it."""


def pod_shape(pod: Object) -> Shape:
    """The pod's shape, cached: the pods of a job have equal requests, which are parsed once."""
    key = _shape_cache_key(pod)
    cached = _SHAPE_CACHE.get(key)
    if cached is None:
        if len(_SHAPE_CACHE) >= 4096:
            _SHAPE_CACHE.clear()
        cached = _SHAPE_CACHE[key] = _parse_shape(pod)
    return cached


_SHAPE_CACHE: dict[bytes, Shape] = {}


def node_pool(obj: Object) -> str:
    """The node pool by the label of a pod, PodGroup or node; "" = the default pool, without the label."""
    word = str(labels(obj).get(NODE_POOL_LABEL) or "")
    return "" if word == "default" else word


def _shape_cache_key(pod: Object) -> bytes:
    """A key of everything that `_parse_shape` reads."""
    spec = pod.get("spec") or {}
    containers = [
        [
            (c.get("resources"), c.get("restartPolicy"), [p for p in c.get("ports") or () if p.get("hostPort")])
            for c in spec.get(kind) or ()
        ]
        for kind in ("containers", "initContainers")
    ]
    pod_annotations = annotations(pod)
    return msgspec.json.encode(
        (
            containers,
            [spec.get(field) for field in _SHAPE_SPEC_FIELDS],
            [
                pod_annotations.get(note)
                for note in (FRACTION_ANNOTATION, GPU_MEMORY_ANNOTATION, NUM_DEVICES_ANNOTATION, SHARE_ANNOTATION)
            ],
            labels(pod).get(NODE_POOL_LABEL),
        )
    )


_SHAPE_SPEC_FIELDS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "resourceClaims",
    "overhead",
)


def _parse_shape(pod: Object) -> Shape:
    """Parse the shape. Values that admission should have refused make it unsupported, so that they cannot count as 0."""
    spec = pod.get("spec") or {}
    try:
        totals = _total_requests(spec)
        extras = tuple(
            sorted(
                (k, quantity.integer_value(str(v)))
                for k, v in totals.items()
                if k not in _BASIC_RESOURCES | IGNORED_RESOURCES
            )
        )
        extras += tuple(sorted(requested_ports(spec).items()))
        cpu, memory = quantity.millis(str(totals.get("cpu", 0))), quantity.integer_value(str(totals.get("memory", 0)))
        gpus = quantity.integer_value(str(totals.get(GPU_RESOURCE, 0)))
    except BadRequest as error:
        return Shape(unsupported=f"a resource request cannot be read: {error.message}")
    notes = annotations(pod)
    if notes.get(SHARE_ANNOTATION) == BY_DEVICE_PLUGIN and FRACTION_ANNOTATION in notes and gpus == 1:
        gpus = 0  # the device that it asks for is its share
    portion, mebibytes, devices, fraction_error = _parse_fraction(notes, gpus)
    return Shape(
        cpu=cpu,
        memory=memory,
        gpus=gpus or (devices if portion == 100 else 0),
        portion=0 if portion == 100 else portion,
        gpu_memory=mebibytes,
        devices=0 if portion == 100 else devices,
        extras=extras,
        selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        affinity=_parse_affinity(spec),
        tolerations=tuple(_parse_toleration(t) for t in spec.get("tolerations") or ()),
        pool=node_pool(pod),
        unsupported=fraction_error or _unsupported_message(spec),
    )


_BASIC_RESOURCES = frozenset({"cpu", "memory", GPU_RESOURCE})


def _total_requests(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        _add_requests(total, _container_requests(container))
    peak: dict[str, Decimal] = {}
    sidecars: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        requests = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            _add_requests(sidecars, requests)
            requests = {}
        for name in requests.keys() | sidecars.keys():
            value = requests.get(name, Decimal(0)) + sidecars.get(name, Decimal(0))
            peak[name] = max(peak.get(name, Decimal(0)), value)
    _add_requests(total, sidecars)
    for name, value in peak.items():
        total[name] = max(total.get(name, Decimal(0)), value)
    _add_requests(total, {k: quantity.parse(v) for k, v in (spec.get("overhead") or {}).items()})
    return total


def _container_requests(container: Mapping[str, Any]) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    requests = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity.parse(value) for name, value in requests.items()}


def _add_requests(total: dict[str, Decimal], more: Mapping[str, Decimal]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, Decimal(0)) + value


def hundredths(portion: str) -> int:
    """A share of a GPU in hundredths, rounded. Raises ArithmeticError if it is not a number."""
    return int((Decimal(portion) * 100).quantize(Decimal(1), "ROUND_HALF_UP"))


def _parse_fraction(pod_annotations: Mapping[str, str], gpus: int) -> tuple[int, int, int, str]:
    """(hundredths, MiB, devices, error message or "") from KAI's annotations."""
    portion, mebibytes = pod_annotations.get(FRACTION_ANNOTATION), pod_annotations.get(GPU_MEMORY_ANNOTATION)
    if portion is None and mebibytes is None:
        error_alone = f"annotation {NUM_DEVICES_ANNOTATION} needs {FRACTION_ANNOTATION} or {GPU_MEMORY_ANNOTATION}: of how much of each?"
        return 0, 0, 0, error_alone if NUM_DEVICES_ANNOTATION in pod_annotations else ""
    if portion is not None and mebibytes is not None:
        return 0, 0, 0, f"annotations {FRACTION_ANNOTATION} and {GPU_MEMORY_ANNOTATION} exclude each other; keep one"
    if gpus:
        return 0, 0, 0, f"a fraction of a GPU and {gpus} whole GPUs exclude each other; keep one"
    try:
        devices = int(pod_annotations.get(NUM_DEVICES_ANNOTATION, "1"))
        parts = hundredths(portion) if portion else 0
        memory = int(mebibytes) if mebibytes else 0
    except (ValueError, ArithmeticError):
        return (
            0,
            0,
            0,
            f"annotation {FRACTION_ANNOTATION}={portion!r} or {GPU_MEMORY_ANNOTATION}={mebibytes!r} is not a number",
        )
    if devices < 1 or (portion and not 1 <= parts <= 100) or (mebibytes and memory < 1):
        return (
            0,
            0,
            0,
            f"annotation {FRACTION_ANNOTATION} must lie between 0.01 and 1, {GPU_MEMORY_ANNOTATION} and {NUM_DEVICES_ANNOTATION} above 0",
        )
    return parts, memory, devices, ""


def _parse_affinity(spec: Mapping[str, Any]) -> tuple[tuple[Requirement, ...], ...]:
    terms = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    return parse_selector_terms(dig(spec, terms) or ())


def parse_selector_terms(terms: Iterable[Mapping[str, Any]]) -> tuple[tuple[Requirement, ...], ...]:
    """Parse a list of v1.NodeSelectorTerm: alternatives, each of requirements that must all hold."""
    return tuple(
        (
            *_parse_requirements(t.get("matchExpressions") or (), on_field=False),
            *_parse_requirements(t.get("matchFields") or (), on_field=True),
        )
        for t in terms
    )


def _parse_requirements(items: Iterable[Mapping[str, Any]], *, on_field: bool) -> tuple[Requirement, ...]:
    return tuple(Requirement(i["key"], i["operator"], tuple(i.get("values") or ()), on_field) for i in items)


def _parse_toleration(t: Mapping[str, Any]) -> Toleration:
    return Toleration(t.get("key") or "", t.get("operator") or "Equal", t.get("value") or "", t.get("effect") or "")


def _unsupported_message(spec: Mapping[str, Any]) -> str:
    for name in ("podAffinity", "podAntiAffinity"):
        if dig(spec, f"affinity.{name}.requiredDuringSchedulingIgnoredDuringExecution"):
            return (
                f"spec.affinity.{name} with required terms is not supported here; "
                "use preferred terms, nodeSelector or nodeAffinity"
            )
    for spread in spec.get("topologySpreadConstraints") or ():
        if spread.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule":
            return "spec.topologySpreadConstraints with DoNotSchedule is not supported here; use ScheduleAnyway"
    if spec.get("resourceClaims"):
        return "spec.resourceClaims is not supported here; ask for nvidia.com/gpu or a GPU fraction"
    return ""


REPLICAS_LABEL = "nvidia.com/gpu.replicas"
STRATEGY_LABEL = "nvidia.com/gpu.sharing-strategy"
SHARED_RESOURCE = "nvidia.com/gpu.shared"
"""The resource name of replicas if the plugin is configured to rename them (`renameByDefault`)."""
SHARE_ANNOTATION = "rowlock.dev/gpu-share"
BY_DEVICE_PLUGIN = "device-plugin"
"""Value of `SHARE_ANNOTATION` on a pod whose share is one replica: it requests a device, and keeps KAI's annotation for the share."""


def replicas_of(node_labels: Mapping[str, str]) -> int:
    """Number of replicas per GPU of a node with these labels; 1 = GPUs are not shared, or the label is absent."""
    text = node_labels.get(REPLICAS_LABEL, "")
    return max(1, int(text)) if is_digits(text) else 1


def replica_portion(replicas: int) -> int:
    """The size of a replica in hundredths of a GPU; 0 = less than the smallest share."""
    return WHOLE_GPU // replicas


def most_replicas(portion: int) -> int:
    """The largest number of replicas per GPU with which a replica is at least `portion` hundredths of it."""
    return WHOLE_GPU // portion
