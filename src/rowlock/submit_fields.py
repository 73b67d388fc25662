"""The one table of the fields of a submit: their place in Run:ai's REST API, their types, and their flags.

Derived from it are the flags of `runai` in both generations, what they put into the request, their help, what REST
accepts and refuses, the flag named in a refusal, and the page of flags in the docs. A new field is a new row. It also defines how
the command lines and the Python client retry a submit, and how REST recognises a retry.
Literals only and the standard library: the command lines import it, and their start must stay fast.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

KEY_HEADER = "Idempotency-Key"
"""All attempts of one submit send the same value in this header, so that the server creates only one job."""
PAUSES_S = (0.5, 1.5, 4.0)
"""Seconds before the second attempt and each later one."""
UNDECIDED = (500, 503, 504)
"""Statuses after which the job may exist: the server failed, or the cluster did not answer it."""
HOST_NAMES = ("host", "rowlock.dev/host")
"""Values of `image` that mean the programs of the node's own machine; only rowlock's nodes know them."""


MAX_SHELL_ENVIRONMENT = 512 * 1024
"""The most bytes of names and values of the shell variables that are sent with a job; a Secret may have 1 MiB."""


class SubmitField(NamedTuple):
    """One field. `path`: where its value goes, below `spec` (several: the flag decides); "" = handled by the client.

    `kind` says what is written: text, words (shell-like), switch, int, float, quantity, duration, gpus, names, numbers,
    pairs (NAME=VALUE), variables, resources, a list of choices `A|B`, or items (`key=value,...`, by `ITEM_KEYS`).
    `v1`, `v2`: its spellings. `master`: its spellings for the master alone. `const`: what a switch stands for.
    `refuse`: why it is not done here.
    """

    path: str
    kind: str
    help: str
    v1: str = ""
    v2: str = ""
    master1: str = ""
    master2: str = ""
    frameworks: str = ""
    value: str = ""
    default1: Any = None
    default2: Any = None
    const: Any = None
    hidden: str = ""
    refuse: str = ""
    neutral: Any = None
    """For a refused field: a value without effect, which is accepted because Run:ai's own clients send it with every create."""

    def spellings(self, generation: int) -> str:
        return self.v1 if generation == 1 else self.v2

    def master_spellings(self, generation: int) -> str:
        return self.master1 if generation == 1 else self.master2


F = SubmitField
_HOME = "/root"
SSH_MOUNT = f"{_HOME}/.ssh"
"""The value that Run:ai's own client sends with every create."""

_NO_INGRESS = "this cluster has no ingress: reach a pod with `runai port-forward JOB --port LOCAL:REMOTE`"
_NO_MIG = (
    "GPUs are not partitioned here: ask for a share of one with -g 0.5 or --gpu-portion-request 0.5; on a real cluster that has MIG,"
    " with --extended-resource nvidia.com/mig-1g.5gb=1"
)
_MPI_SSH = "MPI pods of one machine need no ssh keys"
_ONE_POD_RUN = "a standard workload runs one pod once: submit it again to run it again"

