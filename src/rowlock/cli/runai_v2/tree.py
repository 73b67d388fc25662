"""`runai`'s commands of the second generation as a table: families of workloads with the same verbs, and resources."""

from __future__ import annotations

from rowlock.cli.context import DATA_DIR, LISTEN_FLAGS, PROJECT
from rowlock.cli.grammar import Command, Flag, Group

_FLAGS = "runai_v2.flags:"
NO_UPDATE = "rowlock never updates itself: `pip install -U rowlock` does"
_CREATE_PROJECT = (
    Flag("--department", "text", "its department", "default", value="NAME"),
    Flag("--description", "text", "what it is for", value="TEXT"),
    Flag("--namespace", "text", "its namespace (default: runai-NAME)", value="NAME"),
    Flag("--resources", "list", "its GPUs in a node pool", value="nodepool=,gpu-deserved=,gpu-limit="),
    DATA_DIR,
)


def _verbs(submit: str, flags: str) -> tuple[Command, ...]:
    """The eleven verbs of a family."""
    return (
        Command("submit", "Submit a workload.", f"runai_v2.submit:{submit}", "[NAME]", f"{_FLAGS}{flags}", "ARGUMENTS..."),
        Command("list", "List workloads.", "runai_v2.workloads:list_family", flags=f"{_FLAGS}LIST", aliases="ls"),
        Command("describe", "Show a workload.", "runai_v2.describe:describe", "[NAME]", f"{_FLAGS}DESCRIBE"),
        Command("logs", "Print the log of a pod.", "runai_v2.streams:logs", "[NAME]", f"{_FLAGS}LOGS"),
        Command("exec", "Run a command in a pod.", "runai_v2.streams:exec_command", "NAME", f"{_FLAGS}EXEC", "COMMAND..."),
        Command("bash", "Open a shell in a pod.", "runai_v2.streams:bash", "NAME", f"{_FLAGS}EXEC"),
        Command("attach", "Attach to the running program of a pod.", "runai_v2.streams:attach", "NAME", f"{_FLAGS}ATTACH"),
        Command("port-forward", "Forward ports of this machine to a pod.", "runai_v2.streams:port_forward",
                "NAME [PORTS...]", f"{_FLAGS}PORT_FORWARD"),
        Command("delete", "Delete a workload.", "runai_v2.workloads:delete", "[NAME...]", f"{_FLAGS}DELETE", aliases="rm"),
        Command("suspend", "Stop a workload's pods, but keep it.", "runai_v2.workloads:suspend", "[NAME...]", f"{_FLAGS}STATE"),
        Command("resume", "Start a suspended workload again.", "runai_v2.workloads:resume", "[NAME...]", f"{_FLAGS}STATE"),
    )  # fmt: skip


_FRAMEWORKS = tuple(
    Group(name, f"Distributed {title} workloads.", _verbs("framework", flags), aliases=aliases)
    for name, title, flags, aliases in (
        ("pytorch", "PyTorch", "PYTORCH", ""),
        ("tensorflow", "TensorFlow", "TENSORFLOW", "tf"),
        ("mpi", "MPI", "MPI", ""),
        ("xgboost", "XGBoost", "XGBOOST", ""),
        ("jax", "JAX", "JAX", ""),
    )
)
_STANDARD = _verbs("standard", "STANDARD")
DISTRIBUTED = Group("distributed", "Distributed workloads of any framework.",
                    _verbs("any_framework", "DISTRIBUTED"), aliases="dist")  # fmt: skip
