"""Parses the body of a submit into a typed `Submission`; every mistake is reported with its field, rule and fix.

`POST /api/v1/workloads/distributed` accepts Run:ai's DistributedCreationRequest and, as extensions, `spec.noMaster`,
`spec.noWorkers`, `spec.nprocPerNode`, `shellEnvironment`, `submitCommand`, `notify` and `code`. `command` and `args` may be a
shell-like string or, to avoid quoting, a list of words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rowlock import submit_fields
from rowlock.documents.words import split_words
from rowlock.objects import is_digits
from rowlock.training.framework import Framework
from rowlock.workloads import compute, frameworks, pod_options
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.compute import Compute
from rowlock.workloads.frameworks import MPI, PYTORCH
from rowlock.workloads.pod_options import USER_CREDENTIAL, PodSecurity, UserCredentialUse
from rowlock.workloads.run_options.notify import fields_without_address, hide
from rowlock.workloads.run_options.own_options import OwnOptions, parse_own_options
from rowlock.workloads.run_options.retries import parse_backoff_limit
from rowlock.workloads.storage.pod_storage import PodStorage, parse_storage

LONGEST_NAME = 49
PRIORITIES: dict[str, int] = {
    "very-low": 25, "low": 40, "medium-low": 65, "medium": 80, "medium-high": 90, "high": 125, "very-high": 150,
}  # fmt: skip
"""Run:ai's priority classes and their values. The default is `low`; below 100 a workload is preemptible."""
CATEGORIES = ("Build", "Train")

_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
MAX_CODE_FACTS = 16 * 1024
"""Most bytes of the values of `code`."""
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_POOL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """The pods of one role: the workers, or the master."""

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
    stdin_once: bool = False
    tty: bool = False
    storage: PodStorage = field(default_factory=PodStorage)
    security: PodSecurity = field(default_factory=PodSecurity)
    tolerations: tuple[dict[str, Any], ...] = ()
    node_affinity: Mapping[str, Any] = field(default_factory=dict)
    ports: tuple[int, ...] = ()
    readiness: Mapping[str, Any] = field(default_factory=dict)
    own_home: bool = False
    pull_secrets: tuple[str, ...] = ()
    pull_credentials: tuple[str, ...] = ()
    """The submitter's credentials for pulling images, in addition to `pull_secrets`."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of the whole job."""

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
    """The node pool; "" is the default pool, of nodes without the label."""
    category: str = ""
    """Run:ai's category; "" for Train."""
    required_topology: str = ""
    """The node label whose value must (`preferred_topology`: should) be the same for all pods."""
    preferred_topology: str = ""


@dataclass(frozen=True, slots=True)
class Submission:
    """A parsed request for a workload. `body` is the request itself, stored to be shown later."""

    name: str
    is_name_prefix: bool
    project: str
    cluster: str
    framework: Framework
    workers: int
    has_lead: bool
    worker: RoleSpec
    master: RoleSpec
    options: RunOptions
    submit_command: str
    body: Mapping[str, Any]
    assets: Mapping[str, Any] = field(default_factory=dict)
    """The template and assets whose values were merged in: `{"environment": {"id", "name"}, ...}`."""
    shell_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the submitting shell. Pods get them from a Secret; they are in no other object."""
    registries: tuple[str, ...] = ()
    """Secrets of the project's registry credentials, used by all its workloads."""
    own: OwnOptions = field(default_factory=OwnOptions)
    code: Mapping[str, Any] = field(default_factory=dict)
    """The submitter's description of the code: commit, snapshot id, interpreter (`submit_fields.CODE_FIELDS`)."""

    @property
    def pod_count(self) -> int:
        return self.workers + (1 if self.has_lead else 0)

    @property
    def user_credentials(self) -> list[UserCredentialUse]:
        """The uses of the submitter's credentials in its pods."""
        roles = (self.master, self.worker)
        return [use for role in roles for use in pod_options.credential_uses(role.env, role.pull_credentials)]

    @property
    def wants_gpu(self) -> bool:
        return any(role.compute.devices for role in (self.worker, self.master))