SUBMIT_FIELDS: tuple[SubmitField, ...] = (
    # -------------------------------------------------- the workload
    F("", "text", "the workload's name", v1="--name", value="NAME"),
    F("", "text", "prefix of the job's name; the first free number is added", v1="--job-name-prefix", value="PREFIX"),
    F("", "text", "prefix of the workload's name; a random suffix is added", v2="--name-prefix", value="PREFIX"),
    F("", "text", "start from this template; flags beside it win", v1="--template", v2="--template", value="NAME"),
    F("distributedFramework", "text", "PyTorch, TF, MPI, XGBoost or JAX (default PyTorch)", v2="-f --framework",
      frameworks="any", value="FRAMEWORK"),
    F("category", "text", "the workload's category"),
    # -------------------------------------------------- distributed
    F("numWorkers", "int", "number of worker pods, without the master", v1="--workers", v2="--workers",
      frameworks="PyTorch TF MPI XGBoost JAX", value="N", default1=1),
    F("numWorkers", "int", "number of worker pods", v1="--processes", frameworks="MPI", value="N"),
    F("noMaster", "switch", "create no master pod, only workers", v1="--no-master", v2="--no-master",
      frameworks="PyTorch TF XGBoost"),
    F("noWorkers", "switch", "one pod, which is the master"),
    F("nprocPerNode", "text", "processes per pod"),
    F("minReplicas", "int", "minimum number of pods of an elastic job", v1="--min-replicas", v2="--min-replicas",
      frameworks="PyTorch", value="N"),
    F("maxReplicas", "int", "maximum number of pods of an elastic job", v1="--max-replicas", v2="--max-replicas",
      frameworks="PyTorch", value="N"),
    F("cleanPodPolicy", "Running|All|None", "which pods are deleted when the job ends", v1="--clean-pod-policy",
      v2="--clean-pod-policy", frameworks="PyTorch TF MPI XGBoost JAX", default1="Running"),
    F("slotsPerWorker", "int", "number of processes per worker", v1="--slots-per-worker", v2="--slots-per-worker",
      frameworks="MPI", value="N"),
    F("mpiLauncherCreationPolicy", "AtStartup|WaitForWorkersReady", "when the launcher is created",
      v2="--launcher-creation-policy", frameworks="MPI", neutral="AtStartup",
      refuse="the launcher is created together with the workers, and waits for them"),
    F("sshAuthMountPath", "text", "where the ssh keys are mounted", v2="--ssh-auth-mount-path", frameworks="MPI",
      value="DIR", neutral=SSH_MOUNT, refuse=_MPI_SSH),
    F("parallelism", "int", "pods at the same time", v1="--parallelism", v2="--parallelism", frameworks="Standard", value="N",
      neutral=1, refuse=_ONE_POD_RUN),
    F("completions", "int", "number of runs", v1="--completions", v2="--runs", frameworks="Standard", value="N", neutral=1,
      refuse=_ONE_POD_RUN),
    # -------------------------------------------------- the container
    F("priorityClass", "switch", "an interactive session: high priority, never preempted", v1="--interactive",
      frameworks="Standard", const="high"),
    F("", "switch", "a notebook", v1="--jupyter", frameworks="Standard",
      refuse="submit your Jupyter image with --command -- jupyter lab, and open it with `runai port-forward`"),
    F("", "switch", "a job that grows", v1="--elastic", frameworks="Standard",
      refuse="one pod does not grow: `runai submit-dist pytorch` has --min-replicas and --max-replicas"),
    F("", "switch", "an inference service", v1="--inference", frameworks="Standard",
      refuse="rowlock trains models and serves none"),
    F("image", "text", "the image", v1="-i --image", v2="-i --image", value="IMAGE"),
    F("imagePullPolicy", "Always|IfNotPresent|Never", "when to pull the image", v1="--image-pull-policy",
      v2="--image-pull-policy"),
    F("imagePullPolicy", "switch", "the same as --image-pull-policy Always", v1="--always-pull-image", const="Always"),
    F("imagePullPolicy", "switch", "the same as --image-pull-policy Never", v1="--local-image", const="Never"),
    F("imagePullSecrets", "own credentials", "pull images with this docker registry credential of yours (the project's are used anyway)",
      v2="--image-pull-my-credentials", value="NAME"),
    F("command", "switch", "the words after -- replace the image's entrypoint", v1="--command", v2="-c --command"),
    F("command", "words", "the entrypoint of the master alone, and its arguments", master2="--master-command",
      value="COMMAND"),
    F("args", "list", "an argument of the program (or write it after --)", v1="--args", value="ARG"),
    F("args", "words", "arguments of the master alone", master1="--master-args", master2="--master-args", value="ARGS"),
    F("environmentVariables", "variables", "an environment variable", v1="-e --environment",
      v2="-e --environment-variable", master1="--master-environment",
      master2="--master-environment-variable --master-environment", value="NAME=VALUE"),
    F("environmentVariables", "environment", "an environment (an asset), or a variable NAME=VALUE", v2="--environment",
      value="NAME"),
    F("environmentVariables", "secret variables", "a variable from a Secret's key", v2="--env-secret",
      value="NAME=SECRET,key=KEY"),
    F("environmentVariables", "field variables", "a variable from a field of the pod", v2="--env-pod-field-ref",
      value="NAME=FIELD"),
    F("environmentVariables", "credential variables", "a variable from a key of a credential of yours",
      v2="--env-my-credentials", value="NAME=CREDENTIAL,key=KEY"),
    F("workingDir", "text", "the directory in which the command runs", v1="--working-dir", v2="--working-dir", value="DIR"),
    F("stdin", "switch", "keep stdin open", v1="--stdin", v2="--stdin"),
    F("stdinOnce", "switch", "stdin ends with the first client that is attached"),
    F("tty", "switch", "allocate a terminal; needs --stdin", v1="-t --tty", v2="-t --tty"),
    F("", "switch", "wait until the job runs, and attach to it", v1="--attach", v2="--attach"),
    F("", "duration", "how long --attach waits for the job to run (default: for ever)", v2="--pod-running-timeout",
      value="DURATION"),
    F("", "duration", "how long to wait until the cluster has the workload", v2="--wait-for-submit", value="DURATION",
      default2="1m"),
    F("createHomeDir", "switch", "give each pod a home directory of its own", v1="--create-home-dir",
      v2="--create-home-dir"),
    F("annotations", "pairs", "an annotation on the pods", v1="-a --annotation", v2="--annotation", value="NAME=VALUE"),
    F("labels", "pairs", "a label on the pods", v1="-l --label", v2="--label", value="NAME=VALUE"),
    F("restartPolicy", "Always|OnFailure|Never", "when a container that ended is started again (default: the framework's)",
      v2="--restart-policy", master2="--master-restart-policy"),
    F("probes", "object", "when a pod counts as ready: readiness, a request to a port of it"),
    F("relatedUrls", "items", "links to show", refuse="no face of this cluster shows links"),
    # -------------------------------------------------- resources
    F("compute.gpuDevicesRequest compute.gpuPortionRequest", "gpus", "GPUs per pod; below 1, a share of one GPU",
      v1="-g --gpu", v2="-g --gpu-devices-request", master1="--master-gpu", master2="--master-gpu-devices-request",
      value="GPUS"),
    F("compute.gpuRequestType", "portion|memory|migProfile", "what a share of a GPU is given as",
      v2="--gpu-request-type"),
    F("compute.gpuPortionRequest", "float", "a share of each GPU, above 0 and no more than 1", v2="--gpu-portion-request",
      master2="--master-gpu-portion-request", value="SHARE"),
    F("compute.gpuPortionLimit", "float", "the largest share it may use; the same as the request",
      v2="--gpu-portion-limit", master2="--master-gpu-portion-limit", value="SHARE"),
    F("compute.gpuMemoryRequest", "quantity", "a share of a GPU, given as GPU memory (at least 100M)", v1="--gpu-memory",
      v2="--gpu-memory-request", value="QUANTITY"),
    F("compute.gpuMemoryLimit", "quantity", "the most GPU memory it may use; the same as the request",
      v2="--gpu-memory-limit", value="QUANTITY"),
    F("", "text", "a MIG profile", v1="--mig-profile", v2="--mig-profile", value="PROFILE", hidden="--mig", refuse=_NO_MIG),
    F("compute.cpuCoreRequest", "float", "CPUs requested for each pod (it may use more)", v1="--cpu",
      v2="--cpu-core-request", master2="--master-cpu-core-request", value="CORES"),
    F("compute.cpuCoreLimit", "float", "CPU limit of each pod", v1="--cpu-limit", v2="--cpu-core-limit",
      master2="--master-cpu-core-limit", value="CORES"),
    F("compute.cpuMemoryRequest", "quantity", "memory requested for each pod (it may use more)", v1="--memory",
      v2="--cpu-memory-request", master2="--master-cpu-memory-request", value="QUANTITY"),
    F("compute.cpuMemoryLimit", "quantity", "memory limit of each pod", v1="--memory-limit", v2="--cpu-memory-limit",
      master2="--master-cpu-memory-limit", value="QUANTITY"),
    F("compute.extendedResources", "resources", "another resource of each pod", v1="--extended-resource",
      v2="--extended-resource", master1="--master-extended-resource", master2="--master-extended-resource",
      value="NAME=QUANTITY"),
    F("compute.largeShmRequest", "switch", "a large /dev/shm", v1="--large-shm", v2="--large-shm"),
    # -------------------------------------------------- lifecycle
    F("backoffLimit", "int", "restarts of the job before it fails, however many ranks it has", v1="--backoff-limit", v2="--backoff-limit",
      value="N", default1=6, default2=6, hidden="--backoffLimit"),
    F("retryOn", "names", "only start the job again after these causes"),
    F("neverRetryOn", "names", "do not start the job again after these causes"),
    F("autoDeletionTimeAfterCompletionSeconds", "duration", "delete the finished job after this time: 5s, 2m, 3h",
      v1="--ttl-after-finish", v2="--auto-deletion-time-after-completion", value="DURATION"),
    F("terminationGracePeriodSeconds", "duration", "how long a pod may take to end (default 30s)",
      v2="--termination-grace-period", value="DURATION"),
    F("terminateAfterPreemption", "switch", "end when preempted", neutral=False,
      refuse="a preempted workload always goes back to the queue"),
    # -------------------------------------------------- scheduling
    F("priorityClass", "very-low|low|medium-low|medium|medium-high|high|very-high", "the priority within the project",
      v2="--priority"),
    F("preemptibility", "preemptible|non-preemptible", "whether it may be preempted, and resumes later",
      v2="--preemptibility"),
    F("preemptibility", "switch", "the job may be preempted, and resumes later", v1="--preemptible", const="preemptible"),
    F("preemptibility", "switch", "the job is never preempted, and must fit its project's quota", v1="--non-preemptible",
      const="non-preemptible"),
    F("nodePools", "names", "the node pool; only one is supported", v1="--node-pools", v2="--node-pools", value="NAME",
      hidden="--node-pool"),
    F("nodeType", "text", "run only on nodes of this type", v1="--node-type", v2="--node-type", value="TYPE"),
    F("nodeAffinityRequired", "excluded nodes", "do not run on this node", v2="--exclude-node", value="NODE"),
    F("podAffinity", "preferred topology", "place the pods on nodes with one value of this label, if possible",
      v1="--preferred-pod-topology-key", v2="--preferred-pod-topology-key", value="LABEL"),
    F("podAffinity", "required topology", "place the pods only on nodes with one value of this label",
      v1="--required-pod-topology-key", v2="--required-pod-topology-key", value="LABEL"),
    F("tolerations", "items", "tolerate a taint of nodes", v1="--toleration", v2="--toleration",
      value="operator=Equal|Exists,key=KEY,..."),
    # -------------------------------------------------- storage
    F("storage.hostPath", "volumes", "a directory of the node, or of an NFS server", v1="-v --volume",
      value="HOST:CONTAINER[:ro|rw][:NFS-SERVER]", hidden="--volumes"),
    F("storage.hostPath", "items", "a directory of the node, read-only unless readwrite", v2="--host-path",
      value="path=DIR,mount=DIR[,readwrite]"),
    F("storage.pvc", "claims", "a claim: NAME:PATH, or [CLASS]:SIZE:PATH for a new one", v1="--pvc", value="CLAIM"),
    F("storage.pvc", "items", "a claim that exists", v1="--existing-pvc", v2="--existing-pvc",
      value="claimname=NAME,path=DIR", hidden="--pvc-exists"),
    F("storage.pvc", "items", "a new claim", v1="--new-pvc", v2="--new-pvc", value="size=SIZE,path=DIR[,claimname=NAME]",
      hidden="--pvc-new"),
    F("storage.pvc", "switch", "mount no claims in the master", master1="--master-no-pvcs", master2="--master-no-pvcs"),
    F("storage.configMapVolume", "items", "a ConfigMap as files", v1="--configmap-volume", v2="--configmap-map-volume",
      value="name=NAME,path=DIR"),
    F("storage.secretVolume", "items", "a Secret as files", v2="--secret-volume", value="name=NAME,path=DIR"),
    F("storage.emptyDirVolume", "items", "a directory that goes with the pod", v2="--empty-dir-volume",
      value="path=DIR[,medium=Memory,size-limit=SIZE]"),
    F("storage.git", "items", "clone a repository into each pod before it starts", v1="--git-sync", v2="--git-sync",
      value="repository=URL,path=DIR[,branch=NAME]"),
    F("storage.nfs", "items", "an NFS export, read-only unless readwrite", v2="--nfs",
      value="path=DIR,server=HOST,mountpath=DIR[,readwrite]"),
    F("", "text", "the NFS server whose directories -v names", v1="--nfs-server", value="HOST"),
    F("storage.s3", "items", "copy a bucket into each pod before it starts; accesskey is the Secret of a credential",
      v1="--s3", v2="--s3", value="bucket=NAME,path=DIR[,accesskey=NAME,url=URL]"),
    F("storage.dataVolume", "list", "a data volume", v2="--datavolume", value="NAME",
      refuse="this cluster shares no volumes between projects: name a claim with --existing-pvc, or a --datasource"),
    F("", "switch", "mounts made on the node later appear in the pods", v1="--mount-propagation",
      refuse="the kubelet does not propagate mounts: mount before the job starts"),
    # -------------------------------------------------- assets
    F("", "text", "a compute resource; flags beside it win", v2="--compute", value="NAME"),
    F("", "list", "a data source", v2="--datasource", value="NAME"),
    # -------------------------------------------------- network
    F("ports", "ports", "a port of the container; with -s portforward it is forwarded until Ctrl-C", v1="--port",
      value="LOCAL:REMOTE"),
    F("", "portforward|nodeport|loadbalancer|ingress", "how --port is reached", v1="-s --service-type"),
    F("", "text", "the local address that --port listens on", v1="--address", value="ADDRESS", default1="localhost"),
    F("ports", "items", "a port of the container", v2="--port", value="container=PORT"),
    F("exposedUrls", "items", "an address in the browser", v2="--external-url", value="container=PORT,...",
      refuse=_NO_INGRESS),
    F("security.hostIpc", "switch", "share the node's IPC", v1="--host-ipc", v2="--host-ipc"),
    F("security.hostNetwork", "switch", "share the node's network", v1="--host-network", v2="--host-network"),
    # -------------------------------------------------- rights
    F("security.runAsUid security.runAsGid", "own user", "run as the user who submits (or as this user's number)",
      v1="--run-as-user", v2="--run-as-user", value="[UID]"),
    F("security.runAsUid", "int", "run as this user", v1="--run-as-uid", v2="--run-as-uid", value="UID"),
    F("security.runAsGid", "int", "run as this group", v1="--run-as-gid", v2="--run-as-gid", value="GID",
      hidden="--run-as-group"),
    F("security.supplementalGroups", "numbers", "further groups (comma separated)", v1="--supplemental-groups",
      v2="--supplemental-groups", value="GIDS"),
    F("security.uidGidSource", "fromTheImage|fromIdpToken|custom", "where user and group come from",
      v2="--user-group-source"),
    F("security.runAsNonRoot", "switch", "refuse to run as root", v2="--run-as-non-root"),
    F("security.capabilities", "names", "a Linux capability", v1="--add-capability", v2="--capability", value="NAME"),
    F("security.allowPrivilegeEscalation", "switch", "programs may gain rights", v1="--allow-privilege-escalation",
      v2="--allow-privilege-escalation"),
    F("security.privileged", "switch", "every right of the node", v2="--privileged"),
    F("security.seccompProfileType", "RuntimeDefault|Unconfined|Localhost", "which system calls are allowed",
      v2="--seccomp-profile"),
    F("security.readOnlyRootFilesystem", "switch", "the image's files cannot be changed"),
    F("", "text", "submit as another user", v1="-u --user", value="NAME",
      refuse="a job belongs to the user whose token submits it"),
    F("", "switch", "print the objects, submit nothing", v1="--dry-run", v2="--dry-run"),
)  # fmt: skip

