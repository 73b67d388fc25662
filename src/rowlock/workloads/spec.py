"""The body of a submit → a `Submission`: everything typed, every mistake told with its field, rule and fix.

`read(body)` is what `POST /api/v1/workloads/distributed` accepts: Run:ai's DistributedCreationRequest and, as
extensions, `spec.noMaster`, `spec.noWorkers`, `spec.nprocPerNode`, `spec.inheritEnv` and `submitCommand`. `command` and `args` may be a
shell-like string or, so that nothing is quoted twice, a list of words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rowlock.workloads import compute, frameworks
from rowlock.workloads.compute import Compute
from rowlock.workloads.fields import JOB, ROLE, TOP, Fields, Mistakes
from rowlock.workloads.frameworks import MPI, PYTORCH, Framework

LONGEST_NAME = 49
PRIORITIES: dict[str, int] = {
    "very-low": 25, "low": 40, "medium-low": 65, "medium": 80, "medium-high": 90, "high": 125, "very-high": 150,
}  # fmt: skip
"""Run:ai's priority classes; training is `low` unless it says otherwise, and preemptible below 100."""

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_POOL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Role:
    """What the pods of one role run: the workers, or the master."""

    image: str = ""
    pull: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[dict[str, Any], ...] = ()
    working_dir: str = ""
    compute: Compute = field(default_factory=Compute)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_type: str = ""
    restart: str = ""
    stdin: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """What holds for the whole job."""

    clean_pods: str = ""
    backoff_limit: int = 6
    ttl: int | None = None
    grace: int | None = None
    priority: str = ""
    preemptibility: str = ""
    nproc: str = ""
    min_replicas: int | None = None
    max_replicas: int | None = None
    slots: int = 1
    pool: str = ""
    """The node pool; "" = the default one: nodes without a pool's label."""
    inherit_env: str = ""
    """Names (with wildcards) of the server's own variables that pods get."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A distributed workload, as asked for. `body` is the request itself, kept to be shown again."""

    name: str
    prefix: bool
    project: str
    cluster: str
    framework: Framework
    workers: int
    lead: bool
    worker: Role
    master: Role
    run: RunPolicy
    command: str
    body: Mapping[str, Any]

    @property
    def pods(self) -> int:
        return self.workers + (1 if self.lead else 0)

    @property
    def wants_gpu(self) -> bool:
        return any(role.compute.devices for role in (self.worker, self.master))


def read(body: Any) -> Submission:
    """The submission that a request body asks for. Raises BadRequest with one cause per mistake."""
    mistakes = Mistakes()
    top = Fields("", body if isinstance(body, Mapping) else {}, mistakes)
    if not isinstance(body, Mapping):
        mistakes.add("body", "type", "must be a JSON object.")
    top.only(*TOP)
    spec = top.object("spec")
    spec.only(*ROLE, *JOB)
    framework = _framework(spec)
    worker = _role(spec)
    lead = _lead(spec, framework)
    master = _master(top, worker, framework)
    made = Submission(
        name=_name(top),
        prefix=top.flag("useGivenNameAsPrefix"),
        project=_project(top),
        cluster=top.text("clusterId"),
        framework=framework,
        workers=_workers(spec, lead),
        lead=lead,
        worker=worker,
        master=master,
        run=_run(spec, framework),
        command=top.text("submitCommand"),
        body=top.values,
    )
    if top.text("templateId"):
        top.wrong("templateId", "unsupported", "templates are not supported by rowlock yet. Put the values into spec.")
    mistakes.check()
    return made


def _name(top: Fields) -> str:
    name = top.text("name")
    if not name:
        top.wrong("name", "required", "a workload needs a name.")
    elif len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        top.wrong("name", "format", name_rule(name))
    return name


def name_rule(name: str) -> str:
    """Why a name is refused, and a name like it that is not."""
    why = f"has {len(name)} characters, {LONGEST_NAME} are allowed" if len(name) > LONGEST_NAME else ""
    if not _NAME.fullmatch(name):
        why = "must consist of lower case alphanumeric characters or '-' and start with an alphabetic character"
    return f"{name!r} {why}. Use {fixed_name(name)!r}, for example."


