"""The compute part of a submit: CPUs, memory, and whole GPUs or shares of GPUs, as a pod requests them.

Whole devices become `nvidia.com/gpu` limits. A share has no limit but KAI's annotations `gpu-fraction`, `gpu-memory` (MiB)
and `gpu-fraction-num-devices`; the scheduler chooses the card.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rowlock import quantity, submit_fields
from rowlock.errors import BadRequest
from rowlock.objects import is_digits
from rowlock.workloads.body_fields import Fields

GPU = "nvidia.com/gpu"
MIN_PORTION = 0.01
"""The smallest share; shares are counted in hundredths of a card."""
MIN_MEMORY = 100
"""Run:ai's smallest GPU memory share, in MiB."""


@dataclass(frozen=True, slots=True)
class Compute:
    """What one pod requests. `devices` counts cards; `portion` or `memory_mib` is the share of each."""

    requests: tuple[tuple[str, str], ...] = ()
    limits: tuple[tuple[str, str], ...] = ()
    devices: int = 0
    portion: Decimal | None = None
    memory_mib: int | None = None
    large_shm: bool = False

    @property
    def is_fraction(self) -> bool:
        return self.portion is not None or self.memory_mib is not None

    @property
    def gpus(self) -> Decimal:
        """GPUs per pod; a share by memory counts as 0, because its fraction depends on the card."""
        if self.portion is not None:
            return self.portion * self.devices
        return Decimal(0) if self.memory_mib is not None else Decimal(self.devices)

    def resources(self) -> dict[str, dict[str, str]]:
        """The container's `resources`."""
        gpu_items = ((GPU, str(self.devices)),) if self.devices and not self.is_fraction else ()
        sections = {"requests": dict(self.requests + gpu_items), "limits": dict(self.limits + gpu_items)}
        return {name: values for name, values in sections.items() if values}

    def annotations(self) -> dict[str, str]:
        """The pod's annotations for a share of a GPU."""
        annotations: dict[str, str] = {}
        if self.portion is not None:
            annotations["gpu-fraction"] = format_number(self.portion)
        if self.memory_mib is not None:
            annotations["gpu-memory"] = str(self.memory_mib)
        if annotations and self.devices > 1:
            annotations["gpu-fraction-num-devices"] = str(self.devices)
        return annotations


def format_number(number: Decimal) -> str:
    """A number without trailing zeros or exponent: 0.50 → 0.5, 1E+1 → 10."""
    return f"{number.normalize():f}"


def parse_compute(body: Fields) -> Compute:
    """Parse a `compute` object; mistakes are added to its errors."""
    body.allow_only(*submit_fields.field_names("compute"))
    devices = body.integer("gpuDevicesRequest")
    portion, memory = _parse_portion(body), _parse_gpu_memory(body)
    _check_limits_have_requests(body)
    _check_request_type(body, portion, memory)
    if portion == 1:
        portion = None
    is_fraction = portion is not None or memory is not None
    if devices is None:
        devices = 1 if body.get("gpuPortionRequest") is not None or is_fraction else 0
    if devices == 0 and (is_fraction or body.get("gpuRequestType")):
        body.add_error("gpuDevicesRequest", "min", "must be at least 1 when a share of a GPU is asked for.")
    requests, limits = _parse_resources(body)
    return Compute(requests, limits, devices, portion, memory, body.flag("largeShmRequest"))


def _parse_portion(body: Fields) -> Decimal | None:
    portion, rule = body.get("gpuPortionRequest"), "must be greater than 0 and no more than 1, but is"
    if portion is None:
        return None
    if isinstance(portion, float) and portion != portion:
        body.add_error("gpuPortionRequest", "range", f"{rule} not a number. Ask for a share such as 0.5.")
        return None
    number = body.number("gpuPortionRequest")
    if number is None:
        return None
    if not 0 < number <= 1:
        fix = "Ask for whole GPUs with gpuDevicesRequest" if number > 1 else "Leave it out to ask for no GPU"
        body.add_error("gpuPortionRequest", "range", f"{rule} {number:g}. {fix}.")
        return None
    if number < MIN_PORTION:
        body.add_error("gpuPortionRequest", "range", f"must be no less than {MIN_PORTION}, but is {number:g}.")
        return None
    limit = body.number("gpuPortionLimit")
    if limit is not None and limit != number:
        body.add_error(
            "gpuPortionLimit", "unsupported", "bursting above the request is not supported yet. Leave it out."
        )
    return Decimal(str(portion))


def _parse_gpu_memory(body: Fields) -> int | None:
    text = body.parsable_text("gpuMemoryRequest", quantity.parse)
    if not text:
        return None
    mib = quantity.integer_value(text) // (1024 * 1024)
    if quantity.parse(text) < MIN_MEMORY * 1000 * 1000:
        body.add_error("gpuMemoryRequest", "min", f"must be no less than {MIN_MEMORY}M, but is {text}.")
        return None
    limit = body.parsable_text("gpuMemoryLimit", quantity.parse)
    if limit and quantity.parse(limit) != quantity.parse(text):
        body.add_error(
            "gpuMemoryLimit", "unsupported", "bursting above the request is not supported yet. Leave it out."
        )
    return mib