ITEM_KEYS: dict[str, dict[str, str]] = {
    "--host-path": {"path": "path", "mount": "mountPath", "mountpath": "mountPath", "readwrite": "readOnly=false",
                    "readonly": "readOnly=true", "mount-propagation": "mountPropagation", "name": "name"},
    "--existing-pvc": {"claimname": "claimName", "name": "claimName", "path": "path", "readonly": "readOnly=true",
                       "ro": "readOnly=true", "": "existingPvc=true"},
    "--new-pvc": {"claimname": "claimName", "storageclass": "claimInfo.storageClass", "size": "claimInfo.size",
                  "path": "path", "accessmode-rwo": "claimInfo.accessModes.readWriteOnce=true",
                  "accessmode-rom": "claimInfo.accessModes.readOnlyMany=true",
                  "accessmode-rwm": "claimInfo.accessModes.readWriteMany=true", "ro": "readOnly=true",
                  "readonly": "readOnly=true", "ephemeral": "ephemeral=true", "": "existingPvc=false"},
    "--configmap-map-volume": {"name": "configMap", "path": "mountPath", "subpath": "subPath",
                               "default-mode": "defaultMode"},
    "--secret-volume": {"name": "secret", "path": "mountPath", "default-mode": "defaultMode"},
    "--empty-dir-volume": {"name": "name", "path": "path", "medium": "medium", "size-limit": "sizeLimit"},
    "--git-sync": {"name": "name", "repository": "repository", "source": "repository", "path": "path", "target": "path",
                   "branch": "branch", "rev": "revision", "secret": "secretRef.name", "username": "username",
                   "password": "password"},
    "--nfs": {"name": "name", "path": "path", "server": "server", "mountpath": "mountPath",
              "readwrite": "readOnly=false", "readonly": "readOnly=true"},
    "--s3": {"name": "name", "bucket": "bucket", "path": "path", "target": "path", "url": "url",
             "accesskey": "accessKeySecret", "key": "accessKeyId", "secret": "secretAccessKey"},
    "--toleration": {"name": "name", "operator": "operator", "key": "key", "value": "value", "effect": "effect",
                     "seconds": "seconds"},
    "--port": {"container": "container", "external": "external", "service-type": "serviceType", "name": "name"},
}  # fmt: skip
"""The keys of a flag's `key=value,...` → the field that they set; `field=x` is the meaning of a bare word, and the key ""
is set in every item."""
ITEM_KEYS["--configmap-volume"] = ITEM_KEYS["--configmap-map-volume"]

