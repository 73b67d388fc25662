"""Admission of what the scheduler reads. Refused is what no cycle could schedule: invalid shares of a GPU, queues that are their own
ancestors, sub-groups without a parent. Admitted with a warning, as in a real cluster, is a queue that does not exist (yet).

It refuses what KAI's webhooks refuse, in their words, and adds the field and the remedy. Pure: `find_queue` looks a queue up by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any

from rowlock import quantity
from rowlock.errors import BadRequest, Cause
from rowlock.objects import Object, dig, name
from rowlock.scheduling.model.from_objects import DURATION_ANNOTATIONS
from rowlock.scheduling.model.pod_requests import (
    FRACTION_ANNOTATION,
    FRACTION_CONTAINER_ANNOTATION,
    GPU_MEMORY_ANNOTATION,
    GPU_RESOURCE,
    NUM_DEVICES_ANNOTATION,
)

FindQueue = Callable[[str], Object | None]
WEBHOOK = "admission.kai-scheduler.svc"
_SHARE_ANNOTATIONS = (FRACTION_ANNOTATION, GPU_MEMORY_ANNOTATION, NUM_DEVICES_ANNOTATION)
_A_DURATION = 'a duration such as "90s", "10m" or "1h30m"'
_WHOLE_GPU_FIELD = f"resources.limits[{GPU_RESOURCE}]"
_MAX_DEVICES = 1024
"""No machine has more devices."""
_MOST_NAMED = 10
"""Names of sub-groups in a message."""


# ---------------------------------------------------------------- shares of a GPU


def share_refusal(annotations: Mapping[str, str], spec: Mapping[str, Any], path: str = "metadata.annotations") -> str:
    """Why the annotations of a pod (or template) request an invalid share of a GPU; "" if they are valid or request none."""
    shares = {note: str(annotations[note]) for note in _SHARE_ANNOTATIONS if note in annotations}
    if not shares:
        return ""
    return next(_share_rules(shares, annotations, spec, path), "")


def _share_rules(
    shares: Mapping[str, str], annotations: Mapping[str, str], spec: Mapping[str, Any], path: str
) -> Iterator[str]:
    def quote_annotation(note: str) -> str:
        return f"{path}[{note}] is {json.dumps(shares[note])}"

    fraction, memory, devices = (shares.get(note) for note in _SHARE_ANNOTATIONS)
    if fraction is not None and memory is not None:
        yield f"cannot request both GPU and GPU memory: {path} has {FRACTION_ANNOTATION} and {GPU_MEMORY_ANNOTATION}; keep one of them"
    if fraction is None and memory is None:
        text = "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"
        yield f"{text}: {quote_annotation(NUM_DEVICES_ANNOTATION)}; add {FRACTION_ANNOTATION} or {GPU_MEMORY_ANNOTATION}, or ask for whole GPUs with {_WHOLE_GPU_FIELD}"
    elif _requests_whole_gpus(spec):
        text = "cannot have both GPU fraction request and whole GPU resource request/limit"
        yield f"{text}: {quote_annotation(FRACTION_ANNOTATION if fraction is not None else GPU_MEMORY_ANNOTATION)} beside {_WHOLE_GPU_FIELD}; keep one of them"
    if fraction is not None and (portion_error := _portion_error(fraction)):
        yield f"gpu-fraction annotation value must be a positive number smaller than 1.0: {quote_annotation(FRACTION_ANNOTATION)}; {portion_error}"
    if memory is not None and not _parse_count(memory):
        text = "gpu-memory annotation value must be a positive integer greater than 0"
        yield f'{text}: {quote_annotation(GPU_MEMORY_ANNOTATION)}; write MiB of each card, for example "5000"'
    if devices is not None and not 0 < _parse_count(devices) <= _MAX_DEVICES:
        text = "fraction count annotation value must be a positive integer greater than 0"
        yield f"{text}: {quote_annotation(NUM_DEVICES_ANNOTATION)}; say on how many cards of one node, or leave it out for one"
    yield from _check_fraction_container(annotations, spec, path)


def share_warning(annotations: Mapping[str, str], path: str = "metadata.annotations") -> str:
    """The warning for a share that is rounded to hundredths; "" if it is exact."""
    text = annotations.get(FRACTION_ANNOTATION)
    counted = (Decimal(text) * 100).quantize(Decimal(1), "ROUND_HALF_UP") / 100 if text else Decimal(0)
    if not text or counted == Decimal(text):
        return ""
    return f"{path}[{FRACTION_ANNOTATION}] {json.dumps(text)} counts as {counted:g}: shares are counted in hundredths of a card"


def _check_fraction_container(annotations: Mapping[str, str], spec: Mapping[str, Any], path: str) -> Iterator[str]:
    container_name = annotations.get(FRACTION_CONTAINER_ANNOTATION)
    names = [c.get("name") for kind in ("containers", "initContainers") for c in spec.get(kind) or ()]
    if container_name is not None and container_name not in names:
        text = (
            f"failed to get fraction container ref: container with name {container_name} not found for fraction request"
        )
        yield f"{text}: {path}[{FRACTION_CONTAINER_ANNOTATION}] must name one of {', '.join(map(str, names))}"


def _portion_error(text: str) -> str:
    """What to write instead of an invalid portion; "" if it is valid."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if number.is_finite() and number >= 1:
        return f"ask for whole GPUs with {_WHOLE_GPU_FIELD}, or for a share below 1"
    if number.is_finite() and 0 < number < Decimal("0.005"):
        return "the smallest share is 0.01"
    return "" if number.is_finite() and number > 0 else 'write a share such as "0.5", or leave it out to ask for no GPU'