TRAINING = Group("training", "Training workloads: distributed ones by framework, and those of one pod.", (
    *_verbs("standard", "STANDARD"),
    *_FRAMEWORKS,
    Group("standard", "Training workloads of one pod.", _STANDARD),
))  # fmt: skip
WORKSPACE = Group("workspace", "Workspaces: one pod, never preempted.", _verbs("workspace", "STANDARD"))
_SERVED = tuple(
    verb._replace(refuse="rowlock trains models and serves none") if verb.name == "submit" else verb
    for verb in _verbs("standard", "STANDARD")
)
INFERENCE = Group("inference", "Inference workloads: rowlock serves no models, so there are none.", _SERVED)
WORKLOAD = Group("workload", "Workloads of any type.", (
    Command("list", "List workloads.", "runai_v2.workloads:list_any", flags=f"{_FLAGS}WORKLOAD_LIST", aliases="ls"),
    Command("describe", "Show a workload.", "runai_v2.describe:describe", "[NAME]", f"{_FLAGS}WORKLOAD_DESCRIBE"),
    Command("delete", "Delete workloads.", "runai_v2.workloads:delete_many", "[NAME...]", f"{_FLAGS}WORKLOAD_DELETE"),
    Command("exec", "Run a command in a pod.", "runai_v2.streams:exec_command", "NAME", f"{_FLAGS}EXEC", "COMMAND..."),
    Command("logs", "Print the log of a pod.", "runai_v2.streams:logs", "[NAME]", f"{_FLAGS}LOGS"),
    Command("submit", "Submit the objects of a manifest to the project.", "runai_v2.submit:manifest", flags=(
        Flag("-f --file", "text", "the manifest (- reads stdin)", value="FILE"), PROJECT, DATA_DIR,
    )),
), aliases="workloads")  # fmt: skip


def _resource(name: str, plural: str, listing: str, *others: Command) -> Group:
    command = Command(
        "list", f"List {plural}.", f"runai_v2.resources:{listing}", flags=f"{_FLAGS}RESOURCE_LIST", aliases="ls"
    )
    return Group(name, f"Show {plural}.", (command, *others))


def _asset(name: str, plural: str, create: Command) -> Group:
    path = "workload-templates" if name == "template" else "asset"
    change = f"delete it and make it again, or change it with PUT below /api/v1/{path} (docs/rest.md)"
    return Group(name, f"{plural.capitalize()}: parts of a submit that are written once.", (
        Command("list", f"List {plural}.", "runai_v2.assets:list_assets", flags=f"{_FLAGS}ASSET_LIST", aliases="ls"),
        Command("describe", f"Show one of the {plural}.", "runai_v2.assets:describe", "NAME", (PROJECT, DATA_DIR)),
        create,
        Command("update", f"Change one of the {plural}.", "", hidden=True, refuse=change),
        Command("delete", f"Delete one of the {plural}; workloads keep its values.", "runai_v2.assets:delete", "NAME",
                (PROJECT, DATA_DIR), aliases="rm"),
    ))  # fmt: skip


def _create_asset(what: str, flags: str) -> Command:
    return Command("create", f"Make {what}.", "runai_v2.assets:create", "NAME", f"{_FLAGS}{flags}", "ARGUMENTS...")


