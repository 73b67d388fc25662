"""What is compared: a namespace as plain data, without times, uids and what only a real cluster adds; and the rules
by which two pictures count as the same.

The rules say where the real operator is random or loses things; everything else must be equal to the letter.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from tests.differential.kubelet import Stage

from rowlock import kinds
from rowlock.kinds import Kind
from rowlock.objects import Object, is_condition_true, is_deleting, name, uid

Picture = dict[str, Any]
NOISE = re.compile(r"already exists$|Created worker pod: $|^Warning FailedDelete.* not found$|^Normal \w+ is exist ")
"""Events that the operator makes because its cache is behind, or for their own sake."""
ALLOWANCE = 25
"""Events of one type that one object may have from one source; later ones are lost."""
BESIDE: tuple[Kind, ...] = (
    kinds.SERVICE, kinds.CONFIG_MAP, kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING, kinds.AUTOSCALER,
)  # fmt: skip
FURNITURE = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
ASSIGNED = ("nodeName", "priority", "preemptionPolicy")
"""Of a pod's spec: what admission and scheduling add."""
ONLY_OURS = "event only of ours: "
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def picture(stage: Stage) -> Picture:
    """What can be seen now."""
    space = stage.space
    job = space.get(stage.kind, stage.job)
    others = [o for kind in BESIDE for o in space.all(kind) if (kind.name, name(o)) not in FURNITURE]
    events = [e for e in space.all(kinds.EVENT) if e["involvedObject"].get("kind") == stage.kind.name]
    made: Picture = {
        "answers": [_answer(a) for a in stage.answers],
        "job": _job(job) if job else None,
        "pods": {name(p): _pod(stage, p, job) for p in space.all(kinds.POD)},
        "others": {f"{o['kind']}/{name(o)}": _other(stage, o, job) for o in others},
        "events": sorted({f"{e['type']} {e['reason']} {tidy(str(e.get('message')))}" for e in events}),
        "told": dict(_told(events)),
    }
    plain: Picture = json.loads(UID.sub("UID", json.dumps(made)))
    return plain


def _told(events: list[Object]) -> Counter[str]:
    """How often something was said, by type."""
    found: Counter[str] = Counter()
    for event in events:
        found[str(event["type"])] += int(event.get("count") or 1)
    return found


def tidy(message: str) -> Any:
    """A message; one that holds a list whose order is random at the operator becomes its sorted words."""
    message = re.sub(r"spec\.ports\[\d\]", "spec.ports[i]", message)
    if "supported values" in message or "[" in message:
        return " ".join(sorted(re.split(r"[\s,\[\]]+", message)))
    return message


def _answer(said: Picture) -> Picture:
    refused = said.get("refused")
    return {**said, "refused": [*refused[:2], tidy(refused[2])]} if refused else said


def _job(job: Object) -> Picture:
    status = job.get("status") or {}
    shown = ("type", "status", "reason", "message")
    counts = {t: {k: v for k, v in (c or {}).items() if v} for t, c in (status.get("replicaStatuses") or {}).items()}
    if is_condition_true(job, "Succeeded"):  # the operator drops selectors at random then
        counts = {t: {k: v for k, v in c.items() if k != "selector"} for t, c in counts.items()}
    return {
        "conditions": [[c.get(key, "") for key in shown] for c in status.get("conditions") or ()],
        "replicaStatuses": counts,
        "startTime": bool(status.get("startTime")),
        "completionTime": bool(status.get("completionTime")),
        "terminating": is_deleting(job),
        "spec": job.get("spec"),
        "labels": job["metadata"].get("labels"),
    }


def _meta(stage: Stage, obj: Object, job: Object | None) -> Picture:
    meta = obj["metadata"]
    owners = [
        [o.get(k) for k in ("apiVersion", "kind", "name", "controller", "blockOwnerDeletion")]
        + ["the job" if job and o.get("uid") == uid(job) else "another"]
        for o in meta.get("ownerReferences") or ()
    ]
    found = {key: meta[key] for key in ("labels", "annotations", "finalizers") if meta.get(key)}
    life = stage.space.lives.get((obj["kind"], name(obj)), [])
    return {**found, "owners": owners, "life": len(life), "terminating": is_deleting(obj)}


