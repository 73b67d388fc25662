"""What a pod asks for: its spec and annotations as a `Shape`.

CPU and memory as the kubelet counts them (the larger of the containers' sum and any init container, plus overhead),
GPUs as whole devices or KAI's fraction annotations, and where it may go. What we do not do is never ignored: it makes
the shape `unsupported`, with a sentence.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from rowlock import quantity
from rowlock.errors import BadRequest
from rowlock.objects import Object, annotations, dig, labels
from rowlock.scheduling.snapshot import Requirement, Shape, Toleration

GPU = "nvidia.com/gpu"
FRACTION, GPU_MEMORY, NUM_DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
FRACTION_CONTAINER = "gpu-fraction-container-name"
POOL = "kai.scheduler/node-pool"
IGNORED = frozenset({"ephemeral-storage"})
"""Nodes of one machine do not ration it; the kubelet does not either."""


def shape(pod: Object) -> Shape:
    """The pod's shape. Pods of one job ask for the same in the same words: each wording is parsed once."""
    key = _wording(pod)
    found = _KNOWN.get(key)
    if found is None:
        if len(_KNOWN) >= 4096:
            _KNOWN.clear()
        found = _KNOWN[key] = _parse(pod)
    return found


_KNOWN: dict[bytes, Shape] = {}


def pool_of(obj: Object) -> str:
    """The node pool that the label of a pod, a PodGroup or a node names; "" = the default one: nodes without the label."""
    word = str(labels(obj).get(POOL) or "")
    return "" if word == "default" else word


def _wording(pod: Object) -> bytes:
    """Everything that `_parse` reads, as one key."""
    spec = pod.get("spec") or {}
    containers = [
        [(c.get("resources"), c.get("restartPolicy")) for c in spec.get(kind) or ()]
        for kind in ("containers", "initContainers")
    ]
    notes = annotations(pod)
    return msgspec.json.encode(
        (
            containers,
            [spec.get(field) for field in _READ],
            [notes.get(note) for note in (FRACTION, GPU_MEMORY, NUM_DEVICES)],
            labels(pod).get(POOL),
        )
    )


_READ = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "resourceClaims", "overhead")


def _parse(pod: Object) -> Shape:
    """Values that admission should have refused make it unsupported rather than free."""
    spec = pod.get("spec") or {}
    try:
        totals = _totals(spec)
        extras = tuple(sorted((k, quantity.whole(str(v))) for k, v in totals.items() if k not in _PLAIN | IGNORED))
        cpu, memory = quantity.millis(str(totals.get("cpu", 0))), quantity.whole(str(totals.get("memory", 0)))
        gpus = quantity.whole(str(totals.get(GPU, 0)))
    except BadRequest as error:
        return Shape(unsupported=f"a resource request cannot be read: {error.message}")
    portion, mebibytes, devices, wrong = _fraction(annotations(pod), gpus)
    return Shape(
        cpu=cpu,
        memory=memory,
        gpus=gpus or (devices if portion == 100 else 0),
        portion=0 if portion == 100 else portion,
        gpu_memory=mebibytes,
        devices=0 if portion == 100 else devices,
        extras=extras,
        selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        affinity=_affinity(spec),
        tolerations=tuple(_toleration(t) for t in spec.get("tolerations") or ()),
        pool=pool_of(pod),
        unsupported=wrong or _unsupported(spec),
    )


_PLAIN = frozenset({"cpu", "memory", GPU})


def _totals(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    running: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        _add(running, _requests(container))
    peak: dict[str, Decimal] = {}
    sidecars: dict[str, Decimal] = {}
    for container in spec.get("initContainers") or ():
        asked = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, asked)
            asked = {}
        for name in asked.keys() | sidecars.keys():
            value = asked.get(name, Decimal(0)) + sidecars.get(name, Decimal(0))
            peak[name] = max(peak.get(name, Decimal(0)), value)
    _add(running, sidecars)
    for name, value in peak.items():
        running[name] = max(running.get(name, Decimal(0)), value)
    _add(running, {k: quantity.parse(v) for k, v in (spec.get("overhead") or {}).items()})
    return running


def _requests(container: Mapping[str, Any]) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity.parse(value) for name, value in asked.items()}


def _add(into: dict[str, Decimal], more: Mapping[str, Decimal]) -> None:
    for name, value in more.items():
        into[name] = into.get(name, Decimal(0)) + value


def _fraction(notes: Mapping[str, str], gpus: int) -> tuple[int, int, int, str]:
    """(hundredths, MiB, devices, what is wrong) from KAI's annotations."""
    portion, mebibytes = notes.get(FRACTION), notes.get(GPU_MEMORY)
    if portion is None and mebibytes is None:
        alone = f"annotation {NUM_DEVICES} needs {FRACTION} or {GPU_MEMORY}: of how much of each?"
        return 0, 0, 0, alone if NUM_DEVICES in notes else ""
    if portion is not None and mebibytes is not None:
        return 0, 0, 0, f"annotations {FRACTION} and {GPU_MEMORY} exclude each other; keep one"
    if gpus:
        return 0, 0, 0, f"a fraction of a GPU and {gpus} whole GPUs exclude each other; keep one"
    try:
        devices = int(notes.get(NUM_DEVICES, "1"))
        hundredths = int((Decimal(portion) * 100).quantize(Decimal(1), "ROUND_HALF_UP")) if portion else 0
        memory = int(mebibytes) if mebibytes else 0
    except (ValueError, ArithmeticError):
        return 0, 0, 0, f"annotation {FRACTION}={portion!r} or {GPU_MEMORY}={mebibytes!r} is not a number"
    if devices < 1 or (portion and not 1 <= hundredths <= 100) or (mebibytes and memory < 1):
        return 0, 0, 0, f"annotation {FRACTION} must lie between 0.01 and 1, {GPU_MEMORY} and {NUM_DEVICES} above 0"
    return hundredths, memory, devices, ""


def _affinity(spec: Mapping[str, Any]) -> tuple[tuple[Requirement, ...], ...]:
    terms = dig(spec, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms") or ()
    return tuple(
        (
            *_requirements(t.get("matchExpressions") or (), on_field=False),
            *_requirements(t.get("matchFields") or (), on_field=True),
        )
        for t in terms
    )


def _requirements(items: Iterable[Mapping[str, Any]], *, on_field: bool) -> tuple[Requirement, ...]:
    return tuple(Requirement(i["key"], i["operator"], tuple(i.get("values") or ()), on_field) for i in items)


def _toleration(t: Mapping[str, Any]) -> Toleration:
    return Toleration(t.get("key") or "", t.get("operator") or "Equal", t.get("value") or "", t.get("effect") or "")


def _unsupported(spec: Mapping[str, Any]) -> str:
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