_SET_PROJECT = Command("set", "Set the default project.", "runai_v1.context:project_set", "NAME", (DATA_DIR,))
PROJECTS = Group("project", "Select, list or create projects.", (
    _SET_PROJECT,
    *_resource("project", "projects", "list_projects").commands,
    Command("create", "Create a project.", "runai_v2.resources:create_project", "NAME", _CREATE_PROJECT),
), aliases="projects")  # fmt: skip
CLUSTER = _resource("cluster", "clusters", "list_clusters", Command(
    "set", "Set the current cluster.", "runai_v2.resources:set_cluster", "[NAME]",
    (Flag("--id", "text", "its id", value="UUID"), DATA_DIR),
))  # fmt: skip
OWN_TYPE = Flag("--type", "genericSecret|dockerRegistry|ngcApiKey|password|accessKey", "what it is")
_CLAIMS = Command("list", "List claims.", "runai_v2.resources:list_claims", flags=f"{_FLAGS}ASSET_LIST", aliases="ls")
RESOURCES: tuple[Group, ...] = (
    PROJECTS, CLUSTER,
    _resource("node", "nodes", "list_nodes", Command("describe", "Show a node.", "runai_v1.context:node", "NAME", (DATA_DIR,))),
    _resource("nodepool", "node pools", "list_node_pools"),
    _resource("department", "departments", "list_departments"),
    _resource("workload-type", "types of workloads", "list_types"),
    Group("pvc", "Show persistent volume claims.", (_CLAIMS,)),
    _asset("compute", "compute resources", _create_asset("a compute resource", "COMPUTE_ASSET")),
    _asset("environment", "environments", _create_asset("an environment", "ENVIRONMENT_ASSET")),
    _asset("datasource", "data sources", Command(
        "create", "Make a data source.", "runai_v2.assets:create_data_source", "NAME", f"{_FLAGS}DATA_SOURCE_ASSET",
    )),
    _asset("template", "templates", Command(
        "create", "Make a template.", "runai_v2.assets:create_template", "NAME", f"{_FLAGS}TEMPLATE", "ARGUMENTS...",
    )),
    Group("credential", "Credentials of the project, which are Secrets.", (
        Command("list", "List the project's credentials, without what is secret.", "runai_v2.assets:list_assets",
                flags=f"{_FLAGS}ASSET_LIST"),
        Command("describe", "Show a credential, without what is secret.", "runai_v2.assets:describe", "NAME",
                (PROJECT, DATA_DIR)),
        Command("create", "Keep a credential, whose secret is read from a file.", "runai_v2.credentials:create_shared", "NAME", (
            Flag("--type", "password|access-key|docker-registry|generic-secret|ngc-api-key", "what it is", "password"),
            Flag("--user", "text", "the user's name (password, docker-registry)", value="NAME"),
            Flag("--url", "text", "the registry (docker-registry)", value="URL"),
            Flag("--access-key-id", "text", "the id of the key (access-key)", value="ID"),
            Flag("--key", "text", "under which key of the Secret it lies (generic-secret)", value="KEY"),
            Flag("--secret-file", "text", "a file with the password, the secret key or the value (- reads stdin)", value="FILE"),
            PROJECT, DATA_DIR,
        )),
        Command("delete", "Delete a credential, and the Secret that it made.", "runai_v2.assets:delete", "NAME",
                (PROJECT, DATA_DIR)),
    )),
    Group("my-credential", "Credentials of your own, which no other user uses.", (
        Command("list", "List your credentials, without what is secret.", "runai_v2.credentials:list_own",
                flags=f"{_FLAGS}CREDENTIAL_LIST", aliases="ls"),
        Command("describe", "Show one of your credentials, without what is secret.", "runai_v2.credentials:describe", "NAME",
                (DATA_DIR,)),
        Command("create", "Keep a credential of your own.", "runai_v2.credentials:create", "NAME", (
            OWN_TYPE,
            Flag("--item", "list", "its fields, with commas between (what is secret is safer in --secret-file)", value="KEY=VALUE,..."),
            Flag("--secret-file", "text", "a file with what is secret of it (- reads stdin)", value="FILE"),
            Flag("--description", "text", "what it is for", value="TEXT"), DATA_DIR,
        )),
        Command("delete", "Delete one of your credentials; workloads that use it keep its values.",
                "runai_v2.credentials:delete", "NAME", (DATA_DIR,), aliases="rm"),
    )),
)  # fmt: skip