def parse_submission(body: Any) -> Submission:
    """Parse a request body. Raises BadRequest with one cause per mistake."""
    errors = BodyErrors()
    top = Fields("", body if isinstance(body, Mapping) else {}, errors)
    if not isinstance(body, Mapping):
        errors.add("body", "type", "must be a JSON object.")
    top.allow_only(*submit_fields.TOP_FIELDS)
    spec = top.object("spec")
    spec.allow_only(*submit_fields.field_names(), refused=submit_fields.refused_fields())
    framework = _parse_framework(spec)
    worker = parse_role(spec, top.text("name"))
    has_lead = _parse_has_lead(spec, framework)
    master = _parse_master(top, worker, framework)
    submission = Submission(
        name=_parse_name(top),
        is_name_prefix=top.flag("useGivenNameAsPrefix"),
        project=_parse_project(top),
        cluster=top.text("clusterId"),
        framework=framework,
        workers=_parse_workers(spec, has_lead),
        has_lead=has_lead,
        worker=worker,
        master=master,
        options=_parse_options(spec, framework),
        submit_command=hide(top.text("submitCommand"), top.object("notify").values),
        body=_shown_body(top),
        shell_environment=_parse_shell_environment(top),
        own=parse_own_options(top),
        code=_parse_code(top),
    )
    for name, value in (("templateId", top.text("templateId")), ("assets", top.object("assets").values)):
        if value:  # should have been expanded by `expand_submit`
            top.add_error(name, "unsupported", "cannot be named here. Write the values into spec.")
    errors.raise_if_any()
    return submission


def parse_standard_submission(body: Any, category: str) -> Submission:
    """Parse a TrainingCreationRequest (`category` Train) or WorkspaceCreationRequest (Build) into a workload of one pod: a
    master without workers. Raises BadRequest with one cause per mistake."""
    errors = BodyErrors()
    top = Fields("", body if isinstance(body, Mapping) else {}, errors)
    top.allow_only(*(name for name in submit_fields.TOP_FIELDS if not name.startswith("masterSpec")))
    spec = top.object("spec")
    supported = [name for name in submit_fields.field_names() if name not in submit_fields.DISTRIBUTED]
    refused = {k: v for k, v in submit_fields.refused_fields().items() if k not in submit_fields.DISTRIBUTED}
    spec.allow_only(*supported, refused=refused)
    spec.choice("category", category)
    errors.raise_if_any()
    if not isinstance(body, Mapping):
        return parse_submission(body)
    own = {"distributedFramework": PYTORCH.name, "noWorkers": True, "category": category}
    if category == "Build" and not spec.get("priorityClass"):
        own["priorityClass"] = "high"  # a user is waiting for it; `high` is also non-preemptible
    request = parse_submission({**body, "spec": {**spec.values, **own}})
    return replace(request, body=_shown_body(top))


def _shown_body(top: Fields) -> dict[str, Any]:
    """The request as stored and shown: without the shell's variables and addresses of notifications, which are secret, and without `code`,
    which is stored separately."""
    return {k: v for k, v in fields_without_address(top.values.items()) if k not in ("shellEnvironment", "code")}


def _parse_code(top: Fields) -> dict[str, Any]:
    code = top.object("code")
    code.allow_only(*submit_fields.CODE_FIELDS)
    facts = {
        name: code.text(name) for name in submit_fields.CODE_FIELDS if name in code.values and name != "changedFiles"
    }
    if sum(len(value.encode()) for value in facts.values()) > MAX_CODE_FACTS:
        top.add_error("code", "max", f"has more than {MAX_CODE_FACTS:,} bytes. Send ids, not contents.")
    changed = code.integer("changedFiles")
    return facts | ({} if changed is None else {"changedFiles": changed})


