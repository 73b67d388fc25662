"""`rowlock`'s commands, as a table. Verbs live in the modules that `run` names."""

from __future__ import annotations

from rowlock.cli import exec_flags
from rowlock.cli.context import DATA_DIR, JSON, PROJECT
from rowlock.cli.grammar import Command, Flag, Group

_YES = Flag("-y --yes", "switch", "do not ask")
_MACHINE_FLAGS = (
    Flag("--nodes", "int", "how many nodes the machine is divided into", 1, value="N"),
    Flag("--gpus-per-node", "int", "real GPUs per node (default: all, divided)", value="G"),
    Flag("--simulated-gpus", "int", "pretend GPUs per node, for rehearsals", value="G"),
    Flag("--cpus-per-node", "int", "CPUs per node (default: all, divided)", value="C"),
    Flag("--port", "int", "the HTTPS port on 127.0.0.1 (default: a free one, kept)", value="P"),
    Flag("--bind", "text", "listen on this address too, for others; needs --users", value="ADDRESS"),
    Flag("--users", "text", 'who may come in: a file (mode 0600) of lines token,user,uid,"group,group"', value="FILE"),
    Flag("--tls-san", "text", "more names for the server's certificate (comma separated)", value="NAMES"),
    Flag("--network", "auto|namespaces|rewrite", "how pods reach each other", "auto"),
    Flag(
        "--runtime",
        "auto|process|container",
        "pods in Docker or Podman: where it has their image, never, always",
        "auto",
    ),
    Flag("--warm-start", "auto|off", "fork programs that import torch from a process that has done so", "auto"),
    Flag("--without", "text", "leave out: kubelet, scheduler (comma separated)", value="LIST"),
    Flag("--half-life", "text", "time-based fair share: what a project used so long ago counts half", value="DURATION"),
    Flag("--log-limit", "text", "how much of a container's log is kept, the newest part", "50Mi", value="SIZE"),
    Flag("--keep-checkpoints", "text", "how long the checkpoints of a deleted job are kept", "7d", value="DURATION"),
    Flag("--parity", "default|strict|fixed", "job operators: like Kubeflow's, to the letter, or mended", "default"),
    Flag("--pretend-nodes", "int", "nodes that run nothing, for trying the scheduler", value="N"),
)

UP = Command("up", "Start the cluster of the data directory.", "commands.cluster:up", flags=(
    Flag("-d --detach", "switch", "return when it is ready; the server goes on in the background"),
    *_MACHINE_FLAGS, DATA_DIR, JSON,
))  # fmt: skip
DOWN = Command("down", "Stop the cluster; running jobs are stopped with it.", "commands.cluster:down", flags=(
    Flag("--keep-jobs", "switch", "leave running pods alone: the next `rowlock up` finds them again"),
    Flag("--stop-jobs", "switch", "stop running pods without asking", hidden="--all"),
    Flag("--timeout", "text", "how long to wait for the server to end", "60s", value="DURATION"),
    _YES, DATA_DIR,
))  # fmt: skip
STATUS = Command(
    "status", "Show whether a server runs, where, and what it holds.", "commands.cluster:status", flags=(DATA_DIR, JSON)
)
KUBECONFIG = Command("kubeconfig", "Print the kubeconfig for kubectl.", "commands.cluster:kubeconfig", flags=(
    Flag("--user", "text", "for this user of the server's --users file, on any machine", value="NAME"),
    Flag("--path", "switch", "print only the file's path: export KUBECONFIG=$(rowlock kubeconfig --path)"),
    DATA_DIR,
))  # fmt: skip
RUN = Command(
    "run", "Run a command as a distributed PyTorch job and follow it.", "commands.run:run", "", (
        Flag("-n --nnodes", "int", "pods: one master and N-1 workers", 1, value="N"),
        Flag("--nproc-per-node", "int", "processes per pod; above 1 torchrun starts them", 1, value="P",
             hidden="--nproc_per_node"),
        Flag("-g --gpu", "float", "GPUs per pod; a fraction is a share of one", value="G", hidden="--gpus"),
        Flag("--cpu", "float", "CPUs kept free for each pod (a request: it may use more)", value="C"),
        Flag("--memory", "text", "memory kept free for each pod (a request: it may use more), for example 2Gi",
             value="QUANTITY"),
        Flag("--name", "text", "the job's name (default: from the script's)", value="NAME"),
        Flag("-e --env", "list", "NAME=VALUE, or NAME to pass your own value on", value="NAME[=VALUE]"),
        Flag("--clean-env", "switch", "pods get only --env and a minimal environment, not the cluster's and your PATH"),
        Flag("-i --image", "text", "the image to run in", "rowlock.dev/host", value="IMAGE"),
        Flag("--working-dir", "text", "where to run (default: here)", value="DIR"),
        Flag("--backoff-limit", "int", "restarts before the job fails", 0, value="N"),
        Flag("--simulated-gpus", "int", "when a cluster must be started: pretend GPUs per node", value="G"),
        Flag("-d --detach", "switch", "submit and return"),
        Flag("--rm", "switch", "delete the job when it is over"),
        PROJECT, DATA_DIR,
    ), "COMMAND...", eager=True,
)  # fmt: skip

