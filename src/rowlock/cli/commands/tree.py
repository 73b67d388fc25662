"""`rowlock`'s commands, as a table. Verbs live in the modules that `run` names."""

from __future__ import annotations

from rowlock.cli.accounts.tree import ACCESS_RULES, APPLICATIONS, ROLES, USERS
from rowlock.cli.context import (
    ATTACH_FLAGS,
    CONTAINER,
    DATA_DIR,
    EXEC_FLAGS,
    JSON,
    LISTEN_FLAGS,
    PORT_FORWARD_FLAGS,
    PROJECT,
)
from rowlock.cli.grammar import Command, Flag, Group
from rowlock.cli.history.tree import FAVOURITE, HISTORY, NOTE, SHOW, TAG, USAGE
from rowlock.cli.start.settings import FLAGS, REAL_FLAGS
from rowlock.cli.sweep.tree import sweep_group
from rowlock.server_settings import SETTINGS

_YES = Flag("-y --yes", "switch", "do not ask")
UP = Command("up", "Start the cluster; its state is in the data directory.", "commands.cluster:up", flags=(
    Flag("-d --detach", "switch", "return when the server is ready; it runs in the background"),
    *REAL_FLAGS,
    Flag("--system", "switch", "serve all users of this machine, who log in with their Unix accounts; needs root"),
    Flag("--unit", "switch", "with --system: print a systemd unit that starts this server at boot, and start nothing"),
    *FLAGS, DATA_DIR, JSON,
))  # fmt: skip
DOWN = Command("down", "Stop the cluster and its running jobs.", "commands.down:down", flags=(
    Flag("--keep-jobs", "switch", "do not stop running pods; the next `rowlock up` finds them again"),
    Flag("--stop-jobs", "switch", "stop running jobs without asking", hidden="--all"),
    Flag("--timeout", "text", "how long to wait for the server to end", "60s", value="DURATION"),
    _YES, DATA_DIR, JSON,
))  # fmt: skip
STATUS = Command(
    "status",
    "Show whether the server runs, its address, its nodes and its jobs.",
    "commands.cluster:status",
    flags=(DATA_DIR, JSON),
)
UI = Command("ui", "Open the web UI, or print an address that opens it once.", "login.ui:ui", flags=(
    Flag("--no-browser", "switch", "only print the address"),
    Flag("--user", "text", "print an address for this user of the --users file, with the user's rights", value="NAME"), DATA_DIR, JSON,
))  # fmt: skip
LOGIN = Command("login", "Log in to a server with a password, or at its identity provider.", "login.commands:login", flags=(
    Flag("-u --user", "text", "the name of an account with a password", value="NAME"),
    Flag("-p --password", "text", "its password (default: typed, or read from stdin; others see it in `ps`)", value="PASSWORD"),
    Flag("--oidc", "switch", "at the identity provider, with a browser of this machine"),
    Flag("--device", "switch", "at the identity provider, with a code to type in any browser"),
    *LISTEN_FLAGS, DATA_DIR, JSON,
))  # fmt: skip
LOGOUT = Command("logout", "End the session of `rowlock login` here.", "login.commands:logout", flags=(DATA_DIR, JSON))
WHOAMI = Command(
    "whoami", "Show as whom you are logged in, and until when.", "login.commands:whoami", flags=(DATA_DIR, JSON)
)
KUBECONFIG = Command("kubeconfig", "Print the kubeconfig for kubectl.", "accounts.kubeconfig:kubeconfig", flags=(
    Flag("--user", "text", "the kubeconfig of this user of the --users file, for any machine", value="NAME"),
    Flag("--path", "switch", "print only the file's path: export KUBECONFIG=$(rowlock kubeconfig --path)"),
    DATA_DIR,
))  # fmt: skip
_NOTIFY_KEY = Flag("--notify-key-file", "text", "a file with the key that signs what is sent", value="FILE")
_NOTIFY = (
    Flag("--notify", "text", "tell this address when the job starts after waiting, hangs, is preempted, fails or completes; @FILE has it inside", value="URL"),
    Flag("--notify-on", "text", "with --notify: only these (comma separated): started, failed, hangs, nan, idle, preempted, completed", value="WHAT"),
    _NOTIFY_KEY,
)  # fmt: skip
_FOLD = Flag("--fold", "switch", "print a line that several ranks write once, under all of them: [ranks 0-7]")
RUN = Command(
    "run", "Run a command as a distributed PyTorch job and follow it.", "run.command:run", "", (
        Flag("-n --nnodes", "int", "number of pods: one master and N-1 workers", 1, value="N"),
        Flag("--nproc-per-node", "text", "processes per pod, which torchrun starts: a number, gpu (one for each GPU), cpu, or auto (gpu where there are any)", "1", value="P",
             hidden="--nproc_per_node"),
        Flag("-g --gpu", "float", "GPUs per pod; below 1, a fraction of one GPU", value="G", hidden="--gpus"),
        Flag("--cpu", "float", "CPUs requested for each pod (it may use more)", value="C"),
        Flag("--memory", "text", "memory requested for each pod (it may use more), for example 2Gi", value="QUANTITY"),
        Flag("--memory-limit", "text", "the most memory that each pod may use; a pod that needs more is killed (oom)", value="QUANTITY", hidden="--cpu-memory-limit"),
        Flag("--name", "text", "the job's name (default: made from the script's name)", value="NAME"),
        Flag("-e --env", "list", "set NAME to VALUE, or pass your own value of NAME", value="NAME[=VALUE]"),
        Flag("--clean-env", "switch", "give pods only --env and a minimal environment, not the variables of your shell"),
        Flag("-i --image", "text", "the image of the pods; its own command runs when none is given; `-- --lr 5` are arguments of its ENTRYPOINT", "rowlock.dev/host", value="IMAGE"),
        Flag("--working-dir", "text", "the directory in which the command runs (default: the current one, or the image's)", value="DIR"),
        Flag("--source", "text", "run in a copy of this directory as it is now, without what git ignores", value="DIR"),
        Flag("--resume-from", "text", "resume from the checkpoints of this run, in its directory", value="RUN"),
        Flag("--interactive", "switch", "for interactive work: scheduled before other jobs, and never preempted"),
        Flag("--backoff-limit", "int", "restarts of the job before it fails, however many ranks it has", 0, value="N"),
        Flag("--retry-on", "list", "start the job again only after this cause: oom, nccl, preempted, node, import-error, exit:N or log:TEXT; :N more allows N retries (default 3)", value="CAUSE[:N]"),
        Flag("--never-retry-on", "list", "do not start the job again after this cause", value="CAUSE"),
        Flag("--simulated-gpus", "int", "if no cluster runs and one is started: simulated GPUs per node", value="G"),
        Flag("-t --tty", "switch", "give the first rank this terminal: python -i, breakpoint()", hidden="-it -ti"),
        Flag("--debug --debug-rank", "int", "give this rank the terminal", value="RANK"),
        Flag("--replace", "switch", "delete a job of this --name first"),
        Flag("--rerun-on-save", "switch", "when a source file is saved, stop the job and run it again"),
        Flag("-d --detach", "switch", "return after the submit"),
        _FOLD,
        Flag("--rm", "switch", "delete the job when it has ended"),
        Flag("--bell", "switch", "ring the bell of this terminal when the job has ended"),
        Flag("--after", "list", "start when this job has ended, or has succeeded", value="JOB[:succeeded]"),
        Flag("--start-after", "text", "start at this time or later: 22:00, 2026-12-24T22:00, or in so long: 2h", value="TIME"),
        Flag("--max-time", "text", "stop the job when it has run for so long, for example 2h; waiting does not count", value="DURATION"),
        Flag("--grace", "text", "how long a pod that is stopped may take to save its state (default 30s)", value="DURATION"),
        Flag("--tag", "list", "give the run this tag, by which `rowlock history --tag` finds it", value="TAG"),
        Flag("--note", "text", "write this note on the run", value="TEXT"),
        *_NOTIFY, PROJECT, DATA_DIR,
    ), "[COMMAND...]", eager=True,
)  # fmt: skip