WHOLE_JOB = frozenset({
    "distributedFramework", "category", "numWorkers", "noMaster", "noWorkers", "nprocPerNode",
    "minReplicas", "maxReplicas", "cleanPodPolicy", "slotsPerWorker", "mpiLauncherCreationPolicy", "sshAuthMountPath",
    "backoffLimit", "retryOn", "neverRetryOn", "autoDeletionTimeAfterCompletionSeconds", "terminationGracePeriodSeconds",
    "terminateAfterPreemption", "priorityClass", "preemptibility", "nodePools", "podAffinity",
})  # fmt: skip
"""Fields of the whole job, which `masterSpec` does not have."""
DISTRIBUTED = frozenset({
    "distributedFramework", "numWorkers", "noMaster", "noWorkers", "minReplicas", "maxReplicas", "slotsPerWorker",
    "cleanPodPolicy", "mpiLauncherCreationPolicy", "sshAuthMountPath",
})  # fmt: skip
"""Fields of distributed workloads only; trainings and workspaces, which are one pod, do not have them."""
TOP_FIELDS = (
    "name", "useGivenNameAsPrefix", "projectId", "clusterId", "templateId", "spec", "masterSpecSameAsWorker",
    "masterSpec", "submitCommand", "shellEnvironment", "tags", "note", "favourite", "notify", "maxTimeSeconds", "after", "startAfter", "code",
    "assets",
)  # fmt: skip
CODE_FIELDS = (
    "repository", "commit", "changedFiles", "snapshot", "note", "python", "pythonVersion", "packages",
    "source", "copy", "workingDir", "pythonPath",
)  # fmt: skip
"""The fields of `code`: what a command line knows about the submitted code. All but `changedFiles` are text."""