LIST = Command("list", "List jobs and why they wait.", "commands.jobs:index", flags=(
    Flag("-A --all-projects", "switch", "of all projects"),
    Flag("--phase", "text", "only jobs in this phase", value="PHASE"),
    PROJECT, DATA_DIR, JSON,
), aliases="ls ps")  # fmt: skip
DESCRIBE = Command("describe", "Show a job: its phase, pods, reasons and events.", "commands.jobs:describe", "JOB",
                   (PROJECT, DATA_DIR, JSON))  # fmt: skip
LOGS = Command("logs", "Print a job's log: all ranks merged, or one pod's.", "commands.logs:logs", "JOB", (
    Flag("--rank", "int", "only this rank", value="N"),
    Flag("--pod", "text", "only this pod (its name, or for example master-0 or worker-1)", value="POD"),
    Flag("-f --follow", "switch", "go on until the job is over"),
    Flag("-t --tail", "int", "only the last N lines of each pod", value="N"),
    Flag("--since", "text", "only what is newer, for example 5m", value="DURATION"),
    Flag("--timestamps", "switch", "begin every line with its time"),
    Flag("--previous", "switch", "the log before the last restart (with --rank or --pod)"),
    PROJECT, DATA_DIR,
))  # fmt: skip
_POD_FLAGS = (
    Flag("--pod", "text", "this pod (its name, or for example worker-1; default: the first rank's)", value="POD"),
    Flag("--rank", "int", "the pod that is this rank", value="N"),
    exec_flags.CONTAINER,
    PROJECT, DATA_DIR,
)  # fmt: skip
EXEC = Command("exec", "Run a command in a job's pod, or in the pod of this name.", "exec_commands:exec_", "JOB [COMMAND...]", (
    *exec_flags.EXEC,
    *_POD_FLAGS,
), "COMMAND...")  # fmt: skip
ATTACH = Command("attach", "Join the program of a job's pod.", "exec_commands:attach", "JOB", (
    *exec_flags.ATTACH,
    *_POD_FLAGS,
))  # fmt: skip
PORT_FORWARD = Command("port-forward", "Let ports of this machine lead into a job's pod.", "exec_commands:port_forward",
                       "JOB [PORTS...]", (
    *exec_flags.PORT_FORWARD,
    *_POD_FLAGS,
))  # fmt: skip
WAIT = Command("wait", "Wait for a job. Exit code 0 when it came to what is waited for, else 1.", "commands.jobs:wait", "JOB", (
    Flag("--for", "completed|running|failed|deleted", "what to wait for", "completed"),
    Flag("--timeout", "text", "how long", value="DURATION"),
    PROJECT, DATA_DIR, JSON,
))  # fmt: skip
_COMMON_FLAGS = (PROJECT, DATA_DIR, JSON)
DELETE = Command("delete", "Delete jobs; running ones are stopped.", "commands.jobs:delete", "JOB...", (
    Flag("-A --all", "switch", "every job of the project"), _YES, *_COMMON_FLAGS,
), aliases="rm")  # fmt: skip
SUSPEND = Command("suspend", "Stop a job's pods and keep the job.", "commands.jobs:suspend", "JOB...", _COMMON_FLAGS)
RESUME = Command("resume", "Start a suspended job again.", "commands.jobs:resume", "JOB...", _COMMON_FLAGS)
EXPLAIN = Command("explain", "Say why a job stands where it stands, with numbers.", "commands.jobs:explain", "[JOB]", (
    Flag("--what-if", "switch", "instead: would the job in --file start now? nothing is written"),
    Flag("-f --file", "text", "with --what-if: the manifest, - for stdin", value="FILE"),
    *_COMMON_FLAGS,
))  # fmt: skip
CHECK = Command("check", "Say whether a manifest would be admitted, and what in it will surprise.", "commands.check:check", flags=(
    Flag("-f --file", "text", "the manifest, - for stdin", value="FILE"),
    *_COMMON_FLAGS,
))  # fmt: skip
WHY = Command("why", "Say in one sentence what happened to a job: who failed first, who keeps whom waiting.",
              "commands.why:why", "JOB", (
    Flag("--stacks", "switch", "show where every running rank stands"),
    *_COMMON_FLAGS,
))  # fmt: skip
SCHEDULER = Group("scheduler", "The scheduler: what it sees, and what it would decide.", (
    Command("snapshot", "Print what the scheduler plans from, as JSON: no secrets, no environment.",
            "commands.scheduler:snapshot", flags=(
        Flag("-o --output", "text", "write it to a file", value="FILE"), DATA_DIR,
    )),
    Command("replay", "Run the real planner on a snapshot, without a server.", "commands.scheduler:replay", "FILE", (JSON,)),
))  # fmt: skip
SIMULATE = Command(
    "simulate", "Play a trace of jobs on pretend nodes with the real planner: how full, how long, how fair.",
    "commands.scheduler:simulate", "[TRACE]", (
        Flag("--nodes", "int", "nodes of the simulated cluster", 1, value="N"),
        Flag("--gpus", "int", "GPUs per node", 8, value="G"),
        Flag("--generate", "text", "make the trace: jobs=1000,seed=1,projects=4,load=1.2", value="WHAT"),
        Flag("--grace", "text", "how long an evicted pod takes to leave", "10s", value="DURATION"),
        Flag("--half-life", "text", "time-based fair share: what was used so long ago counts half", value="DURATION"),
        Flag("--reserve-after", "text", "nodes are kept for a big gang that waited so long; 0 = never", "5m",
             value="DURATION"),
        Flag("--svg", "text", "draw it: GPUs over time by project, and the queue", value="FILE"),
        JSON,
    ),
)  # fmt: skip
DOCTOR = Command("doctor", "Look at this machine: what is there, what is missing, how to fix it.", "commands.doctor:doctor",
                 flags=(DATA_DIR, JSON))  # fmt: skip