def _parse_shell_environment(top: Fields) -> dict[str, str]:
    shell = top.object("shellEnvironment")
    for name in shell.values:
        if not _SECRET_KEY.fullmatch(name):
            shell.add_error(name, "format", "is no name that a Secret can hold (letters, digits, '-', '_', '.').")
    environment = {name: shell.text(name) for name in shell.values}
    most = submit_fields.MAX_SHELL_ENVIRONMENT
    if sum(len(name) + len(value.encode()) for name, value in environment.items()) > most:
        top.add_error("shellEnvironment", "max", f"has more than {most:,} bytes. Send fewer variables.")
    return environment


def _parse_name(top: Fields) -> str:
    name = top.text("name")
    if not name:
        top.add_error("name", "required", "a workload needs a name.")
    elif len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        top.add_error("name", "format", name_rule(name))
    return name


def name_rule(name: str) -> str:
    """Error message for an invalid name, with a valid suggestion."""
    problem = f"has {len(name)} characters, {LONGEST_NAME} are allowed" if len(name) > LONGEST_NAME else ""
    if not _NAME.fullmatch(name):
        problem = "must consist of lower case alphanumeric characters or '-' and start with an alphabetic character"
    return f"{name!r} {problem}. Use {valid_name(name)!r}, for example."


def valid_name(name: str) -> str:
    """A valid workload name similar to this one."""
    valid = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not valid or not valid[0].isalpha():
        valid = f"job-{valid}".rstrip("-")
    return valid[:LONGEST_NAME].rstrip("-")


def _parse_project(top: Fields) -> str:
    value = top.get("projectId")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    text = top.text("projectId")
    if not text:
        top.add_error("projectId", "required", "a project is needed: GET /api/v1/org-unit/projects lists them.")
    return text


def _parse_framework(spec: Fields) -> Framework:
    """The framework with exactly this name, because the answer repeats it and Run:ai's clients accept only these names."""
    word = spec.text("distributedFramework")
    by_name = {framework.name: framework for framework in frameworks.FRAMEWORKS}
    if spec.get("distributedFramework") == word and word not in by_name:
        nearest = f"{word!r} is most similar to {frameworks.nearest_name(word)}" if word else 'but is ""'
        spec.add_error("distributedFramework", "options", f"must be one of {', '.join(by_name)}; {nearest}.")
    return by_name.get(word, PYTORCH)


def _parse_has_lead(spec: Fields, framework: Framework) -> bool:
    no_master = spec.flag("noMaster")
    if no_master and framework.needs_lead:
        message = f"a {framework.name} job needs its {framework.lead_role.lower()}. Leave noMaster out."
        spec.add_error("noMaster", "unsupported", message)
    return bool(framework.lead_role) and not no_master


def _parse_workers(spec: Fields, has_lead: bool) -> int:
    number = spec.integer("numWorkers", 1)
    if not spec.flag("noWorkers"):
        return number or 1
    if not has_lead or number is not None:
        spec.add_error("noWorkers", "exclusive", "a workload has a master, workers, or both; leave numWorkers out.")
    return 0


def _parse_master(top: Fields, worker: RoleSpec, framework: Framework) -> RoleSpec:
    """The master's role: the worker's, overridden by `masterSpec`. MPI's launcher only starts the ranks, so by default it
    gets no GPUs."""
    body = top.object("masterSpec")
    body.allow_only(*submit_fields.field_names(whole_job=False), refused=submit_fields.refused_fields())
    if top.flag("masterSpecSameAsWorker") and top.get("masterSpec") is not None:
        top.add_error("masterSpec", "exclusive", "must be absent when masterSpecSameAsWorker is true.")
    master = parse_role(body, top.text("name"), needs_image=False)
    overrides = {name: getattr(master, name) for name, key in _MASTER_FIELDS if body.get(key) is not None}
    if framework is MPI and "compute" not in overrides:
        worker_compute = worker.compute
        overrides["compute"] = Compute(
            worker_compute.requests, worker_compute.limits, large_shm=worker_compute.large_shm
        )
    return replace(worker, **overrides)