def paths(field: SubmitField) -> list[str]:
    return field.path.split()


def field_names(parent: str = "", *, whole_job: bool | None = None) -> tuple[str, ...]:
    """The names of the supported fields directly below `parent` ("" = spec), each once, in the table's order."""
    prefix = f"{parent}." if parent else ""
    names: dict[str, None] = {}
    for row in SUBMIT_FIELDS:
        for path in paths(row):
            if not path.startswith(prefix) or row.refuse or path in TOP_FIELDS:
                continue
            name = path[len(prefix) :].partition(".")[0]
            if whole_job is None or (name in WHOLE_JOB) == whole_job:
                names[name] = None
    return tuple(names)


def refused_fields(parent: str = "") -> dict[str, tuple[Any, str]]:
    """The known but unsupported fields directly below `parent`: the value that is accepted without effect, and the reason."""
    prefix = f"{parent}." if parent else ""
    supported = field_names(parent)
    refused: dict[str, tuple[Any, str]] = {}
    for row in SUBMIT_FIELDS:
        for path in paths(row):
            name = path.removeprefix(prefix)
            if row.refuse and path.startswith(prefix) and "." not in name and name not in supported:
                refused.setdefault(name, (row.neutral, row.refuse))
    return refused


_ASSET_FLAGS = {
    "templateId": "--template", "assets.environment": "--environment", "assets.compute": "--compute",
    "assets.datasources": "--datasource",
}  # fmt: skip


