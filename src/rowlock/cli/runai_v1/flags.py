"""The flags of `runai submit-dist FRAMEWORK` and of the older `submit-pytorch` and its like, as a table.

The table has every flag of Run:ai. A flag that rowlock does not support is refused with the sentence in `refuse`;
none is ignored.
"""

from __future__ import annotations

from rowlock.cli.context import DATA_DIR, PROJECT
from rowlock.cli.grammar import Flag

_FILES = "process pods see this machine's files; for volumes, submit a manifest with kubectl"
_USER = "pods run as the user who started the cluster; use securityContext in a manifest"
_NETWORK = "reach a pod with `runai port-forward JOB --port LOCAL:REMOTE`"
_PLACEMENT = "set it in a manifest and submit that with kubectl"

_DISTRIBUTED = (
    Flag("--workers", "int", "number of worker pods, without the master", 1, value="N"),
    Flag("--clean-pod-policy", "Running|All|None", "which pods are deleted when the job ends", "Running"),
    Flag("--master-args", "text", "arguments of the master only", value="ARGS"),
    Flag("--master-environment", "list", "variables of the master only; NAME=- removes one", value="NAME=VALUE"),
    Flag("--master-extended-resource", "list", "extended resources of the master only", value="NAME=QUANTITY"),
    Flag("--master-no-pvcs", "switch", "", refuse=_FILES),
)
_NO_MASTER = Flag("--no-master", "switch", "create no master pod, only workers")
_MASTER_GPU = Flag("--master-gpu", "float", "GPUs of the master (default: the same as a worker)", value="GPUS")
_ELASTIC = (
    Flag("--min-replicas", "int", "minimum number of pods of an elastic job", value="N"),
    Flag("--max-replicas", "int", "maximum number of pods of an elastic job", value="N"),
)
_MPI = (
    Flag("--slots-per-worker", "int", "number of processes per worker", 1, value="N"),
    Flag("--processes", "int", "", refuse="use --workers"),
)

_NAMING = (
    Flag("--name", "text", "the job's name", value="NAME"),
    Flag("--job-name-prefix", "text", "prefix of the job's name; the first free number is added", value="PREFIX"),
    Flag("--template", "text", "", refuse="write the values as flags"),
)
_CONTAINER = (
    Flag("-i --image", "text", "the image", value="IMAGE"),
    Flag("--image-pull-policy", "Always|IfNotPresent|Never", "when to pull the image"),
    Flag("--always-pull-image", "switch", "the same as --image-pull-policy Always"),
    Flag("--command", "switch", "the words after -- replace the image's entrypoint"),
    Flag("--args", "list", "an argument of the program (or write it after --)", value="ARG"),
    Flag("-e --environment", "list", "an environment variable", value="NAME=VALUE"),
    Flag("--working-dir", "text", "the directory in which the command runs", value="DIR"),
    Flag("--stdin", "switch", "keep stdin open"),
    Flag("-t --tty", "switch", "allocate a terminal; needs --stdin"),
    Flag("-a --annotation", "list", "an annotation on the pods", value="NAME=VALUE"),
    Flag("-l --label", "list", "a label on the pods", value="NAME=VALUE"),
    Flag("--attach", "switch", "", refuse="follow the log instead: `runai logs -f JOB`"),
    Flag("--create-home-dir", "switch", "", refuse="pods use the home directory of the user who started the cluster"),
    Flag("--add-capability", "list", "", refuse=_USER),
    Flag(
        "--git-sync", "text", "", refuse="clone the repository before you submit: process pods see this machine's files"
    ),
    Flag("--preferred-pod-topology-key", "text", "", refuse=_PLACEMENT),
    Flag("--required-pod-topology-key", "text", "", refuse=_PLACEMENT),
    Flag("--local-image", "switch", "", refuse="an image that this machine has is always used; leave the flag out"),
)
_RESOURCES = (
    Flag("-g --gpu", "float", "GPUs per pod; below 1, a fraction of one GPU", value="GPUS"),
    Flag("--gpu-memory", "text", "a fraction of a GPU, given as GPU memory (at least 100M)", value="QUANTITY"),
    Flag("--mig-profile", "text", "", hidden="--mig", refuse="MIG is not supported; ask for a fraction with -g 0.5"),
    Flag("--cpu", "float", "CPUs requested for each pod (it may use more)", value="CORES"),
    Flag("--cpu-limit", "float", "CPU limit of each pod", value="CORES"),
    Flag("--memory", "text", "memory requested for each pod (it may use more)", value="QUANTITY"),
    Flag("--memory-limit", "text", "memory limit of each pod", value="QUANTITY"),
    Flag("--extended-resource", "list", "another resource of each pod", value="NAME=QUANTITY"),
    Flag("--large-shm", "switch", "a large /dev/shm"),
)
_LIFECYCLE = (
    Flag("--backoff-limit", "int", "the job fails after this many failures", 6, value="N", hidden="--backoffLimit"),
    Flag("--ttl-after-finish", "text", "delete the finished job after this time: 5s, 2m, 3h", value="DURATION"),
    Flag("--preemptible", "switch", "the job may be preempted, and resumes later"),
    Flag("--non-preemptible", "switch", "the job is never preempted, and must fit its project's quota"),
    Flag("--node-pools", "list", "the node pool; only one is supported", value="NAME", hidden="--node-pool"),
    Flag("--node-type", "text", "run only on nodes of this type", value="TYPE"),
    Flag("--toleration", "list", "", refuse=_PLACEMENT),
    Flag("--dry-run", "switch", "print the objects, submit nothing"),
    Flag("-u --user", "text", "", refuse=_USER),
)
_VOLUMES = (
    "-v --volume", "--volumes", "--nfs-server", "--pvc", "--pvc-exists", "--existing-pvc", "--pvc-new", "--new-pvc",
    "--s3", "--configmap-volume",
)  # fmt: skip
_STORAGE = (
    *(Flag(names, "list", "", refuse=_FILES) for names in _VOLUMES),
    Flag("--mount-propagation", "switch", "", refuse=_FILES),
)
_ACCESS = (
    Flag("--host-ipc", "switch", "", refuse="process pods share this machine's IPC; leave the flag out"),
    Flag("--host-network", "switch", "", refuse="pods have names and ports of their own; leave the flag out"),
    Flag("--port", "list", "", refuse=_NETWORK),
    Flag("-s --service-type", "text", "", refuse=_NETWORK),
    Flag("--address", "text", "", refuse=_NETWORK),
    Flag("--run-as-user", "switch", "", refuse=_USER),
    Flag("--run-as-uid", "text", "", refuse=_USER),
    Flag("--run-as-gid", "text", "", refuse=_USER),
    Flag("--supplemental-groups", "text", "", refuse=_USER),
    Flag("--allow-privilege-escalation", "switch", "", refuse=_USER),
)

_ALL = (
    *_NAMING, *_CONTAINER, *_RESOURCES, *_DISTRIBUTED, *_LIFECYCLE, *_STORAGE, *_ACCESS, PROJECT, DATA_DIR,
)  # fmt: skip
PYTORCH = (*_ALL, _NO_MASTER, _MASTER_GPU, *_ELASTIC)
TF = (*_ALL, _NO_MASTER, _MASTER_GPU)
XGBOOST = (*_ALL, _NO_MASTER._replace(refuse="an XGBoost job needs its master"), _MASTER_GPU)
MPI = (*_ALL, *_MPI)
