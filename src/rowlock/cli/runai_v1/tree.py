"""`runai`'s commands of the first generation, in both their old and their newer spellings, as a table."""

from __future__ import annotations

from rowlock.cli.context import ATTACH_FLAGS, CONTAINER, DATA_DIR, EXEC_FLAGS, PORT_FORWARD_FLAGS, PROJECT
from rowlock.cli.grammar import Command, Flag, Group
from rowlock.cli.runai_v2.tree import CONFIG as CONFIG_V2
from rowlock.cli.runai_v2.tree import NO_UPDATE

_FRAMEWORKS = (
    ("pytorch", "PyTorch", ""),
    ("tf", "TensorFlow", "tensorflow"),
    ("mpi", "MPI", ""),
    ("xgboost", "XGBoost", ""),
)
_CONTEXT_FLAGS = (PROJECT, DATA_DIR)
_ALL_PROJECTS = Flag("-A --all-projects", "switch", "list the jobs of all projects")


def _submit_command(verb: str, framework: tuple[str, str, str], hidden: bool) -> Command:
    name, words, aliases = framework
    summary = f"Submit a distributed {words} job."
    flags = f"submit.flags:{name.upper()}"
    spellings = " ".join(f"{verb[: -len(name)]}{a}" for a in aliases.split()) if verb != name else aliases
    return Command(
        verb, summary, "runai_v1.submit:submit", "[NAME]", flags, "ARGUMENTS...", aliases=spellings, hidden=hidden
    )


SUBMIT = Command("submit", "Submit a job of one pod.", "runai_v1.submit:submit", "[NAME]", "submit.flags:STANDARD",
                 "ARGUMENTS...")  # fmt: skip
SUBMIT_DIST = Group(
    "submit-dist", "Submit a distributed job.", tuple(_submit_command(f[0], f, False) for f in _FRAMEWORKS)
)
SUBMIT_OLD = tuple(
    command._replace(aliases=f"{command.aliases} mj".strip()) if command.name == "submit-mpi" else command
    for command in (_submit_command(f"submit-{f[0]}", f, False) for f in _FRAMEWORKS)
)

_JOBS = Command("jobs", "List jobs.", "runai_v1.jobs:index", flags=(_ALL_PROJECTS, *_CONTEXT_FLAGS), aliases="job")
_NODES = Command("nodes", "List nodes.", "runai_v1.context:nodes", flags=_CONTEXT_FLAGS, aliases="node")
_PROJECTS = Command("projects", "List projects.", "runai_v1.context:projects", flags=(DATA_DIR,), aliases="project")
_CLUSTERS = Command("clusters", "List clusters.", "runai_v1.context:clusters", flags=(DATA_DIR,), aliases="cluster")
_TEMPLATES = Command("templates", "List templates.", "runai_v1.context:templates", flags=_CONTEXT_FLAGS,
                     aliases="template")  # fmt: skip
LIST = Group(
    "list", "List jobs, nodes, projects or clusters.", (_JOBS, _NODES, _PROJECTS, _CLUSTERS, _TEMPLATES), default="jobs"
)

_OUTPUT = Flag("-o --output", "wide|json|yaml|name", "the output format")
_DESCRIBE_JOB = Command(
    "job", "Show a job.", "runai_v1.jobs:describe", "NAME", (_OUTPUT, *_CONTEXT_FLAGS), aliases="jobs"
)
_DESCRIBE_NODE = Command("node", "Show a node.", "runai_v1.context:node", "NAME", (DATA_DIR,), aliases="nodes")
_DESCRIBE_TEMPLATE = Command(
    "template", "Show a template.", "runai_v2.assets:describe", "NAME", _CONTEXT_FLAGS, aliases="templates"
)
DESCRIBE = Group("describe", "Show a job, a node or a template.", (_DESCRIBE_JOB, _DESCRIBE_NODE, _DESCRIBE_TEMPLATE))
GET = _DESCRIBE_JOB._replace(name="get", summary="The same as `runai describe job`.", aliases="")
_DETAILS = Flag("-d --details", "switch", "show each node's free GPUs and memory, too")
TOP = Group("top", "Show what nodes and jobs hold and use.", (
    Command("nodes", "Show what nodes have, what of it is allocated and what is used.", "runai_v1.top:nodes", flags=(_DETAILS, DATA_DIR),
            aliases="node"),
    Command("jobs", "Show what jobs hold and use.", "runai_v1.top:jobs", flags=(_ALL_PROJECTS, *_CONTEXT_FLAGS), aliases="job"),
))  # fmt: skip

