"""Objects that might be submitted → the gangs that the scheduler would see. Nothing is created.

A job goes through the operator as if it had just been made: its pods and its PodGroup are what the operator and the
pod-grouper would create. Bare pods and PodGroups with their pods count as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rowlock import kinds
from rowlock.api import Create
from rowlock.errors import BadRequest
from rowlock.objects import Object, dig, name, namespace, timestamp, uid
from rowlock.scheduling import reading
from rowlock.scheduling.snapshot import Gang
from rowlock.training.defaults import read
from rowlock.training.group import group_of, group_spec
from rowlock.training.job import reconcile
from rowlock.training.registry import FRAMEWORKS
from rowlock.training.turn import Seen

KNOWN = (*FRAMEWORKS, kinds.POD, kinds.POD_GROUP)


def gangs(asked: Sequence[Object], homes: Mapping[str, Object], classes: Mapping[str, int], now: float) -> list[Gang]:
    """The gangs of these objects, in their order. `homes` are namespaces by name, `classes` priority classes by value.

    Raises BadRequest for a job that the operator refuses, and for a PodGroup without pods."""
    found: list[Gang] = []
    pods = [o for o in asked if kinds.of(o) == kinds.POD]
    taken: set[str] = set()
    for obj in asked:
        kind, home = kinds.of(obj), homes.get(namespace(obj))
        if kind in FRAMEWORKS:
            found.append(_job(obj, home, classes, now))
        elif kind == kinds.POD_GROUP:
            members = [p for p in pods if _named(p) == (namespace(obj), name(obj))]
            if not members:
                raise BadRequest(f"no Pod of the file names the PodGroup {name(obj)} (annotation {reading.GROUP})")
            taken |= {name(p) for p in members}
            found.append(_group(_aged(obj, now), members, home, classes, now))
    for pod in pods:
        if name(pod) not in taken:
            home = homes.get(namespace(pod))
            found.append(reading.bare_gang(_aged(pod, now), reading.queue_of(pod, None, home), classes))
    return found


def _named(pod: Object) -> tuple[str, str]:
    return namespace(pod), reading.group_key(pod)


def _aged(obj: Object, now: float) -> Object:
    """With the time and the identity that creating it would give."""
    meta = {"uid": uid(obj) or f"what-if-{name(obj)}", **obj["metadata"], "creationTimestamp": timestamp(now)}
    return {**obj, "metadata": meta}


def _job(obj: Object, home: Object | None, classes: Mapping[str, int], now: float) -> Gang:
    framework = FRAMEWORKS[kinds.of(obj)]
    if dig(obj, "spec.runPolicy.suspend"):
        spec = {**obj["spec"], "runPolicy": {**obj["spec"]["runPolicy"], "suspend": False}}
        obj = {**obj, "spec": spec}  # asked is what happens when it runs
    if wrong := framework.validate(obj.get("spec") or {}):
        raise BadRequest(f"{framework.kind.name} {name(obj)} would fail at once: {wrong}")
    obj = _aged(obj, now)
    job = read(framework, obj)
    made = reconcile(framework, Seen(obj), now).writes
    pods = [w.object for w in made if isinstance(w, Create) and w.kind == kinds.POD]
    if not pods:
        raise BadRequest(f"the operator would make no pods for {framework.kind.name} {name(obj)}: look at its replicas")
    group = group_of(job, group_spec(job, home, classes))
    return _group(_aged(group, now), pods, home, classes, now)


def _group(group: Object, pods: Iterable[Object], home: Object | None, classes: Mapping[str, int], now: float) -> Gang:
    queue = reading.queue_of(group, group, home)
    return reading.group_gang(group, [_aged(p, now) for p in pods], queue, classes)
