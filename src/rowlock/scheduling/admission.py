"""What is refused at the door because no cycle could ever make sense of it: shares of a GPU that are none, queues that
hang in a circle, sub-groups without a parent. And what is admitted with a warning, as a real cluster admits it: a queue
that is not there (yet).

Whatever a real KAI refuses, this refuses, in its words and with the field and the fix behind them. Pure: `find` looks a
queue up by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from rowlock import quantity
from rowlock.errors import BadRequest, Cause
from rowlock.objects import Object, dig, name
from rowlock.scheduling.requests import FRACTION, FRACTION_CONTAINER, GPU, GPU_MEMORY, NUM_DEVICES

Find = Callable[[str], Object | None]
WEBHOOK = "admission.kai-scheduler.svc"
_SHARES = (FRACTION, GPU_MEMORY, NUM_DEVICES)
_DURATION = re.compile(r"(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+|0")
_WHOLE = f"resources.limits[{GPU}]"
_CARDS = 1024
"""More devices than this no machine has."""


# ---------------------------------------------------------------- shares of a GPU


def share_refusal(notes: Mapping[str, str], spec: Mapping[str, Any], at: str = "metadata.annotations") -> str:
    """Why the annotations of a pod (or template) ask for no share of a GPU that there could be; "" = they may stand."""
    given = {note: str(notes[note]) for note in _SHARES if note in notes}
    if not given:
        return ""
    return next(_share_rules(given, notes, spec, at), "")


def _share_rules(given: Mapping[str, str], notes: Mapping[str, str], spec: Mapping[str, Any], at: str) -> Iterator[str]:
    def says(note: str) -> str:
        return f"{at}[{note}] is {json.dumps(given[note])}"

    fraction, memory, devices = (given.get(note) for note in _SHARES)
    if fraction is not None and memory is not None:
        yield f"cannot request both GPU and GPU memory: {at} has {FRACTION} and {GPU_MEMORY}; keep one of them"
    if fraction is None and memory is None:
        text = "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"
        yield f"{text}: {says(NUM_DEVICES)}; add {FRACTION} or {GPU_MEMORY}, or ask for whole GPUs with {_WHOLE}"
    elif _whole(spec):
        text = "cannot have both GPU fraction request and whole GPU resource request/limit"
        yield f"{text}: {says(FRACTION if fraction is not None else GPU_MEMORY)} beside {_WHOLE}; keep one of them"
    if fraction is not None and (wrong := _portion(fraction)):
        yield f"gpu-fraction annotation value must be a positive number smaller than 1.0: {says(FRACTION)}; {wrong}"
    if memory is not None and not _count(memory):
        text = "gpu-memory annotation value must be a positive integer greater than 0"
        yield f'{text}: {says(GPU_MEMORY)}; write MiB of each card, for example "5000"'
    if devices is not None and not 0 < _count(devices) <= _CARDS:
        text = "fraction count annotation value must be a positive integer greater than 0"
        yield f"{text}: {says(NUM_DEVICES)}; say on how many cards of one node, or leave it out for one"
    yield from _container(notes, spec, at)


def share_warning(notes: Mapping[str, str], at: str = "metadata.annotations") -> str:
    """An admitted share that counts as another one; "" when it counts as it stands."""
    text = notes.get(FRACTION)
    counted = (Decimal(text) * 100).quantize(Decimal(1), "ROUND_HALF_UP") / 100 if text else Decimal(0)
    if not text or counted == Decimal(text):
        return ""
    return f"{at}[{FRACTION}] {json.dumps(text)} counts as {counted:g}: shares are counted in hundredths of a card"


def _container(notes: Mapping[str, str], spec: Mapping[str, Any], at: str) -> Iterator[str]:
    wanted = notes.get(FRACTION_CONTAINER)
    names = [c.get("name") for kind in ("containers", "initContainers") for c in spec.get(kind) or ()]
    if wanted is not None and wanted not in names:
        text = f"failed to get fraction container ref: container with name {wanted} not found for fraction request"
        yield f"{text}: {at}[{FRACTION_CONTAINER}] must name one of {', '.join(map(str, names))}"


def _portion(text: str) -> str:
    """What to write instead; "" when the portion may stand."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if number.is_finite() and number >= 1:
        return f"ask for whole GPUs with {_WHOLE}, or for a share below 1"
    if number.is_finite() and 0 < number < Decimal("0.005"):
        return "the smallest share is 0.01"
    return "" if number.is_finite() and number > 0 else 'write a share such as "0.5", or leave it out to ask for no GPU'