LOGS = Command(
    "logs",
    "Print the log of a job's chief pod, or of the pod in --pod.",
    "runai_v2.streams:logs",
    "JOB",
    "runai_v2.flags:LOGS",
)

_POD = Flag("--pod", "text", "the pod (default: the job's chief)", value="NAME")
_POD_FLAGS = (_POD, CONTAINER, *_CONTEXT_FLAGS)
EXEC = Command("exec", "Run a command in a job's pod.", "streams.exec_commands:exec_", "JOB [COMMAND...]", (
    *EXEC_FLAGS,
    *_POD_FLAGS,
), "COMMAND...")  # fmt: skip
BASH = Command("bash", "Open a shell in a job's pod.", "streams.exec_commands:bash", "JOB", _POD_FLAGS)
ATTACH = Command("attach", "Attach to the running program of a job's pod.", "streams.exec_commands:attach", "JOB", (
    *ATTACH_FLAGS,
    *_POD_FLAGS,
))  # fmt: skip
PORT_FORWARD = Command("port-forward", "Forward ports of this machine to a job's pod.", "streams.exec_commands:port_forward",
                       "JOB [PORTS...]", (
    *PORT_FORWARD_FLAGS,
    *_POD_FLAGS,
))  # fmt: skip

_ALL = Flag("-A --all", "switch", "every job of the project")
_MANY_JOBS_FLAGS = (_ALL, *_CONTEXT_FLAGS)
DELETE = Command("delete", "Delete jobs: `runai delete job NAME...` or `runai delete NAME...`.", "runai_v1.jobs:delete_any",
                 "[job] NAME...", (Flag("-y --yes", "switch", "do not ask"), *_MANY_JOBS_FLAGS))  # fmt: skip
SUSPEND = Command(
    "suspend", "Stop the pods of jobs, but keep the jobs.", "runai_v1.jobs:suspend", "NAME...", _MANY_JOBS_FLAGS
)
RESUME = Command("resume", "Start suspended jobs again.", "runai_v1.jobs:resume", "NAME...", _MANY_JOBS_FLAGS)

CONFIG = Group("config", "Select a project or a cluster, and what the command line remembers.", (
    *CONFIG_V2,
    Command("project", "Set the default project.", "runai_v1.context:config_project", "NAME", (DATA_DIR,)),
    Command("cluster", "Set the current cluster.", "runai_v1.context:config_cluster", "NAME", (DATA_DIR,)),
))  # fmt: skip
LOGOUT = Command("logout", "End the session of `runai login`.", "login.commands:logout", flags=(DATA_DIR,))
WHOAMI = Command("whoami", "Say who is logged in.", "login.commands:whoami", flags=(DATA_DIR,))
VERSION = Command(
    "version",
    "Print the version.",
    "runai_v1.context:version",
    flags=(Flag("--short", "switch", "one line"), Flag("--wide", "switch", "everything (the default)")),
)

UPDATE = Command("update", "Update the command line.", "", refuse=NO_UPDATE)
COMPLETION = Command("completion", "Print the completion for a shell: `source <(runai completion bash)`.",
                     "completion.command:completion", "bash|zsh|fish")  # fmt: skip
COMPLETE = Command("__complete", "What may come next (for the scripts of `completion`).",
                   "completion.command:complete", rest="WORDS", hidden=True)  # fmt: skip
COMMANDS: tuple[Command | Group, ...] = (
    SUBMIT, SUBMIT_DIST, *SUBMIT_OLD, LIST, DESCRIBE, GET, TOP, LOGS, EXEC, BASH, ATTACH, PORT_FORWARD, DELETE, SUSPEND, RESUME,
    CONFIG, LOGOUT, WHOAMI, VERSION, UPDATE, COMPLETION, COMPLETE,
)  # fmt: skip
"""Commands whose names the second generation does not use; it has its own `project`, `cluster`, `template`, `login`."""