_SWITCH = "enabled|disabled"
_BROWSER = (*LISTEN_FLAGS, DATA_DIR)
LOGIN = Group("login", "Log in.", (
    Command("owner", "Log in as who one is: the owner of the data directory, or at the identity provider.", "login.commands:login_as_offered", flags=_BROWSER),
    Command("user", "Log in with a password.", "login.commands:login_user", flags=(
        Flag("-u --user", "text", "the user's name", value="NAME"),
        Flag("-p --password", "text", "the password (default: typed, or read from stdin; others see it in `ps`)", value="PASSWORD"),
        DATA_DIR,
    )),
    Command("sso", "Log in at the identity provider, with a browser of this machine.", "login.commands:login_sso", flags=_BROWSER),
    Command("remote-browser", "Log in at the identity provider, with a code to type in any browser.", "login.commands:login_remote_browser", flags=(DATA_DIR,)),
    Command("application", "Log in as an application.", "login.commands:login_application", aliases="app access-key", flags=(
        Flag("--client-id", "text", "the application's name", value="NAME"),
        Flag("--secret", "text", "its secret (default: typed, or read from stdin)", value="SECRET"),
        Flag("--secret-file", "text", "a file with its secret", value="FILE"),
        Flag("--save", "switch", "keep the secret (mode 0600), and log in again when the token ends"),
        Flag("--interactive", _SWITCH, "ask for what is missing, at a terminal", "enabled"),
        DATA_DIR,
    )),
), default="owner")  # fmt: skip
AUTH = Group("auth", "The token of the data directory.", (
    Command("get-token", "Print the token.", "runai_v2.account:show_token", flags=(
        Flag("-o --output", "plaintext|kubeconfig", "the format", "plaintext"), DATA_DIR,
    )),
))  # fmt: skip
CONFIG = (
    Command("set", "Set what the command line remembers.", "runai_v2.account:set_config", flags=(
        Flag("--cp-url", "text", "a server on another machine; then log in", value="URL"),
        Flag("--ca-file", "text", "its certificate authority (ca.crt of its data directory), which is copied", value="FILE"),
        Flag("--auth-url", "text", "", value="URL", refuse="the server that --cp-url names logs people in itself"),
        Flag("--output", "table|json|yaml", "how lists are printed"),
        Flag("--interactive", _SWITCH, "ask before workloads are deleted, at a terminal"),
        Flag("--auto-update", _SWITCH, "rowlock never updates itself"),
        Flag("--status-timeout-duration", "text", "", value="DURATION", refuse="a status is answered at once: nothing waits"),
        Flag("--list-format-align", _SWITCH, "lists are always aligned"),
        Flag("--update-shell", "text", "", value="SHELL", refuse="`runai completion bash` prints what your shell needs"),
        DATA_DIR,
    )),
    Command("describe", "Show what the command line remembers.", "runai_v2.account:describe_config", flags=(
        Flag("--json", "switch", "print JSON"), Flag("--yaml", "switch", "print YAML"), DATA_DIR,
    )),
    Command("generate", "Write what the command line remembers to a file.", "runai_v2.account:generate_config", flags=(
        Flag("-f --file", "text", "the file, .json or .yaml", value="FILE"), DATA_DIR,
    )),
)  # fmt: skip
OTHERS: tuple[Command | Group, ...] = (
    AUTH,
    Group("kubeconfig", "The cluster in kubectl's own configuration.", (
        Command("set", "Add the cluster and make it kubectl's current context.", "runai_v2.account:set_kubeconfig", flags=(
            Flag("--username", "text", "the name of the user's entry", value="NAME"), DATA_DIR,
        )),
    )),
    Command("upgrade", "Update the command line.", "", refuse=NO_UPDATE),
    Group("report", "Metrics that programs report.", (
        Command("metrics", "Report metrics.", "", refuse=(
            "a program prints them, as `step=10 loss=0.31`: `rowlock plot JOB` draws what the log has"
        )),
    )),
    Group("diagnostics", "What went wrong.", (
        Command("collect-logs", "Collect logs.", "", refuse=(
            "logs of the server and of jobs lie in the data directory already; `rowlock doctor` checks this machine,"
            " `rowlock why JOB` a job"
        )),
    )),
)  # fmt: skip
FAMILIES: tuple[Group, ...] = (DISTRIBUTED, TRAINING, *_FRAMEWORKS, WORKLOAD, WORKSPACE, INFERENCE)