SWEEPS = sweep_group(RUN.flags if isinstance(RUN.flags, tuple) else ())
VERIFY_RESUME = Command(
    "verify-resume", "Prove that a killed training program resumes exactly.", "verify.command:verify_resume", "", (
        Flag("-n --nproc", "int", "number of ranks, as processes of this machine", 1, value="N"),
        Flag("--steps", "int", "steps of each run", 20, value="STEPS"),
        Flag("--seed", "int", "draws the step at which the program is killed (default: another one each time)", value="SEED"),
        Flag("--timeout", "text", "how long each of the three runs may take", "10m", value="DURATION"),
        Flag("--keep", "switch", "keep the directory with checkpoints, fingerprints and logs"),
        JSON,
    ), "[COMMAND...]", eager=True,
)  # fmt: skip
LIST = Command("list", "List jobs, and why they wait.", "commands.jobs:index", flags=(
    Flag("-A --all-projects", "switch", "list the jobs of all projects"),
    Flag("--phase", "text", "list only jobs in this phase", value="PHASE"),
    PROJECT, DATA_DIR, JSON,
), aliases="ls ps")  # fmt: skip
DESCRIBE = Command("describe", "Show a job: its phase and the reason, its pods and events.", "commands.jobs:describe", "JOB",
                   (PROJECT, DATA_DIR, JSON))  # fmt: skip