def fixed_name(name: str) -> str:
    """The nearest name that a workload may have."""
    fixed = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not fixed or not fixed[0].isalpha():
        fixed = f"job-{fixed}".rstrip("-")
    return fixed[:LONGEST_NAME].rstrip("-")


def _project(top: Fields) -> str:
    value = top.get("projectId")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    text = top.text("projectId")
    if not text:
        top.wrong("projectId", "required", "say in which project: GET /api/v1/org-unit/projects lists them.")
    return text


def _framework(spec: Fields) -> Framework:
    word = spec.text("distributedFramework")
    found = frameworks.by_name(word) if word else PYTORCH
    if found is None:
        known = ", ".join(f.name for f in frameworks.FRAMEWORKS)
        nearest = frameworks.nearest(word)
        spec.wrong("distributedFramework", "options", f"must be one of {known}; {word!r} is nearest to {nearest}.")
    return found or PYTORCH


def _lead(spec: Fields, framework: Framework) -> bool:
    absent = spec.flag("noMaster")
    if absent and not framework.no_lead:
        message = f"a {framework.name} job needs its {framework.lead.lower()}. Leave noMaster out."
        spec.wrong("noMaster", "unsupported", message)
    return bool(framework.lead) and not absent


def _workers(spec: Fields, lead: bool) -> int:
    number = spec.integer("numWorkers", 1)
    if not spec.flag("noWorkers"):
        return number or 1
    if not lead or number is not None:
        spec.wrong("noWorkers", "exclusive", "a workload has a master, workers, or both; leave numWorkers out.")
    return 0


def _master(top: Fields, worker: Role, framework: Framework) -> Role:
    """The master's role: the worker's, changed where `masterSpec` says so. MPI's launcher starts the ranks and trains
    none: it has the command, the workers have the GPUs."""
    body = top.object("masterSpec")
    body.only(*ROLE)
    if top.get("masterSpec") is not None and top.flag("masterSpecSameAsWorker"):
        top.wrong("masterSpec", "exclusive", "must be absent when masterSpecSameAsWorker is true.")
    own = _role(body, needs_image=False)
    given = {name: getattr(own, name) for name, key in _MASTER_FIELDS if body.get(key) is not None}
    if framework is MPI and "compute" not in given:
        plain = worker.compute
        given["compute"] = Compute(plain.requests, plain.limits, large_shm=plain.large_shm)
    return replace(worker, **given)


_MASTER_FIELDS = (
    ("image", "image"), ("pull", "imagePullPolicy"), ("command", "command"), ("args", "args"),
    ("env", "environmentVariables"), ("working_dir", "workingDir"), ("compute", "compute"), ("labels", "labels"),
    ("annotations", "annotations"), ("node_type", "nodeType"), ("restart", "restartPolicy"), ("stdin", "stdin"),
    ("tty", "tty"),
)  # fmt: skip


def _role(body: Fields, *, needs_image: bool = True) -> Role:
    image = body.text("image")
    if needs_image and not image.strip("/"):
        body.wrong(
            "image", "required", 'an image is needed; "rowlock.dev/host" stands for the programs of this machine.'
        )
    return Role(
        image=image,
        pull=body.choice("imagePullPolicy", "Always", "IfNotPresent", "Never"),
        command=_words(body, "command"),
        args=_words(body, "args"),
        env=tuple(made for item in body.items("environmentVariables") if (made := _variable(item))),
        working_dir=body.text("workingDir"),
        compute=compute.read(body.object("compute")),
        labels=_pairs(body, "labels"),
        annotations=_pairs(body, "annotations"),
        node_type=body.text("nodeType"),
        restart=body.choice("restartPolicy", "Always", "Never", "OnFailure"),
        stdin=body.flag("stdin"),
        tty=body.flag("tty"),
    )