_MASTER_FIELDS = (
    ("image", "image"), ("pull", "imagePullPolicy"), ("command", "command"), ("args", "args"),
    ("env", "environmentVariables"), ("working_dir", "workingDir"), ("compute", "compute"), ("labels", "labels"),
    ("annotations", "annotations"), ("node_type", "nodeType"), ("restart", "restartPolicy"), ("stdin", "stdin"),
    ("stdin_once", "stdinOnce"), ("tty", "tty"), ("storage", "storage"), ("security", "security"), ("tolerations", "tolerations"),
    ("node_affinity", "nodeAffinityRequired"), ("ports", "ports"), ("readiness", "probes"), ("own_home", "createHomeDir"),
    ("pull_secrets", "imagePullSecrets"), ("pull_credentials", "imagePullSecrets"),
)  # fmt: skip


def parse_role(body: Fields, workload: str, *, needs_image: bool = True) -> RoleSpec:
    """Parse the role in a `spec` or `masterSpec`; mistakes are added to its errors."""
    image = body.text("image")
    if needs_image and not image.strip("/"):
        body.add_error(
            "image", "required", 'an image is needed; "rowlock.dev/host" means the programs of this machine.'
        )
    pull_secrets, pull_credentials = pod_options.parse_pull_secrets(body)
    return RoleSpec(
        image=image,
        pull=body.choice("imagePullPolicy", "Always", "IfNotPresent", "Never"),
        command=_parse_words(body, "command"),
        args=_parse_words(body, "args"),
        env=_parse_variables(body),
        working_dir=body.text("workingDir"),
        compute=compute.parse_compute(body.object("compute")),
        labels=_parse_pairs(body, "labels"),
        annotations=_parse_pairs(body, "annotations"),
        node_type=body.text("nodeType"),
        restart=body.choice("restartPolicy", "Always", "Never", "OnFailure"),
        stdin=body.flag("stdin"),
        stdin_once=body.flag("stdinOnce"),
        tty=body.flag("tty"),
        storage=parse_storage(body.object("storage"), workload),
        security=pod_options.parse_security(body.object("security")),
        tolerations=pod_options.parse_tolerations(body),
        node_affinity=pod_options.parse_node_affinity(body),
        ports=pod_options.parse_ports(body),
        readiness=pod_options.parse_readiness(body),
        own_home=body.flag("createHomeDir"),
        pull_secrets=pull_secrets,
        pull_credentials=pull_credentials,
    )


def _parse_words(body: Fields, name: str) -> tuple[str, ...]:
    if (words := body.texts(name)) is not None:
        return words
    text = body.text(name)
    try:
        return split_words(text)
    except ValueError as error:
        body.add_error(name, "format", f"cannot be split into words: {error}.")
        return ()


_SOURCES = {
    "podFieldRef": "fieldRef", "secret": "secretKeyRef", "configMap": "configMapKeyRef", USER_CREDENTIAL: USER_CREDENTIAL,
}  # fmt: skip


def _parse_variables(body: Fields) -> tuple[dict[str, Any], ...]:
    variables: dict[str, dict[str, Any]] = {}
    for item in body.items("environmentVariables"):
        variable = _parse_variable(item)
        if variable and variable["name"] in variables:
            rule = f"sets {variable['name']} a second time, and a variable has one value. Set it once."
            item.add_error("name", "unique", rule)
        elif variable:
            variables[variable["name"]] = variable
    return tuple(variables.values())