TOP = Command("top", "Show what nodes and jobs use now, or each rank of one job: CPU, memory, GPUs, disk, network.", "usage.command:top", "[JOB]", (
    Flag("-w --watch", "switch", "show it again every two seconds, until Ctrl-C"),
    Flag("--interval", "int", "with --watch: seconds between two updates", value="SECONDS"),
    Flag("-A --all-projects", "switch", "the jobs of all projects"),
    PROJECT, DATA_DIR, JSON,
))  # fmt: skip
LOGS = Command("logs", "Print the log of a job: of all ranks, merged, or of one pod.", "streams.logs:logs", "JOB", (
    Flag("--rank", "int", "only the log of this rank", value="N"),
    Flag("--pod", "text", "only the log of this pod (its full name, or for example master-0 or worker-1)", value="POD"),
    Flag("-c --container", "text", "the log of this container or init container of the pods (default: the first container)", value="NAME"),
    Flag("-f --follow", "switch", "keep printing until the job has ended"),
    Flag("-n --tail", "int", "only the last N lines of each pod", value="N", hidden="-t"),
    Flag("--since", "text", "only lines newer than this, for example 5m", value="DURATION"),
    Flag("--timestamps", "switch", "print the time before every line"),
    _FOLD,
    Flag("--previous", "switch", "the log before the last restart"),
    Flag("--attempt", "int", "the log of the N-th attempt, counted from 1 (`rowlock show JOB` shows them)", value="N"),
    PROJECT, DATA_DIR,
))  # fmt: skip
RERUN = Command("rerun", "Submit a run again and follow it: with the files as they are now, or as they were.", "run.rerun:rerun", "RUN", (
    Flag("--exact", "switch", "run in a copy of the code as it was then; files that git ignores are today's"),
    Flag("--name", "text", "the job's name (default: the run's)", value="NAME"),
    Flag("-e --env", "list", "set NAME to VALUE, or pass your own value of NAME", value="NAME[=VALUE]"),
    Flag("--resume-from", "text", "resume from the checkpoints of this run, in its directory", value="RUN"),
    Flag("--replace", "switch", "delete a job of this name first"),
    Flag("-d --detach", "switch", "return after the submit"),
    _FOLD,
    Flag("--rm", "switch", "delete the job when it has ended"),
    *_NOTIFY, PROJECT, DATA_DIR,
))  # fmt: skip
MOVE = Command("move", "Submit a run to another cluster, with its code as it was; the job here stays.", "run.move:move", "RUN", (
    Flag("--to", "text", "the other cluster: a context of the kubeconfig", value="CONTEXT"),
    Flag("--kubeconfig", "text", "the file that has the context (default: $KUBECONFIG or ~/.kube/config)", value="FILE"),
    Flag("--image", "text", "the image that pods run there, for a run of programs of this machine", value="IMAGE"),
    Flag("--name", "text", "its name there (default: the run's)", value="NAME"),
    Flag("--to-project", "text", "its project there (default: the one of the same name)", value="NAME"),
    Flag("--scheduler", SETTINGS["scheduler"].kind, "who places its pods there, as `rowlock up --scheduler`", "auto"),
    Flag("--without-code", "switch", "leave the code here: the image has it"),
    Flag("--delete-here", "switch", "delete the job here when the other cluster has it"),
    Flag("--dry-run", "switch", "ask the other cluster, print what would be submitted, and submit nothing"),
    PROJECT, DATA_DIR, JSON,
))  # fmt: skip
DIFF = Command("diff", "Show what differs between two runs: outcome, metrics, request, packages, code.", "curves.compare:diff", "RUN RUN", (
    Flag("--code", "switch", "print the changes of the code, not only which files they are in"),
    PROJECT, DATA_DIR, JSON,
))  # fmt: skip
PLOT = Command("plot", "Draw what runs printed (`step=10 loss=0.31`, JSON lines) or wrote for TensorBoard as curves.", "curves.command:plot", "RUN...", (
    Flag("--metric", "list", "only this metric", value="NAME"),
    Flag("--rank", "int", "what this rank printed (default: the first that began)", value="N"),
    Flag("--svg", "text", "write an SVG file instead of drawing here", value="FILE"),
    PROJECT, DATA_DIR, JSON,
))  # fmt: skip
NOTEBOOK = Command("notebook", "Start JupyterLab in a pod, or find it again, and forward a port to it.", "notebook.command:notebook", "[NAME]", (
    Flag("-g --gpu", "float", "GPUs of the pod; below 1, a fraction of one GPU", value="G", hidden="--gpus"),
    Flag("--cpu", "float", "CPUs requested for the pod (it may use more)", value="C"),
    Flag("--memory", "text", "memory requested for the pod (it may use more), for example 2Gi", value="QUANTITY"),
    Flag("--memory-limit", "text", "the most memory that the pod may use", value="QUANTITY", hidden="--cpu-memory-limit"),
    Flag("--python", "text", "the interpreter that has JupyterLab (default: the `python` of your shell)", value="PROGRAM"),
    Flag("--port", "int", "the port of this machine (default: a free one)", value="P"),
    Flag("-e --env", "list", "set NAME to VALUE, or pass your own value of NAME", value="NAME[=VALUE]"),
    Flag("--clean-env", "switch", "give the pod only --env and a minimal environment, not the variables of your shell"),
    Flag("--working-dir", "text", "the directory in which it starts (default: the current one)", value="DIR"),
    PROJECT, DATA_DIR,
))  # fmt: skip
TENSORBOARD = Command("tensorboard", "Start your TensorBoard over the event files that runs wrote.", "curves.tensorboard:tensorboard", "[RUN...]", (
    Flag("--port", "int", "its port (default: TensorBoard's own, 6006)", value="P"),
    Flag("--bind-all", "switch", "let others on the network see it; it asks nobody for a password"),
    Flag("--limit", "int", "without RUN: the newest runs, at most so many", 50, value="N"),
    PROJECT, DATA_DIR,
))  # fmt: skip
_POD_FLAGS = (
    Flag("--pod", "text", "the pod (its full name, or for example worker-1; default: the first rank's)", value="POD"),
    Flag("--rank", "int", "the pod of this rank", value="N"),
    CONTAINER,
    PROJECT, DATA_DIR,
)  # fmt: skip
EXEC = Command("exec", "Run a command in a pod of a job, or in the pod with this name.", "streams.exec_commands:exec_", "JOB [COMMAND...]", (
    *EXEC_FLAGS,
    *_POD_FLAGS,
), "COMMAND...")  # fmt: skip
ATTACH = Command("attach", "Attach to the running program of a job's pod.", "streams.exec_commands:attach", "JOB", (
    *ATTACH_FLAGS,
    *_POD_FLAGS,
))  # fmt: skip
PORT_FORWARD = Command("port-forward", "Forward ports of this machine to a job's pod.", "streams.exec_commands:port_forward",
                       "JOB [PORTS...]", (
    *PORT_FORWARD_FLAGS,
    *_POD_FLAGS,
))  # fmt: skip
WAIT = Command("wait", "Wait for a job. The exit code is 0 if the job reached the phase of --for, else 1.", "commands.jobs:wait", "JOB", (
    Flag("--for", "completed|running|failed|deleted", "the phase to wait for", "completed"),
    Flag("--timeout", "text", "give up after this time (default: never)", value="DURATION"),
    PROJECT, DATA_DIR, JSON,
))  # fmt: skip
_COMMON_FLAGS = (PROJECT, DATA_DIR, JSON)
DELETE = Command("delete", "Delete jobs and stop their pods.", "commands.jobs:delete", "JOB...", (
    Flag("-A --all", "switch", "every job of the project"), _YES, *_COMMON_FLAGS,
), aliases="rm")  # fmt: skip
SUSPEND = Command("suspend", "Stop a job's pods, but keep the job.", "commands.jobs:suspend", "JOB...", _COMMON_FLAGS)
RESUME = Command("resume", "Start a suspended job again.", "commands.jobs:resume", "JOB...", _COMMON_FLAGS)
EXPLAIN = Command("explain", "Say why a job or a pod waits, with the scheduler's numbers.", "commands.jobs:explain", "[JOB]", (
    Flag("--what-if", "switch", "instead, say whether the job in --file would start now; writes nothing"),
    Flag("-f --file", "text", "with --what-if: the manifest (- reads stdin)", value="FILE"),
    *_COMMON_FLAGS,
))  # fmt: skip
CHECK = Command("check", "Say whether a manifest would be admitted, and warn about surprising fields.", "commands.scheduler:check", flags=(
    Flag("-f --file", "text", "the manifest (- reads stdin)", value="FILE"),
    *_COMMON_FLAGS,
))  # fmt: skip
WHY = Command("why", "Say in one sentence which rank failed first, or which rank the others wait for.",
              "history.runs:why", "JOB", (
    Flag("--stacks", "switch", "show the stack of every running rank"),
    *_COMMON_FLAGS,
))  # fmt: skip
QUEUE = Group("queue", "The jobs that wait for nodes, in the order in which the scheduler tries them.", (
    Command("list", "List the jobs that wait for nodes, in the order in which the scheduler tries them.", "commands.scheduler:queue", flags=(
        Flag("-A --all-projects", "switch", "those of all projects; positions always count all that wait"), *_COMMON_FLAGS,
    )),
    Command("move", "Try a waiting job before or after others of its project and priority. Needs the right to change queues.",
            "commands.scheduler:move", "JOB", (
        Flag("--first", "switch", "before all others"),
        Flag("--last", "switch", "after all others that wait now"),
        Flag("--before", "text", "right before this one", value="JOB"),
        Flag("--after", "text", "right after this one", value="JOB"),
        *_COMMON_FLAGS,
    )),
), default="list")  # fmt: skip
SCHEDULER = Group("scheduler", "Record the scheduler's input, and replay its decisions.", (
    Command("snapshot", "Print the scheduler's input as JSON, without secrets and environment variables.",
            "commands.scheduler:snapshot", flags=(
        Flag("-o --output", "text", "write to this file instead", value="FILE"), DATA_DIR,
    )),
    Command("replay", "Run the real planner on a snapshot, without a server.", "commands.scheduler:replay", "FILE", (JSON,)),
))  # fmt: skip
SIMULATE = Command(
    "simulate", "Simulate a trace of jobs with the real planner: utilisation, waiting times, fairness.",
    "commands.scheduler:simulate", "[TRACE]", (
        Flag("--nodes", "int", "number of nodes of the simulated cluster", 1, value="N"),
        Flag("--gpus", "int", "GPUs per node", 8, value="G"),
        Flag("--generate", "text", "generate the trace, for example jobs=1000,seed=1,projects=4,load=1.2", value="WHAT"),
        Flag("--grace", "text", "how long an evicted pod takes to end", "10s", value="DURATION"),
        Flag("--half-life", "text", "time-based fair share: usage this long ago counts half", value="DURATION"),
        Flag("--reserve-after", "text", "reserve nodes for a big gang that has waited this long; 0 = never", "5m", value="DURATION"),
        Flag("--svg", "text", "draw a chart: GPUs in use by project, and waiting jobs, over time", value="FILE"),
        JSON,
    ),
)  # fmt: skip
DOCTOR = Command(
    "doctor", "Check this machine, or a real cluster: what is there, what is missing, how to fix it.", "commands.doctor:doctor", flags=(
        Flag("--kubeconfig", "text", "check the real Kubernetes cluster of this file", value="FILE"),
        Flag("--context", "text", "with --kubeconfig: the context (default: the file's current one)", value="NAME"),
        Flag("--scheduler", SETTINGS["scheduler"].kind, "with --kubeconfig: the scheduler, as for `rowlock up`", "auto"),
        DATA_DIR, JSON,
    ),
)  # fmt: skip