def _count(text: str) -> int:
    """A positive whole number, 0 when it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _whole(spec: Mapping[str, Any]) -> bool:
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        for part in ("limits", "requests"):
            try:
                if quantity.parse((resources.get(part) or {}).get(GPU, 0)) > 0:
                    return True
            except BadRequest:
                continue  # the API server's own validation names it
    return False


def denial(why: str) -> str:
    """The API server's sentence for a refusal (403 Forbidden)."""
    return f'admission webhook "{WEBHOOK}" denied the request: {why}'


# ---------------------------------------------------------------- queues and groups


def queue_causes(queue: Object, find: Find) -> Iterator[Cause]:
    """A circle, numbers and durations that mean nothing."""
    circle = _circle(queue, find)
    parent = str(dig(queue, "spec.parentQueue") or "")
    if circle:
        text = (
            f"queues would hang in a circle ({' → '.join(circle)}); "
            f"name a queue that does not hang below {name(queue)}, or leave parentQueue out"
        )
        yield _invalid("spec.parentQueue", parent, text)
    for resource in ("cpu", "memory", "gpu"):
        for field, least in (("quota", -1), ("limit", -1), ("overQuotaWeight", 0)):
            value = dig(queue, f"spec.resources.{resource}.{field}")
            if value is not None and value < 0 and value != least:
                bound = ", or -1 for no bound" if least else ""
                yield _invalid(f"spec.resources.{resource}.{field}", value, f"must be no less than 0{bound}")
    for field in ("preemptMinRuntime", "reclaimMinRuntime"):
        text = dig(queue, f"spec.{field}")
        if text is not None and not _DURATION.fullmatch(str(text)):
            yield _invalid(f"spec.{field}", text, 'must be a duration such as "90s", "10m" or "1h30m"')


def _invalid(field: str, value: Any, why: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {why}", field)


def _circle(queue: Object, find: Find) -> list[str]:
    """The names from the queue up to itself; [] when its parents end somewhere, or turn in a circle without it."""
    path, at = [name(queue)], str(dig(queue, "spec.parentQueue") or "")
    while at and at not in path:
        path.append(at)
        at = str(dig(find(at) or {}, "spec.parentQueue") or "")
    return [*path, at] if at == path[0] else []


def group_causes(group: Object) -> Iterator[Cause]:
    """Sub-groups are a tree, each with a name of its own."""
    groups = list(dig(group, "spec.subGroups") or ())
    parents = {str(g.get("name") or ""): str(g.get("parent") or "") for g in groups}
    seen: set[str] = set()
    for index, g in enumerate(groups):
        at, own, above = f"spec.subGroups[{index}]", str(g.get("name") or ""), str(g.get("parent") or "")
        if not own:
            yield Cause("FieldValueRequired", "Required value: a sub-group needs a name", f"{at}.name")
        elif own in seen:
            yield Cause("FieldValueDuplicate", f"Duplicate value: {json.dumps(own)}", f"{at}.name")
        seen.add(own)
        if above and above not in parents:
            known = ", ".join(n for n in parents if n and n != own) or "none"
            yield _invalid(f"{at}.parent", above, f"there is no such sub-group; there are: {known}")
        elif above and own in _above(own, parents):
            yield _invalid(f"{at}.parent", above, "sub-groups would hang in a circle")


def _above(start: str, parents: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    at = parents.get(start, "")
    while at and at not in found:
        found.add(at)
        at = parents.get(at, "")
    return found


# ---------------------------------------------------------------- warnings


def queue_warning(wanted: str, find: Find, every: Iterable[Object]) -> str:
    """What is wrong with the queue that a job names; "" when jobs may run in it. A real KAI admits such a job."""
    found = find(wanted)
    if found is None:
        return (
            f'queue "{wanted}" does not exist: the pods wait until it does (kubectl get queues shows those there are)'
        )
    children = sorted(name(q) for q in every if dig(q, "spec.parentQueue") == wanted)
    if children:
        some = ", ".join(children[:3])
        return f'queue "{wanted}" is a department: the pods wait for ever; name one of its projects ({some})'
    return ""