def _words(body: Fields, name: str) -> tuple[str, ...]:
    value = body.get(name)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return tuple(value)
    text = body.text(name)
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        body.wrong(name, "format", f"cannot be split into words: {error}. Check the quotes.")
        return ()


_SOURCES = {"podFieldRef": "fieldRef", "secret": "secretKeyRef", "configMap": "configMapKeyRef"}


def _variable(item: Fields) -> dict[str, Any] | None:
    item.only("name", "value", "secret", "configMap", "podFieldRef", "exclude", "description")
    name = item.text("name")
    if not _ENV_NAME.fullmatch(name):
        item.wrong("name", "format", f"{name!r} is not the name of an environment variable.")
        return None
    given = [source for source in _SOURCES if item.get(source) is not None]
    if len(given) + (item.get("value") is not None) > 1:
        item.wrong("value", "exclusive", f"{name} may have one of value, secret, configMap and podFieldRef.")
        return None
    if not given:
        return {"name": name, "value": item.text("value")}
    source = item.object(given[0])
    if given[0] == "podFieldRef":
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": source.text("path")}}}
    reference = {"name": source.text("name"), "key": source.text("key")}
    return {"name": name, "valueFrom": {_SOURCES[given[0]]: reference}}


def _pairs(body: Fields, name: str) -> dict[str, str]:
    made = {}
    for item in body.items(name):
        item.only("name", "value", "exclude")
        if not item.text("name"):
            item.wrong("name", "required", "needs a name.")
        made[item.text("name")] = item.text("value")
    return made


def _run(spec: Fields, framework: Framework) -> RunPolicy:
    least, most = _elastic(spec, framework)
    slots = spec.integer("slotsPerWorker", 1) or 1
    if slots != 1 and framework is not MPI:
        spec.wrong("slotsPerWorker", "unsupported", "only MPI workloads have slots.")
    backoff = spec.integer("backoffLimit")
    return RunPolicy(
        clean_pods=spec.choice("cleanPodPolicy", "None", "All", "Running"),
        backoff_limit=6 if backoff is None else backoff,
        ttl=spec.integer("autoDeletionTimeAfterCompletionSeconds"),
        grace=spec.integer("terminationGracePeriodSeconds"),
        priority=spec.choice("priorityClass", *PRIORITIES),
        preemptibility=spec.choice("preemptibility", "preemptible", "non-preemptible"),
        nproc=_nproc(spec, framework),
        min_replicas=least,
        max_replicas=most,
        slots=slots,
        pool=_pool(spec),
        inherit_env=spec.text("inheritEnv"),
    )


def _pool(spec: Fields) -> str:
    pools = spec.get("nodePools") or []
    if not isinstance(pools, list) or not all(isinstance(p, str) and _POOL.fullmatch(p) for p in pools):
        spec.wrong("nodePools", "format", "must be a list with the name of a node pool, a label's value.")
        return ""
    if len(pools) > 1:
        message = f"a workload lives in one node pool, and others are not tried yet; name one of {', '.join(pools)}."
        spec.wrong("nodePools", "max", message)
    return "" if pools in ([], ["default"]) else pools[0]


def _nproc(spec: Fields, framework: Framework) -> str:
    value = spec.get("nprocPerNode")
    if value is None:
        return ""
    if framework is not PYTORCH:
        spec.wrong("nprocPerNode", "unsupported", "only PyTorch workloads have processes per node.")
    if str(value) in ("auto", "cpu", "gpu") or (str(value).isdigit() and int(value) > 0):
        return str(value)
    spec.wrong("nprocPerNode", "options", f"must be a positive number, auto, cpu or gpu, but is {value!r}.")
    return ""


def _elastic(spec: Fields, framework: Framework) -> tuple[int | None, int | None]:
    least, most = spec.integer("minReplicas", 1), spec.integer("maxReplicas", 1)
    if (least or most) and framework is not PYTORCH:
        spec.wrong("minReplicas", "unsupported", "only PyTorch workloads are elastic.")
    if least and most and least > most:
        spec.wrong("maxReplicas", "min", f"must be no less than minReplicas ({least}), but is {most}.")
    return least, most