def _parse_variable(item: Fields) -> dict[str, Any] | None:
    item.allow_only("name", "value", *_SOURCES, "exclude", "description")
    name = item.text("name")
    if not _ENV_NAME.fullmatch(name):
        item.add_error("name", "format", f"{name!r} is not the name of an environment variable.")
        return None
    sources = [source for source in _SOURCES if item.get(source) is not None]
    if len(sources) + (item.get("value") is not None) > 1:
        item.add_error("value", "exclusive", f"{name} may have one of value, {', '.join(_SOURCES)}.")
        return None
    if not sources:
        return {"name": name, "value": item.text("value")}
    source = item.object(sources[0])
    if sources[0] == "podFieldRef":
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": source.text("path")}}}
    reference = {"name": source.text("name"), "key": source.text("key")}
    if sources[0] == USER_CREDENTIAL and not all(reference.values()):
        source.add_error("key", "required", "needs the name of a credential of yours, and a key of it.")
    return {"name": name, "valueFrom": {_SOURCES[sources[0]]: reference}}


def _parse_pairs(body: Fields, name: str) -> dict[str, str]:
    pairs = {}
    for item in body.items(name):
        item.allow_only("name", "value", "exclude")
        if not item.text("name"):
            item.add_error("name", "required", "needs a name.")
        pairs[item.text("name")] = item.text("value")
    return pairs


def _parse_options(spec: Fields, framework: Framework) -> RunOptions:
    min_replicas, max_replicas = _parse_elastic(spec, framework)
    slots = spec.integer("slotsPerWorker", 1) or 1
    if slots != 1 and framework is not MPI:
        spec.add_error("slotsPerWorker", "unsupported", "only MPI workloads have slots.")
    required_topology, preferred_topology = pod_options.parse_pod_affinity(spec)
    return RunOptions(
        clean_pods=spec.choice("cleanPodPolicy", "None", "All", "Running"),
        backoff_limit=parse_backoff_limit(spec),
        ttl=spec.integer("autoDeletionTimeAfterCompletionSeconds"),
        grace=spec.integer("terminationGracePeriodSeconds"),
        priority=spec.choice("priorityClass", *PRIORITIES),
        preemptibility=spec.choice("preemptibility", "preemptible", "non-preemptible"),
        nproc=_parse_nproc(spec, framework),
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        slots=slots,
        pool=_parse_pool(spec),
        category=spec.choice("category", *CATEGORIES).replace("Train", ""),
        required_topology=required_topology,
        preferred_topology=preferred_topology,
    )


def _parse_pool(spec: Fields) -> str:
    pools = [] if spec.get("nodePools") is None else spec.get("nodePools")
    if not isinstance(pools, list) or not all(isinstance(p, str) and _POOL.fullmatch(p) for p in pools):
        spec.add_error("nodePools", "format", "must be a list with the name of one node pool (a label value).")
        return ""
    if len(pools) > 1:
        message = f"a workload runs in one node pool; a list to try in order is not supported yet. Name one of {', '.join(pools)}."
        spec.add_error("nodePools", "max", message)
    return "" if pools in ([], ["default"]) else pools[0]


def _parse_nproc(spec: Fields, framework: Framework) -> str:
    value = spec.get("nprocPerNode")
    if value is None:
        return ""
    if framework is not PYTORCH:
        spec.add_error("nprocPerNode", "unsupported", "only PyTorch workloads have processes per node.")
    if str(value) in ("auto", "cpu", "gpu") or (is_digits(str(value)) and int(value) > 0):
        return str(value)
    spec.add_error("nprocPerNode", "options", f"must be a positive number, auto, cpu or gpu, but is {value!r}.")
    return ""


def _parse_elastic(spec: Fields, framework: Framework) -> tuple[int | None, int | None]:
    min_replicas, max_replicas = spec.integer("minReplicas", 1), spec.integer("maxReplicas", 1)
    if (min_replicas or max_replicas) and framework is not PYTORCH:
        spec.add_error(
            "minReplicas" if min_replicas else "maxReplicas", "unsupported", "only PyTorch workloads are elastic."
        )
    if min_replicas and max_replicas and min_replicas > max_replicas:
        spec.add_error(
            "maxReplicas", "min", f"must be no less than minReplicas ({min_replicas}), but is {max_replicas}."
        )
    return min_replicas, max_replicas