def _parse_count(text: str) -> int:
    """Parse a positive whole number; 0 if it is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _requests_whole_gpus(spec: Mapping[str, Any]) -> bool:
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        for part in ("limits", "requests"):
            try:
                if quantity.parse((resources.get(part) or {}).get(GPU_RESOURCE, 0)) > 0:
                    return True
            except BadRequest:
                continue  # the API server's validation reports it
    return False


def denial_message(reason: str) -> str:
    """The API server's message for a refusal (403 Forbidden)."""
    return f'admission webhook "{WEBHOOK}" denied the request: {reason}'


# ---------------------------------------------------------------- queues and groups


def queue_causes(queue: Object, find_queue: FindQueue) -> Iterator[Cause]:
    """Why a Queue is invalid: a cycle of parents, invalid amounts and durations."""
    cycle = _parent_cycle(queue, find_queue)
    parent = str(dig(queue, "spec.parentQueue") or "")
    if cycle:
        text = (
            f"queues would form a cycle ({' → '.join(cycle)}); "
            f"name a parent that is not below {name(queue)}, or leave parentQueue out"
        )
        yield _invalid("spec.parentQueue", parent, text)
    for resource in ("cpu", "memory", "gpu"):
        for field, minimum in (("quota", -1), ("limit", -1), ("overQuotaWeight", 0)):
            value = dig(queue, f"spec.resources.{resource}.{field}")
            if value is not None and value < 0 and value != minimum:
                bound = ", or -1 for no bound" if minimum else ""
                yield _invalid(f"spec.resources.{resource}.{field}", value, f"must be no less than 0{bound}")
    for field in ("preemptMinRuntime", "reclaimMinRuntime"):
        text = dig(queue, f"spec.{field}")
        if text is not None and not quantity.DURATION_PATTERN.fullmatch(str(text)):
            yield _invalid(f"spec.{field}", text, f"must be {_A_DURATION}")


def _invalid(field: str, value: Any, reason: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {reason}", field)


def _parent_cycle(queue: Object, find_queue: FindQueue) -> list[str]:
    """The names from the queue up to itself; [] if it is not in a cycle of parents."""
    path, queue_name = [name(queue)], str(dig(queue, "spec.parentQueue") or "")
    while queue_name and queue_name not in path:
        path.append(queue_name)
        queue_name = str(dig(find_queue(queue_name) or {}, "spec.parentQueue") or "")
    return [*path, queue_name] if queue_name == path[0] else []


def group_causes(group: Object) -> Iterator[Cause]:
    """Why a PodGroup is invalid: its sub-groups must form a tree and have unique names."""
    groups = list(dig(group, "spec.subGroups") or ())
    parents = {str(g.get("name") or ""): str(g.get("parent") or "") for g in groups}
    names, cyclic = set[str](), _cyclic(parents)
    for index, g in enumerate(groups):
        path, sub_group, parent = f"spec.subGroups[{index}]", str(g.get("name") or ""), str(g.get("parent") or "")
        if not sub_group:
            yield Cause("FieldValueRequired", "Required value: a sub-group needs a name", f"{path}.name")
        elif sub_group in names:
            yield Cause("FieldValueDuplicate", f"Duplicate value: {json.dumps(sub_group)}", f"{path}.name")
        names.add(sub_group)
        if parent and parent not in parents:
            others = list(islice((n for n in parents if n and n != sub_group), _MOST_NAMED + 1))
            more = ", …" if len(others) > _MOST_NAMED else ""
            told = ", ".join(others[:_MOST_NAMED]) + more or "none"
            yield _invalid(f"{path}.parent", parent, f"there is no such sub-group; there are: {told}")
        elif sub_group in cyclic:
            yield _invalid(f"{path}.parent", parent, "sub-groups would form a cycle")


def _cyclic(parents: Mapping[str, str]) -> set[str]:
    """The names that are their own ancestors. Each is looked at once, however deep the tree is."""
    found, seen = set[str](), set[str]()
    for start in parents:
        path: dict[str, int] = {}
        at = start
        while at and at not in seen:
            seen.add(at)
            path[at] = len(path)
            at = parents.get(at, "")
        if at in path:
            found |= set(list(path)[path[at] :])
    return found


# ---------------------------------------------------------------- warnings


def queue_warning(queue_name: str, find_queue: FindQueue, all_queues: Iterable[Object]) -> str:
    """The warning about a job's queue that is missing or a department; "" if jobs may run in it. KAI also admits such a job."""
    queue = find_queue(queue_name)
    if queue is None:
        return f'queue "{queue_name}" does not exist: the pods wait until it does (kubectl get queues shows those there are)'
    children = sorted(name(q) for q in all_queues if dig(q, "spec.parentQueue") == queue_name)
    if children:
        some = ", ".join(children[:3])
        return f'queue "{queue_name}" is a department: the pods wait for ever; name one of its projects ({some})'
    return ""


def duration_warnings(annotations: Mapping[str, str]) -> Iterator[str]:
    """Warnings about malformed durations in the annotations of a job, pod or PodGroup. The scheduler ignores them; KAI admits them."""
    for note in DURATION_ANNOTATIONS:
        text = str(annotations.get(note) or "")
        if text and not quantity.DURATION_PATTERN.fullmatch(text):
            yield f"metadata.annotations[{note}] {json.dumps(text)} is no duration, so it counts for nothing: write {_A_DURATION}"