def _pod(stage: Stage, pod: Object, job: Object | None) -> Picture:
    spec = {k: v for k, v in pod["spec"].items() if k not in ASSIGNED}
    spec["tolerations"] = [
        t for t in spec.get("tolerations") or () if not str(t.get("key")).startswith("node.kubernetes.io/")
    ]
    spec["volumes"] = _own(spec.get("volumes"))
    for field in ("containers", "initContainers"):
        spec[field] = [{**c, "volumeMounts": _own(c.get("volumeMounts"))} for c in spec.get(field) or ()]
    return {**_meta(stage, pod, job), "phase": (pod.get("status") or {}).get("phase"), "spec": spec}


def _own(volumes: Any) -> list[Any]:
    """Without the service account's token."""
    return [v for v in volumes or () if not v["name"].startswith("kube-api-access-")]


def _other(stage: Stage, obj: Object, job: Object | None) -> Picture:
    rest: Picture = {k: obj[k] for k in ("spec", "data", "rules", "subjects", "roleRef") if k in obj}
    if obj["kind"] == "Service":
        rest["spec"] = {**obj["spec"], "ports": sorted(obj["spec"].get("ports") or (), key=str)}
    found = _meta(stage, obj, job)
    if obj["kind"] == "ConfigMap":
        found.pop("life")
    return {**found, **rest}


# ---------------------------------------------------------------- the rules


def differences(real: Picture, ours: Picture) -> list[str]:
    """Where the two are not the same, one line each."""
    found: list[str] = []
    real = {**real, "pods": {n: pod for n, pod in real["pods"].items() if n not in remade(real, ours)}}
    dropped = dropped_services(real, ours)
    ours = {**ours, "others": {key: obj for key, obj in ours["others"].items() if key not in dropped}}
    for part in ("answers", "job", "pods", "others"):
        found += compared(f".{part}", real[part], ours[part])
    lost = {type_ for type_, count in real["told"].items() if count >= ALLOWANCE}
    if any("combined from similar" in text for text in real["events"]):
        lost |= {"Normal", "Warning"}
    drops = {f"Normal SuccessfulDeleteService Deleted service: {key.partition('/')[2]}" for key in dropped}
    here, there = set(ours["events"]) - drops, set(real["events"]) - drops
    found += [f"event only of the real one: {e}" for e in sorted(there - here) if not _may_miss(e)]
    surplus = (e for e in sorted(here - there) if not NOISE.search(e) and e.partition(" ")[0] not in lost)
    return found + [ONLY_OURS + e for e in surplus]


def remade(real: Picture, ours: Picture) -> set[str]:
    """Pods that the real operator made again although the job has failed. In one look it takes an XGBoostJob's pod away
    for a restart and judges the job failed; whether its next look knows that verdict is a race between its caches."""
    if not _both_failed(real, ours):
        return set()
    again = {n for n, pod in real["pods"].items() if pod["life"] > 1 and pod["phase"] == "Pending"}
    return again - set(ours["pods"])


def dropped_services(real: Picture, ours: Picture) -> set[str]:
    """Services (`Service/NAME`) that only the real operator deleted, of pods that are gone on both sides, of a job that has
    failed. The same race: where its look that cleans the failed job up still sees the pod that was taken away, it deletes
    that pod's Service along with it. Seen of one process in every play of a history, of another one in none."""
    if not _both_failed(real, ours):
        return set()
    return {
        key
        for key in set(ours["others"]) - set(real["others"])
        if key.startswith("Service/") and not {key.partition("/")[2]} & (set(real["pods"]) | set(ours["pods"]))
    }


def _both_failed(*pictures: Picture) -> bool:
    return all(["Failed", "True"] in [c[:2] for c in (p["job"] or {}).get("conditions") or ()] for p in pictures)


def _may_miss(event: str) -> bool:
    return bool(NOISE.search(event)) or "combined from similar" in event


def compared(path: str, real: Any, ours: Any) -> list[str]:
    if real == ours:
        return []
    if isinstance(real, dict) and isinstance(ours, dict):
        keys = [*real, *(k for k in ours if k not in real)]
        return [line for k in keys for line in compared(f"{path}.{k}", real.get(k, ...), ours.get(k, ...))]
    if isinstance(real, list) and isinstance(ours, list) and len(real) == len(ours):
        return [
            line for i, (a, b) in enumerate(zip(real, ours, strict=True)) for line in compared(f"{path}[{i}]", a, b)
        ]
    return [f"{path}: real {_shown(real)}, ours {_shown(ours)}"]


def _shown(value: Any) -> str:
    if value is ...:
        return "has none"
    text = json.dumps(value)
    return text if len(text) < 600 else text[:600] + "…"