_UNIX_ACCOUNT = Flag(
    "--unix-account",
    "text",
    "the user of this machine as whom the project's pods run, and who may submit there",
    value="NAME",
)

DIFF_ENGINES = Command(
    "diff-engines", "Run one job on the embedded and on a real cluster, and print what differs.", "commands.without_server:diff_engines", flags=(
        Flag("-f --file", "text", "the job's manifest", value="FILE"),
        Flag("--kubeconfig", "text", "the real Kubernetes cluster", value="FILE"),
        Flag("--context", "text", "its context (default: the file's current one)", value="NAME"),
        Flag("--wait", "text", "how long to wait for the end of the job", "20s", value="DURATION"),
        DATA_DIR, JSON,
    ),
)  # fmt: skip

_GPUS = Flag("--gpus", "text", "the project's GPU quota, or unlimited (default: unlimited)", value="Q")
PROJECTS = Group("project", "Manage projects. Each project is a namespace and a queue.", (
    Command("create", "Create a project.", "commands.projects:create", "NAME", (_GPUS, _UNIX_ACCOUNT, DATA_DIR, JSON)),
    Command("list", "List projects, their quotas and their usage.", "commands.projects:index", flags=(DATA_DIR, JSON), aliases="ls"),
    Command("set", "Select the default project of `rowlock` and `runai`.", "commands.projects:select", "NAME", (DATA_DIR, JSON)),
    Command("update", "Change a project's quota, its bounds beyond that, or its Unix account.", "commands.projects:update", "NAME", (
        Flag("--gpus", "text", "the project's GPU quota, or unlimited", value="Q"),
        Flag("--gpu-limit", "text", "the most GPUs that it may hold, or unlimited", value="Q"),
        Flag("--gpu-over-quota-weight", "text", "its share of what is beyond all quotas, beside other projects'", value="WEIGHT"),
        _UNIX_ACCOUNT, DATA_DIR, JSON,
    )),
    Command("notify", "Tell an address what happens to all jobs of a project; without URL: show what is set.", "commands.project_notify:notify", "NAME [URL]", (
        Flag("--on", "text", "only these (comma separated): started, failed, hangs, nan, idle, preempted, completed", value="WHAT"),
        Flag("--key-file", "text", "a file with the key that signs what is sent", value="FILE"),
        Flag("--off", "switch", "tell nobody any more"), DATA_DIR, JSON,
    )),
    Command("delete", "Delete a project that has no unfinished jobs.", "commands.projects:delete", "NAME", (_YES, DATA_DIR, JSON)),
), aliases="projects")  # fmt: skip

