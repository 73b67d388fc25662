"""The flags of `runai submit-dist FRAMEWORK` and of the older `submit-pytorch` and its like, as a table.

All of them are known (`surface` §2.3). Those whose effect is not built are refused with the sentence in `refuse`;
none is ignored.
"""

from __future__ import annotations

from rowlock.cli.context import DATA_DIR, PROJECT
from rowlock.cli.grammar import Flag

_FILES = "pods see this machine's file system: use a path of the host"
_USER = "pods run as the user who started the cluster"
_NETWORK = "pods are reached on this machine by their own ports"
_PLACEMENT = "pods cannot be placed by topology or taints yet"

_DISTRIBUTED = (
    Flag("--workers", "int", "worker pods, the master not counted", 1, value="N"),
    Flag("--clean-pod-policy", "Running|All|None", "which pods are removed when the job ends", "Running"),
    Flag("--master-args", "text", "arguments of the master only", value="ARGS"),
    Flag("--master-environment", "list", "variables of the master only; NAME=- takes one away", value="NAME=VALUE"),
    Flag("--master-extended-resource", "list", "extended resources of the master only", value="NAME=QUANTITY"),
    Flag("--master-no-pvcs", "switch", "", refuse=_FILES),
)
_NO_MASTER = Flag("--no-master", "switch", "no master pod: workers only")
_MASTER_GPU = Flag("--master-gpu", "float", "GPUs of the master (default: as the workers)", value="GPUS")
_ELASTIC = (
    Flag("--min-replicas", "int", "fewest pods an elastic job goes on with", value="N"),
    Flag("--max-replicas", "int", "most pods of an elastic job", value="N"),
)
_MPI = (
    Flag("--slots-per-worker", "int", "processes that a worker has room for", 1, value="N"),
    Flag("--processes", "int", "", refuse="say how many workers: --workers"),
)

_NAMING = (
    Flag("--name", "text", "the job's name", value="NAME"),
    Flag("--job-name-prefix", "text", "a name with the first free number behind it", value="PREFIX"),
    Flag("--template", "text", "", refuse="there are no templates yet"),
)
_CONTAINER = (
    Flag("-i --image", "text", "the image", value="IMAGE"),
    Flag("--image-pull-policy", "Always|IfNotPresent|Never", "when to pull the image"),
    Flag("--always-pull-image", "switch", "as --image-pull-policy Always"),
    Flag("--command", "switch", "what follows -- replaces the image's entrypoint"),
    Flag("--args", "list", "an argument (better: after --)", value="ARG"),
    Flag("-e --environment", "list", "an environment variable", value="NAME=VALUE"),
    Flag("--working-dir", "text", "where the command runs", value="DIR"),
    Flag("--stdin", "switch", "keep stdin open"),
    Flag("-t --tty", "switch", "allocate a terminal; needs --stdin"),
    Flag("-a --annotation", "list", "an annotation on the pods", value="NAME=VALUE"),
    Flag("-l --label", "list", "a label on the pods", value="NAME=VALUE"),
    Flag("--attach", "switch", "", refuse="follow the log instead: `runai logs -f JOB`"),
    Flag("--create-home-dir", "switch", "", refuse="pods use the home directory of whoever started the cluster"),
    Flag("--add-capability", "list", "", refuse=_USER),
    Flag("--git-sync", "text", "", refuse="clone before you submit: " + _FILES),
    Flag("--preferred-pod-topology-key", "text", "", refuse=_PLACEMENT),
    Flag("--required-pod-topology-key", "text", "", refuse=_PLACEMENT),
    Flag("--local-image", "switch", "", refuse="images are always local; leave it out"),
)
_RESOURCES = (
    Flag("-g --gpu", "float", "GPUs per pod; a fraction is a share of one", value="GPUS"),
    Flag("--gpu-memory", "text", "a share of a GPU by its memory, at least 100M", value="QUANTITY"),
    Flag("--mig-profile", "text", "", hidden="--mig", refuse="MIG is not used; ask for a share with -g 0.5"),
    Flag("--cpu", "float", "CPUs kept free for each pod (a request: it may use more)", value="CORES"),
    Flag("--cpu-limit", "float", "the most CPUs that a pod may use", value="CORES"),
    Flag("--memory", "text", "memory kept free for each pod (a request: it may use more)", value="QUANTITY"),
    Flag("--memory-limit", "text", "the most memory that a pod may use", value="QUANTITY"),
    Flag("--extended-resource", "list", "another resource", value="NAME=QUANTITY"),
    Flag("--large-shm", "switch", "a big /dev/shm"),
)
_LIFECYCLE = (
    Flag("--backoff-limit", "int", "failures until the job fails", 6, value="N", hidden="--backoffLimit"),
    Flag("--ttl-after-finish", "text", "delete the finished job after 5s, 2m, 3h", value="DURATION"),
    Flag("--preemptible", "switch", "may be stopped for others and resumed later"),
    Flag("--non-preemptible", "switch", "is never stopped for others; stays within the quota"),
    Flag("--node-pools", "list", "node pools, in order", value="NAME", hidden="--node-pool"),
    Flag("--node-type", "text", "only nodes of this type", value="TYPE"),
    Flag("--toleration", "list", "", refuse=_PLACEMENT),
    Flag("--dry-run", "switch", "print the objects and submit nothing"),
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
    Flag("--host-ipc", "switch", "", refuse="pods share this machine already; leave it out"),
    Flag("--host-network", "switch", "", refuse="pods have names and ports of their own; leave it out"),
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
