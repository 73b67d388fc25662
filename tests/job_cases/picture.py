"""What is compared after a step of a case of a Job, JobSet or TrainJob: the namespace as plain data, without what a server chooses or adds."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from tests.operator_cases import picture
from tests.operator_cases.picture import bare

from rowlock.objects import Object, is_deleting, meta, phase, uid

Json = Any
_OWNER = ("apiVersion", "kind", "name", "controller", "blockOwnerDeletion")
_CONTAINER = (
    "name", "image", "command", "args", "workingDir", "env", "envFrom", "ports", "resources", "securityContext",
    "readinessProbe", "restartPolicy",
)  # fmt: skip
_POD = (
    "restartPolicy", "nodeSelector", "affinity", "hostNetwork", "priorityClassName", "imagePullSecrets", "hostname",
    "subdomain", "securityContext", "schedulingGates", "activeDeadlineSeconds",
)  # fmt: skip
_USUAL = {
    "schedulerName": "default-scheduler", "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
}  # fmt: skip
_ADDED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_RANDOM_END = re.compile(r"\b((?:job|js|tj)[a-z0-9-]*?)-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
TRACKING = "batch.kubernetes.io/job-tracking"


def tidy(message: str, bases: Mapping[str, str] = {}) -> str:
    """A message without the random ends of pods' names; `bases` has the pods that are there."""
    for called, base in bases.items():
        message = message.replace(called, f"{base}-*")
    return picture.tidy(_RANDOM_END.sub(r"\1-*", message))


def decided(kind: str, obj: Object) -> Json:
    """What the controllers decided of an object, or what the API made of it."""
    metadata, spec = meta(obj), obj.get("spec") or {}
    notes = {k: v for k, v in (metadata.get("annotations") or {}).items() if not k.startswith("kubectl.kubernetes.io/")}
    owners = [{key: owner.get(key) for key in _OWNER} for owner in metadata.get("ownerReferences", ())]
    found: dict[str, Json] = {"labels": metadata.get("labels"), "annotations": notes, "owners": owners}
    if kind == "Pod":
        found |= {"generateName": metadata.get("generateName"), "spec": _pod(spec)}
    else:
        found |= _CONTENTS.get(kind, _spec)(obj)
    return bare(found)


def _spec(obj: Object) -> Json:
    return {"spec": obj.get("spec")}


def _job(obj: Object) -> Json:
    return {"spec": _job_spec(obj["spec"])}


def _job_spec(spec: Json) -> Json:
    template = spec["template"]
    template_meta = {k: v for k, v in (template.get("metadata") or {}).items() if k != "creationTimestamp"}
    return {**spec, "template": {"metadata": template_meta, "spec": _pod(template["spec"])}}


def _set(obj: Object) -> Json:
    jobs = [
        {**job, "template": {**job["template"], "spec": _job_spec(job["template"]["spec"])}}
        for job in obj["spec"].get("replicatedJobs", ())
    ]
    return {"spec": {**obj["spec"], "replicatedJobs": jobs}}


def _service(obj: Object) -> Json:
    spec = obj["spec"]
    ports = [
        {key: port.get(key) for key in ("name", "port", "protocol", "targetPort")} for port in spec.get("ports", ())
    ]
    address = "None" if spec.get("clusterIP") == "None" else "$IP"
    kept = {key: spec.get(key) for key in ("selector", "publishNotReadyAddresses")}
    return {"spec": {"clusterIP": address, **kept, "ports": ports}}


def _secret(obj: Object) -> Json:
    """Keys are made at random: their first words count."""
    texts = {key: base64.b64decode(value).decode(errors="replace") for key, value in (obj.get("data") or {}).items()}
    cut = {key: re.sub(r"(?s)^(-----BEGIN [A-Z ]+-----|\S+).*", r"\1 ...", text) for key, text in texts.items()}
    return {"type": obj.get("type"), "immutable": obj.get("immutable"), "data": cut}


def _config_map(obj: Object) -> Json:
    data = dict(obj.get("data") or {})
    runtime = yaml.safe_load(data["runtime"]) if meta(obj)["name"].endswith("-runtime-snapshot") else None
    if isinstance(runtime, dict):
        kept = {k: v for k, v in runtime["metadata"].items() if k in ("name", "namespace", "labels", "annotations")}
        data["runtime"] = {**runtime, "metadata": kept, "spec": "(the runtime's spec at that time)"}
    return {"data": data}


_CONTENTS: dict[str, Callable[[Object], Json]] = {
    "Job": _job, "JobSet": _set, "Service": _service, "Secret": _secret, "ConfigMap": _config_map,
}  # fmt: skip


def _pod(spec: Json) -> Json:
    found = {key: spec.get(key) for key in _POD}
    found |= {key: spec[key] for key, usual in _USUAL.items() if spec.get(key, usual) != usual}
    found["tolerations"] = [each for each in spec.get("tolerations", ()) if each.get("key") not in _ADDED]
    found["volumes"] = [v for v in spec.get("volumes", ()) if not v["name"].startswith("kube-api-access-")]
    for field in ("containers", "initContainers"):
        found[field] = [
            {
                **{key: each.get(key) for key in _CONTAINER},
                "volumeMounts": [
                    v for v in each.get("volumeMounts", ()) if not v["name"].startswith("kube-api-access-")
                ],
            }
            for each in spec.get(field, ())
        ]
    return found


def status(kind: str, obj: Object, starts: Mapping[str, str], bases: Mapping[str, str]) -> Json:
    """The status; numbers that are 0 are left out, times are only said to be there."""
    now = obj.get("status") or {}
    own = ("conditions", "startTime", "completionTime", "uncountedTerminatedPods")
    found: dict[str, Json] = {
        "conditions": [
            [*(c.get(key, "") for key in ("type", "status", "reason")), tidy(c.get("message", ""), bases)]
            for c in now.get("conditions") or ()
        ]
    }
    found |= {key: value for key, value in now.items() if key not in own and value not in (0, [], {}, "")}
    if kind == "Job":
        found |= _job_times(obj, now, starts)
    if is_deleting(obj):
        found["deleting" if kind == "Job" else "terminating"] = meta(obj).get("finalizers") or True
    return found


def _job_times(obj: Object, now: Json, starts: Mapping[str, str]) -> Json:
    start, before = now.get("startTime"), starts.get(uid(obj))
    uncounted = {k: len(v) for k, v in (now.get("uncountedTerminatedPods") or {}).items() if v}
    said = {
        "suspend": obj["spec"].get("suspend"),
        "startTime": bool(start),
        "completionTime": bool(now.get("completionTime")),
        "startTimeMoved": bool(start and before and before != start),
        "uncounted": uncounted,
    }
    return {key: value for key, value in said.items() if value}


def pod(obj: Object) -> str:
    """Its phase and what is said of its life."""
    marks = {
        "+Terminating": is_deleting(obj),
        "+Unowned": not any(owner.get("controller") for owner in meta(obj).get("ownerReferences", ())),
        "+NoFinalizer": TRACKING not in meta(obj).get("finalizers", ()),
    }
    return (phase(obj) or "Pending") + "".join(mark for mark, is_so in marks.items() if is_so)


def table(answer: Json) -> Json:
    """The cells of `kubectl get`, without the names and with times masked."""
    columns = answer.get("columnDefinitions") or ()
    rows = {}
    for row in answer.get("rows") or ():
        cells = zip(columns, row["cells"], strict=True)
        shown = [
            "$" if value and value != "<none>" and column["name"] in ("Age", "Duration") else value
            for column, value in cells
            if not column.get("priority")
        ]
        rows[row["cells"][0]] = shown[1:]
    return rows