NOTIFY = Group("notify", "Notifications about jobs: see `rowlock run --notify`.", (
    Command("test", "Send a test, and show what its receiver answered: to URL as a job would, with -p alone as `rowlock project notify` does, else as `rowlock up --notify` does.", "run.notify:test", "[URL]", (
        _NOTIFY_KEY, PROJECT, DATA_DIR, JSON,
    )),
))  # fmt: skip

BUILD = Command("build", "Build an image from a directory with a Dockerfile.", "commands.images:build", "DIR", (
    Flag("-t --tag", "text", "the image's name", value="NAME"),
    Flag("-f --file", "text", "the Dockerfile (default: DIR/Dockerfile)", value="FILE"),
    Flag("--build-arg", "list", "the value of an ARG", value="NAME=VALUE"),
    Flag("--target", "text", "build this stage of the Dockerfile, and not the last", value="STAGE"),
    Flag("--no-cache", "switch", "do every step again, also those that were done before"),
    Flag("--pull", "switch", "in Docker or Podman: pull the images of FROM again; else refused, for nothing is pulled"),
    Flag("--runtime", "auto|process|container", "build in Docker or Podman: if one is installed, never, always (default: as `up`)"),
    DATA_DIR, JSON,
))  # fmt: skip
IMAGES = Group("image", "Manage images whose pods run as processes.", (
    Command("list", "List images.", "commands.images:index", flags=(DATA_DIR, JSON), aliases="ls"),
    Command("add", "Map an image name to the programs of this machine, or to a directory.", "commands.images:add", "NAME", (
        Flag("--host", "switch", "the programs of this machine"),
        Flag("--dir", "text", "this directory is the image's file system", value="DIR"),
        DATA_DIR, JSON,
    )),
    Command("remove", "Remove an image.", "commands.images:remove", "NAME", (DATA_DIR, JSON), aliases="rm"),
), aliases="images")  # fmt: skip
BACKUP = Command(
    "backup",
    "Write the cluster's state to one file, while the server works.",
    "commands.without_server:create",
    "FILE",
    (DATA_DIR, JSON),
)
RESTORE = Command(
    "restore",
    "Make a new data directory from a file of `rowlock backup`.",
    "commands.without_server:restore",
    "FILE",
    (DATA_DIR, JSON),
)
MANIFESTS = Command(
    "manifests", "Print what a real cluster needs for rowlock: kinds, rights, priority classes. For `kubectl apply -f -`.", "commands.without_server:manifests", flags=(
        Flag("--scheduler", SETTINGS["scheduler"].kind, "who places the pods, as for `rowlock up --kubeconfig`", "own"),
        Flag("--operator", SETTINGS["operator"].kind, "who makes the pods of jobs; own: with the kinds of jobs, too", "kubeflow"),
        Flag(
            "--credentials", "switch", "also the right to Secrets of all namespaces, which the owner's credentials need"
        ),
        Flag("--debug-image", "text", "also the right to add debug containers to pods; with --image: of this image, as for `rowlock up`", value="IMAGE"),
        Flag("--image", "text", "also run the server in the cluster, from this image", value="IMAGE"),
        Flag("--storage", "text", "with --image: size of the server's volume", "10Gi", value="SIZE"),
        Flag("--ingress-host", "text", "with --image: an Ingress leads to the server under this name", value="NAME"),
        Flag("--replicas", "int", "with --image and --archive: so many servers", 1, value="N"),
        Flag("--archive", "text", "the archive that servers share, as for `rowlock up`: s3://BUCKET/PREFIX", value="URL"),
        Flag("--archive-secret", "text", "with --image: a Secret in rowlock-system with AWS_ACCESS_KEY_ID and so on", value="NAME"),
        Flag("--archive-claim", "text", "with --image: a ReadWriteMany claim in rowlock-system, for --archive file:///var/lib/rowlock-archive", value="NAME"),
        Flag("--archive-port", "int", "with --image: the port of the storage, for the NetworkPolicy", 443, value="PORT"),
        Flag("--tls-secret", "text", "with --image: a Secret with tls.crt and tls.key for all servers", value="NAME"),
        Flag("--service-monitor", "switch", "with --image: the Prometheus operator is told of the server's figures"),
    ),
)  # fmt: skip
VERSION = Command("version", "Print the version.", "commands.cluster:version", flags=(JSON,))
SKILL = Command("skill", "Print how a coding agent uses rowlock: commands, exit codes and JSON, as a SKILL.md.", "commands.without_server:skill")  # fmt: skip
COMPLETION = Command("completion", "Print the completion for a shell: `source <(rowlock completion bash)`.",
                     "completion.command:completion", "bash|zsh|fish")  # fmt: skip
