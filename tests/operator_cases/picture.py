"""What is compared after a step: a namespace as plain data, without what a server chooses or adds; and how it may differ.

The rules say where the real operator is random or loses things; everything else must be equal to the letter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tests.error_contract import without_internals
from tests.operator_cases.cases import Step

Json = Any
State = dict[str, Json]
Known = dict[str, tuple[str, Json]]
"""`Kind/name` → the uid it had, and what the operator had decided of it."""

NOISE = re.compile(r"already exists$|Created worker pod: $|^Warning FailedDelete.* not found$")
"""Events that the operator makes when its cache is behind."""
ANY_EVENT = "*"
BESIDE = {
    "MPIJob": ("ConfigMap", "ServiceAccount", "Role", "RoleBinding"),
    "PyTorchJob": ("HorizontalPodAutoscaler",),
    "PaddleJob": ("HorizontalPodAutoscaler",),
}
"""Kind of the job → what it may own beside pods and services."""
_FURNITURE = frozenset({"ConfigMap/kube-root-ca.crt", "ServiceAccount/default"})
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_OWNER = ("apiVersion", "kind", "name", "controller", "blockOwnerDeletion")
_CONTAINER = (
    "name", "image", "command", "args", "workingDir", "env", "envFrom", "ports", "resources", "securityContext",
)  # fmt: skip
_POD = (
    "restartPolicy", "nodeSelector", "affinity", "hostNetwork", "priorityClassName", "imagePullSecrets", "hostname",
    "subdomain", "securityContext",
)  # fmt: skip
_POD_DEFAULTS = {
    "schedulerName": "default-scheduler",
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
}
_ADDED_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def tidy(message: str) -> str:
    """A message whose lists, which are in random order at the operator, are sorted."""
    if whole := re.fullmatch(r"(.*?: )\[(.*)\]", message, re.DOTALL):
        each = re.split(r", (?=(?:\.?spec|metadata|<nil>)[.\[:])", whole[2])
        message = f"{whole[1]}[{', '.join(sorted(each))}]"
    listed = re.compile(r'(?<=supported values: )"[^"]*"(?:, "[^"]*")*')
    return listed.sub(lambda found: ", ".join(sorted(re.findall(r'"[^"]*"', found[0]))), message)


def plain(state: State, namespace: str) -> State:
    """Without the names that this run chose."""
    text = json.dumps(state).replace(namespace, "$NS")
    found: State = json.loads(_UID.sub("$UID", text))
    return found


# ---------------------------------------------------------------- objects


def bare(value: Json) -> Json:
    """Without empty values, and without two defaults of the API."""
    if isinstance(value, list):
        return [bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    defaults = {"protocol": "TCP", "apiVersion": "v1"}
    return {k: bare(v) for k, v in value.items() if v not in (None, {}, []) and (k not in defaults or v != defaults[k])}


def decided(kind: str, obj: Json) -> Json:
    """What the operator decided of an object; what the API server adds is left out."""
    meta, spec = obj["metadata"], obj.get("spec") or {}
    owners = [{key: owner.get(key) for key in _OWNER} for owner in meta.get("ownerReferences", ())]
    found: State = {"labels": meta.get("labels"), "owners": owners}
    if kind == "Pod":
        found |= {"annotations": meta.get("annotations"), "finalizers": meta.get("finalizers"), "spec": _pod(spec)}
    elif kind == "Service":
        ports = [{key: port.get(key) for key in ("name", "port", "protocol", "targetPort")} for port in spec["ports"]]
        ports.sort(key=lambda port: (str(port["name"]), str(port["port"])))
        found["spec"] = {key: spec.get(key) for key in ("clusterIP", "selector", "publishNotReadyAddresses")}
        found["spec"]["ports"] = ports
    else:
        found |= {key: obj.get(key) for key in ("spec", "data", "rules", "subjects", "roleRef")}
    return bare(found)


def _pod(spec: Json) -> Json:
    found = {key: spec.get(key) for key in _POD}
    found |= {key: spec[key] for key, usual in _POD_DEFAULTS.items() if spec.get(key, usual) != usual}
    tolerated = spec.get("tolerations", ())
    found["tolerations"] = [each for each in tolerated if each.get("key") not in _ADDED_TOLERATIONS]
    found["volumes"] = _given(spec.get("volumes", ()))
    for field in ("containers", "initContainers"):
        found[field] = [
            {**{key: each.get(key) for key in _CONTAINER}, "volumeMounts": _given(each.get("volumeMounts", ()))}
            for each in spec.get(field, ())
        ]
    return found


def _given(volumes: Iterable[Json]) -> list[Json]:
    """Without the service account's token."""
    return [volume for volume in volumes if not volume["name"].startswith("kube-api-access-")]