def _check_limits_have_requests(body: Fields) -> None:
    """Refuse a limit on a share without a request for one, which would have no effect."""
    for limit, request, example in (
        ("gpuPortionLimit", "gpuPortionRequest", "a share such as 0.5"),
        ("gpuMemoryLimit", "gpuMemoryRequest", "memory such as 2G"),
    ):
        if body.get(limit) is not None and body.get(request) is None:
            message = f"limits a share of a GPU, but none is asked for. Ask for {example} with {request}, or leave the limit out."
            body.add_error(limit, "required", message)


def _check_request_type(body: Fields, portion: Decimal | None, memory: int | None) -> None:
    """Check that the request type and the given values agree."""
    kind = body.choice("gpuRequestType", "portion", "memory")
    if body.get("gpuPortionRequest") is not None and body.get("gpuMemoryRequest") is not None:
        message = "cannot be used together with gpuPortionRequest. Ask for a portion or for memory, not for both."
        body.add_error("gpuMemoryRequest", "exclusive", message)
    elif kind == "portion" and body.get("gpuPortionRequest") is None:
        devices = body.get("gpuDevicesRequest")
        if not (isinstance(devices, int) and devices > 1):
            body.add_error("gpuPortionRequest", "required", "is required when gpuRequestType is portion.")
    elif kind == "memory" and body.get("gpuMemoryRequest") is None:
        body.add_error("gpuMemoryRequest", "required", "is required when gpuRequestType is memory.")
    elif kind == "portion" and memory is not None:
        body.add_error("gpuRequestType", "exclusive", "says portion, but gpuMemoryRequest is given. Say memory.")
    elif kind == "memory" and portion is not None:
        body.add_error("gpuRequestType", "exclusive", "says memory, but gpuPortionRequest is given. Say portion.")


_CPU_FIELDS = (("cpuCoreRequest", "cpuCoreLimit", "cpu"), ("cpuMemoryRequest", "cpuMemoryLimit", "memory"))
_CORE_FIELDS = ("cpuCoreRequest", "cpuCoreLimit")
"""Fields that are numbers; amounts of memory are strings with a unit."""


def _parse_resources(body: Fields) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    requests: list[tuple[str, str]] = []
    limits: list[tuple[str, str]] = []
    for request, limit, resource in _CPU_FIELDS:
        request_amount, limit_amount = _parse_amount(body, request), _parse_amount(body, limit)
        if request_amount:
            requests.append((resource, request_amount))
        if limit_amount:
            limits.append((resource, limit_amount))
        if request_amount and limit_amount and quantity.parse(request_amount) > quantity.parse(limit_amount):
            body.add_error(limit, "min", f"must be no less than {request} ({request_amount}), but is {limit_amount}.")
    for item in body.items("extendedResources"):
        item.allow_only("resource", "quantity", "exclude")
        name, amount = item.text("resource"), item.parsable_text("quantity", quantity.parse)
        if not name or not amount:
            item.add_error("resource", "required", "an extended resource needs a resource and a quantity.")
            continue
        requests.append((name, amount))
        limits.append((name, amount))
    return tuple(requests), tuple(limits)


def _parse_amount(body: Fields, name: str) -> str:
    text = _parse_cores(body, name) if name in _CORE_FIELDS else body.parsable_text(name, quantity.parse)
    if text and quantity.parse(text) < 0:
        body.add_error(name, "min", f"must be no less than 0, but is {text}.")
        return ""
    return text


def _parse_cores(body: Fields, name: str) -> str:
    """A number of cores as a quantity; "" if there is none, or if it is too large."""
    if body.number(name) is None:
        return ""
    text = str(body.get(name))
    try:
        quantity.parse(text)
    except BadRequest:
        body.add_error(name, "max", f"{text[:40]} is more CPU cores than a quantity can say. Ask for fewer.")
        return ""
    return text


def pod_gpus(pod: dict[str, Any], card_memory: int = 0) -> Decimal:
    """GPUs that a pod (or pod template) requests by its annotations or limits. A share by memory is counted as the scheduler
    does, as a fraction of a card with `card_memory` MiB, to four decimal places; as 0 if `card_memory` is 0 (unknown)."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    devices = _parse_decimal(annotations.get("gpu-fraction-num-devices", "1"))
    if "gpu-fraction" in annotations:
        return _parse_decimal(annotations["gpu-fraction"]) * devices
    if "gpu-memory" in annotations:
        mebibytes = int(_parse_decimal(annotations["gpu-memory"]))
        return Decimal(mebibytes * 10_000 // card_memory) / 10_000 * devices if card_memory else Decimal(0)
    total = Decimal(0)
    for container in (pod.get("spec") or {}).get("containers") or ():
        resources = container.get("resources") or {}
        amount = (resources.get("limits") or {}).get(GPU) or (resources.get("requests") or {}).get(GPU)
        total += quantity.parse(amount) if amount else 0
    return total


def _parse_decimal(text: str) -> Decimal:
    return Decimal(text) if is_digits(text.replace(".", "", 1)) else Decimal(0)
