"""The settings of a server: one row per flag of `rowlock up`, with its type, default, unit, help and kinds of clusters.

Derived from it: the flags of `rowlock up`, how the server's process parses its own command line, what `server.json` records, the
command that starts the server again, and the command reference. A new flag is a new row. The values are `ServerSettings`, a tuple.
Literals and the standard library's `typing` only: the command lines import it, and their start must stay fast.
"""

from typing import TYPE_CHECKING, Annotated, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Setting(NamedTuple):
    """The properties of one flag, other than its name and default.

    `kind` is text, int, switch, duration (seconds), size (bytes), file, or the allowed words joined by `|`. `value` is how the value
    is called in the help. `cluster` says which clusters have it: embedded, real or both."""

    help: str
    kind: str = "text"
    value: str = ""
    cluster: str = "embedded"
    minimum: float | None = None
    maximum: float | None = None
    once: bool = False
    """Whether the setting is for this start only: the command that restarts the server omits it."""
    internal: bool = False
    """Whether `rowlock up` has no such flag, but sets the value itself, or tests do."""


OPTIONAL_PARTS = ("kubelet", "scheduler")
"""The parts that `--without` can disable."""
_REAL = "with --kubeconfig: "


# fmt: off
class ServerSettings(NamedTuple):
    """The values of all flags. A field is a flag: `max_pods` is `--max-pods`. The order is that of the help page."""

    data_dir: "Path"
    kubeconfig: Annotated["Path | None", Setting("serve the real Kubernetes cluster of this file, not one on this machine; in-cluster: that of this pod", "file", "FILE", "real")] = None
    context: Annotated[str, Setting(_REAL + "the context (default: the file's current one)", "text", "NAME", "real")] = ""
    install_crds: Annotated[bool, Setting(_REAL + "create the kinds Queue and PodGroup if the cluster lacks them", "switch", cluster="real", once=True)] = False
    scheduler: Annotated[str, Setting(_REAL + "which scheduler places pods: the installed gang scheduler (auto), rowlock's (own), one of these, or the default one (kube)", "auto|own|kai|volcano|kueue|coscheduling|kube|cluster", cluster="real")] = "auto"
    operator: Annotated[str, Setting(_REAL + "who makes the pods of jobs: Kubeflow's training operator, or rowlock where that is not installed", "kubeflow|own", cluster="real")] = "kubeflow"
    archive: Annotated[str, Setting(_REAL + "keep history and logs there, together with the other servers of the cluster: s3://BUCKET/PREFIX, or file:///DIRECTORY that all of them have", "text", "URL", "real")] = ""
    debug_image: Annotated[str, Setting(_REAL + "`rowlock why` adds a debug container of this image, which has Python and py-spy, to pods without py-spy; rowlock's own image has both", "text", "IMAGE", "real")] = ""
    tls_cert: Annotated["Path | None", Setting(_REAL + "the certificate that clients see who name the server; all servers behind one name need one", "file", "FILE", "real")] = None
    tls_key: Annotated["Path | None", Setting("its key", "file", "FILE", "real")] = None
    nodes: Annotated[int, Setting("number of nodes into which this machine is divided", "int", "N", minimum=1)] = 1
    gpus_per_node: Annotated[int | None, Setting("real GPUs per node (default: all GPUs, divided among the nodes)", "int", "G", minimum=0)] = None
    simulated_gpus: Annotated[int, Setting("simulated GPUs per node, to try jobs without real ones", "int", "G", minimum=0)] = 0
    cpus_per_node: Annotated[int | None, Setting("CPUs per node (default: all CPUs, divided among the nodes)", "int", "C", minimum=1)] = None
    max_pods: Annotated[int, Setting("number of pods that a node holds", "int", "N", minimum=1)] = 1000
    pids_limit: Annotated[int, Setting("processes and threads that each container may have (default: those of the machine)", "int", "N", minimum=1)] = 0
    host_ports: Annotated[str, Setting("ports of this machine's localhost that pods reach as host.rowlock.internal", "text", "PORT,...")] = ""
    port: Annotated[int, Setting("the HTTPS port on 127.0.0.1 (default: the same as last time, or a free one)", "int", "P", "both", minimum=1, maximum=65535, once=True)] = 0
    bind: Annotated[str, Setting("also listen on this address, for other users; needs --users or --kubeconfig", "text", "ADDRESS", "both")] = ""
    users: Annotated["Path | None", Setting('the users: a file (mode 0600) with lines token,user,uid,"group,group"', "file", "FILE")] = None
    ui_address: Annotated[str, Setting("also serve the web UI there, over HTTPS with a login page", "text", "ADDRESS[:PORT]")] = ""
    ui_cert: Annotated["Path | None", Setting("the web UI's certificate there, with its chain (default: self-made)", "file", "FILE")] = None
    ui_key: Annotated["Path | None", Setting("the key of --ui-cert", "file", "FILE")] = None
    oidc_issuer_url: Annotated[str, Setting("an identity provider (OpenID Connect) whose users may log in", "text", "URL")] = ""
    oidc_client_id: Annotated[str, Setting("the client id of this server at the provider", "text", "ID")] = ""
    oidc_client_secret_file: Annotated["Path | None", Setting("a file (mode 0600) with that client's secret, if it has one", "file", "FILE")] = None
    oidc_name: Annotated[str, Setting("what the login page calls the provider (default: its host)", "text", "NAME")] = ""
    oidc_username_claim: Annotated[str, Setting("the claim with a user's name (default: sub)", "text", "CLAIM")] = ""
    oidc_username_prefix: Annotated[str, Setting("before these names; - is none (default: oidc:)", "text", "PREFIX")] = ""
    oidc_groups_claim: Annotated[str, Setting("the claim with a user's groups (default: no groups)", "text", "CLAIM")] = ""
    oidc_groups_prefix: Annotated[str, Setting("before these groups; - is none (default: oidc:)", "text", "PREFIX")] = ""
    oidc_required_claim: Annotated[str, Setting("claims that a token must have (comma separated)", "text", "CLAIM=VALUE")] = ""
    oidc_ca_file: Annotated["Path | None", Setting("the certificate authority of the provider (default: the machine's)", "file", "FILE")] = None
    oidc_signing_algs: Annotated[str, Setting("accepted signature algorithms (comma separated; default: RS256,ES256)", "text", "LIST")] = ""
    tls_san: Annotated[str, Setting("additional names in the server's certificate (comma separated)", "text", "NAMES", "both")] = ""
    network: Annotated[str, Setting("a network namespace per pod, or rewritten names and ports", "auto|namespaces|rewrite")] = "auto"
    runtime: Annotated[str, Setting("run pods in Docker or Podman: if it has or can pull the image, never, always", "auto|process|container")] = "auto"
    warm_start: Annotated[str, Setting("fork programs that use torch from a process that has already imported it", "auto|off")] = "auto"
    without: Annotated[str, Setting("do not run these parts: kubelet, scheduler (comma separated)", "text", "LIST")] = ""
    half_life: Annotated[float, Setting("time-based fair share: usage this long ago counts half", "duration", "DURATION")] = 0.0
    log_limit: Annotated[int, Setting("how much of each container's log to keep (the newest part)", "size", "SIZE", minimum=1 << 20)] = 50 << 20
    keep_checkpoints: Annotated[float, Setting("how long to keep the checkpoints of a deleted job", "duration", "DURATION")] = 7 * 86400.0
    keep_runs: Annotated[float, Setting("how long the archive keeps a run after its end", "duration", "DURATION", "both")] = 90 * 86400.0
    archive_size: Annotated[int, Setting("how much the archive keeps; its oldest runs go first", "size", "SIZE", "both", minimum=16 << 20)] = 4 << 30
    notify: Annotated[str, Setting("tell this address what happens to all jobs: https://…, mailto:NAME@DOMAIN, command:/PATH; @FILE has it inside", "text", "URL", "both")] = ""
    notify_key_file: Annotated["Path | None", Setting("a file with the key that signs what --notify sends", "file", "FILE", "both")] = None
    notify_allow: Annotated[str, Setting("hosts of this machine and of private networks, and domains of e-mail, that jobs may notify (comma separated)", "text", "HOST:PORT|@DOMAIN,...", "both")] = ""
    event_ttl: Annotated[float, Setting("how long to keep an Event after it was last seen", "duration", "DURATION", minimum=1)] = 3600.0
    parity: Annotated[str, Setting("follow Kubeflow's training operator: closely, exactly, or with bugs fixed", "default|strict|fixed")] = "default"
    accept_loss: Annotated[bool, Setting("go on with a cluster.db that lacks changes it once had, and say what is lost", "switch", once=True)] = False
    pretend_nodes: Annotated[int, Setting("fake nodes that run no programs, to try the scheduler", "int", "N", minimum=1)] = 0
    system: Annotated["Path | None", Setting("users of this machine log in at a socket in this directory", "file", internal=True)] = None
    restart_backoff: Annotated[float, Setting("how long a second restart of a container waits", "duration", internal=True)] = 10.0
# fmt: on


SETTINGS: dict[str, Setting] = {
    name: kind.__metadata__[0] for name, kind in ServerSettings.__annotations__.items() if hasattr(kind, "__metadata__")
}
"""The row of each field except `data_dir`."""
DEFAULTS = ServerSettings._field_defaults


def flag_name(name: str) -> str:
    """`max_pods` as it is typed: `--max-pods`."""
    return f"--{name.replace('_', '-')}"


def typed_value(name: str, value: object) -> str:
    """A value as it is typed on the command line: `90d`, `50Mi`. Any JSON value of a damaged `server.json` has a text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    units = _UNITS.get(SETTINGS[name].kind, ((1, ""),))
    size, unit = next((one for one in units if value and value % one[0] == 0), (1, units[-1][1]))
    return f"{value / size:.12g}{unit}"


_UNITS: dict[str, tuple[tuple[int, str], ...]] = {
    "duration": ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")),
    "size": ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"), (1, "")),
}