def job(obj: Json, started_before: str) -> Json:
    status = obj.get("status") or {}
    shown = ("type", "status", "reason", "message")
    conditions = [[condition.get(key, "") for key in shown] for condition in status.get("conditions") or ()]
    random = {"selector"} if any(c[:2] == ["Succeeded", "True"] for c in conditions) else set()
    start = status.get("startTime") or ""
    found = {
        "conditions": conditions,
        "replicaStatuses": {
            type_: {k: v for k, v in (counts or {}).items() if v and k not in random}
            for type_, counts in (status.get("replicaStatuses") or {}).items()
        },
        "startTime": bool(start),
        "completionTime": bool(status.get("completionTime")),
    }
    if start and started_before and start != started_before:
        found["startTimeMoved"] = True
    if obj["metadata"].get("deletionTimestamp"):
        found["terminating"] = True
    return found


def marked(obj: Json, uid_before: str) -> str:
    """What is said of an object's life, beside its name or phase."""
    meta = obj["metadata"]
    owned = any(owner.get("controller") for owner in meta.get("ownerReferences", ()))
    marks = {
        "+Recreated": bool(uid_before) and meta["uid"] != uid_before,
        "+Terminating": bool(meta.get("deletionTimestamp")),
        "+Unowned": not owned,
    }
    return "".join(mark for mark, is_so in marks.items() if is_so)


def beside_jobs(objects: Iterable[tuple[str, Json]], known: Known) -> tuple[State, Known]:
    """Pods and what else a job owns: as they are, and what is new since the last look; and how they look now."""
    pods, others, new, seen = {}, [], {}, {}
    for kind, obj in objects:
        key = f"{kind}/{obj['metadata']['name']}"
        if key in _FURNITURE:
            continue
        uid_before, decided_before = known.get(key, ("", None))
        now, marks = decided(kind, obj), marked(obj, uid_before)
        seen[key] = obj["metadata"]["uid"], now
        if now != decided_before:
            new[key] = now
        if kind == "Pod":
            pods[obj["metadata"]["name"]] = (obj.get("status") or {}).get("phase", "Pending") + marks
        else:
            others.append(key + marks)
    return {"pods": pods, "others": sorted(others), "new": new}, seen


# ---------------------------------------------------------------- the rules


def wrong(step: Step, state: State) -> list[str]:
    """How a state differs from the nearest that the step accepts; [] when it is accepted."""
    said, required, allowed = (
        {without_internals(event): None for event in events}
        for events in (state.get("events", ()), step.events, step.maybe)
    )
    surplus = set() if ANY_EVENT in allowed else said.keys() - required - allowed.keys()
    found = [f".events: missing {event}" for event in required if event not in said]
    found += [f".events: surplus {event}" for event in sorted(surplus) if not NOISE.search(event)]
    rest = {part: value for part, value in state.items() if part != "events"}
    return found + min((list(differences(variant, rest)) for variant in step.variants), key=len)


_NONE = object()


def differences(wanted: Json, found: Json, at: str = "") -> Iterator[str]:
    """One line for each place in which they differ."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in dict.fromkeys((*wanted, *found)):
            yield from differences(wanted.get(key, _NONE), found.get(key, _NONE), f"{at}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for i, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(one, other, f"{at}[{i}]")
    elif type(wanted) is not type(found) or wanted != found:
        yield f"{at}: {_shown(found)}, recorded was {_shown(wanted)}"


def _shown(value: Json) -> str:
    return "nothing" if value is _NONE else json.dumps(value)


def combined(do: Json, states: Sequence[State | None], kind: str, noisy: bool) -> Step:
    """One step out of what several runs saw: each outcome is accepted, events that always came are required."""
    seen = [state for state in states if state is not None]
    if not seen:
        return Step(do)
    told = [set(state.get("events", ())) for state in seen]
    always, ever = set.intersection(*told), set.union(*told)
    required = tuple(sorted(event for event in always if noisy or not NOISE.search(event)))
    # An MPIJob says so much that the client's allowance of 25 events an object runs out: the rest is lost.
    maybe = {ANY_EVENT} if kind == "MPIJob" else ever - set(required)
    texts = [json.dumps({k: v for k, v in state.items() if k != "events"}, sort_keys=True) for state in seen]
    return Step(do, tuple(json.loads(text) for text in dict.fromkeys(texts)), required, tuple(sorted(maybe)))