def flag_names(generation: int, given: Collection[str] = ()) -> dict[str, str]:
    """Request field (`spec.…` or `masterSpec.…`) → its flag on the command line of a generation. If several flags set a field, those
    in `given` (such as `max_replicas`) are used, because the others were not typed."""
    names = {"name": "--name" if generation == 1 else "NAME", "projectId": "--project", **_ASSET_FLAGS}
    typed: dict[str, list[str]] = {}
    for row in sorted(SUBMIT_FIELDS, key=lambda row: len(paths(row))):  # prefer a flag that sets only this field
        spelling, master = row.spellings(generation), row.master_spellings(generation)
        for path in paths(row):
            if spelling and longest_name(spelling) in given:
                typed.setdefault(f"spec.{path}", []).append(", ".join(spelling.split()[:2]))
            if spelling:
                names.setdefault(f"spec.{path}", ", ".join(spelling.split()[:2]))
            if master:
                names.setdefault(f"masterSpec.{path}", master.split()[0])
    return names | {path: " or ".join(flags) for path, flags in typed.items()}


def longest_name(spellings: str) -> str:
    """`-g --gpu-devices-request` → `gpu_devices_request`: the name of the flag's value in a parsed command line."""
    return max(spellings.split(), key=len).lstrip("-").replace("-", "_")