_GPUS = Flag("--gpus", "float", "GPUs that the project is entitled to (default: no bound)", value="Q")
PROJECTS = Group("project", "Projects: a namespace and a queue each.", (
    Command("create", "Create a project.", "commands.projects:create", "NAME", (_GPUS, DATA_DIR, JSON)),
    Command("list", "List projects, their quotas and what they use.", "commands.projects:index", flags=(DATA_DIR, JSON), aliases="ls"),
    Command("set", "Select the project for `rowlock` and `runai`.", "commands.projects:select", "NAME", (DATA_DIR,)),
    Command("update", "Change a project's quota.", "commands.projects:update", "NAME", (_GPUS, DATA_DIR, JSON)),
    Command("delete", "Delete a project without unfinished jobs.", "commands.projects:delete", "NAME", (_YES, DATA_DIR)),
), aliases="projects")  # fmt: skip

BUILD = Command("build", "Make an image from a directory with a Dockerfile.", "commands.images:build", "DIR", (
    Flag("-t --tag", "text", "the image's name", value="NAME"),
    Flag("-f --file", "text", "the Dockerfile (default: DIR/Dockerfile)", value="FILE"),
    Flag("--build-arg", "list", "a value for an ARG", value="NAME=VALUE"),
    Flag("--runtime", "auto|process|container", "build in Docker or Podman where one is there, never, always (default: as `up`)"),
    DATA_DIR,
))  # fmt: skip
IMAGES = Group("image", "Images that pods can run.", (
    Command("list", "List images.", "commands.images:index", flags=(DATA_DIR, JSON), aliases="ls"),
    Command("add", "Name the programs of this machine, or a directory, as an image.", "commands.images:add", "NAME", (
        Flag("--host", "switch", "the host's own programs"),
        Flag("--dir", "text", "a directory as the image's file system", value="DIR"),
        DATA_DIR,
    )),
    Command("remove", "Remove an image.", "commands.images:remove", "NAME", (DATA_DIR,), aliases="rm"),
), aliases="images")  # fmt: skip
VERSION = Command("version", "Print the version.", "commands.cluster:version", flags=(JSON,))

ROOT = Group("rowlock", "Distributed training on one machine or a Kubernetes cluster.", (
    UP, DOWN, STATUS, KUBECONFIG, RUN, LIST, DESCRIBE, LOGS, EXEC, ATTACH, PORT_FORWARD, WAIT, SUSPEND, RESUME, DELETE, CHECK, EXPLAIN, WHY,
    PROJECTS, SCHEDULER, SIMULATE, BUILD, IMAGES, DOCTOR, VERSION,
), foreign_commands=(
    ("submit start-job launch", "`rowlock run -- python train.py` submits a command, `rowlock run -d` does not follow it."),
    ("stop cancel kill abort", "`rowlock delete JOB` stops a job for good, `rowlock suspend JOB` until it is resumed."),
    ("start serve init", "`rowlock up -d` starts the cluster; `rowlock resume JOB` starts a suspended job again."),
    ("node nodes", "`rowlock status` shows the nodes."),
    ("queue queues", "Every project has a queue of its name: `rowlock project list`; whole: `kubectl get queues`."),
    ("pod pods events", "`rowlock describe JOB` shows a job's pods and events."),
    ("top stats", "`rowlock why JOB` shows what each rank does, `rowlock status` the nodes."),
    ("create apply get", "Manifests are kubectl's: `export KUBECONFIG=$(rowlock kubeconfig --path)`; jobs: `rowlock list`."),
))  # fmt: skip