COMPLETE = Command("__complete", "What may come next (for the scripts of `completion`).",
                   "completion.command:complete", rest="WORDS", hidden=True)  # fmt: skip
SHARED = (DATA_DIR, PROJECT)
"""Flags that may stand before the verb."""

ROOT = Group("rowlock", "Distributed training on one machine, with the tools of a Kubernetes cluster.", (
    UP, DOWN, STATUS, UI, LOGIN, LOGOUT, WHOAMI, KUBECONFIG, RUN, SWEEPS, VERIFY_RESUME, LIST, TOP, USAGE, DESCRIBE, LOGS, HISTORY, SHOW, TAG, NOTE, FAVOURITE, DIFF, RERUN, MOVE, PLOT, TENSORBOARD, NOTEBOOK, EXEC, ATTACH, PORT_FORWARD, WAIT, SUSPEND, RESUME,
    DELETE, CHECK, QUEUE, EXPLAIN, WHY, PROJECTS, USERS, ROLES, ACCESS_RULES, APPLICATIONS, SCHEDULER, SIMULATE, NOTIFY, BUILD, IMAGES, BACKUP, RESTORE, DOCTOR, DIFF_ENGINES, MANIFESTS, SKILL, COMPLETION, COMPLETE, VERSION,
), foreign_commands=(
    ("submit start-job launch", "`rowlock run -- python train.py` submits a command, `rowlock run -d` does not follow it."),
    ("stop cancel kill abort", "`rowlock delete JOB` stops a job for good, `rowlock suspend JOB` until it is resumed."),
    ("start serve init", "`rowlock up -d` starts the cluster; `rowlock resume JOB` starts a suspended job again."),
    ("web dashboard console browser", "`rowlock ui` opens the web UI."),
    ("node nodes", "`rowlock status` shows the nodes."),
    ("queues", "Every project has a queue with its name: `rowlock project list`, or `kubectl get queues`. `rowlock queue` lists what waits."),
    ("pod pods events", "`rowlock describe JOB` shows a job's pods and events."),
    ("jupyter lab jupyterlab", "`rowlock notebook` starts JupyterLab in a pod."),
    ("stats", "`rowlock top` shows what nodes and jobs use, `rowlock usage` GPU hours, `rowlock why JOB` what each rank does."),
    ("restart retry", "`rowlock rerun JOB --replace` runs a job again, `rowlock resume JOB` goes on with a suspended one."),
    ("scale resize", "`kubectl scale pytorchjob JOB --replicas N -n NAMESPACE` changes the workers of an elastic job; `rowlock project list` has namespaces."),
    ("create apply get", "Use kubectl for manifests: `export KUBECONFIG=$(rowlock kubeconfig --path)`. `rowlock list` lists jobs."),
))  # fmt: skip
