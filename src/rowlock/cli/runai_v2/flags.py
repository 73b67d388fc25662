"""The flags that many verbs of the second generation share. The flags of its submits are rows of `rowlock.submit_fields`."""

from __future__ import annotations

from rowlock.cli.context import ATTACH_FLAGS, CONTAINER, DATA_DIR, EXEC_FLAGS, PORT_FORWARD_FLAGS, PROJECT
from rowlock.cli.grammar import Flag
from rowlock.cli.runai_v2.tree import OWN_TYPE
from rowlock.cli.submit.flags import ANY_FRAMEWORK, ENVIRONMENT_FIELDS, asset_flags, submit_flags

DISTRIBUTED = submit_flags(2, ANY_FRAMEWORK)
PYTORCH = submit_flags(2, "PyTorch")
TENSORFLOW = submit_flags(2, "TF")
MPI = submit_flags(2, "MPI")
XGBOOST = submit_flags(2, "XGBoost")
JAX = submit_flags(2, "JAX")
STANDARD = submit_flags(2, "Standard")

OUTPUT = (
    Flag("--table", "switch", "print a table (the default)"),
    Flag("--json", "switch", "print JSON"),
    Flag("--yaml", "switch", "print YAML"),
    Flag("--no-headers", "switch", "print no header"),
    Flag("--columns", "list", "the columns, in this order", value="NAME,NAME"),
    Flag("--raw", "switch", "print the server's answer as it is"),
    Flag(
        "--set-default-columns", "switch", "print these --columns from now on (without --columns: the usual ones again)"
    ),
)
PAGES = (
    Flag("--max-items", "int", "no more than N", value="N"),
    Flag("--page-size", "int", "how many are asked for at once", 100, value="N"),
    Flag("--next-token", "text", "begin where an earlier list ended", value="TOKEN"),
    Flag("--no-pagination", "switch", "everything at once (which is the default)"),
    Flag("--limit", "int", "no more than N", value="N"),
    Flag("--offset", "int", "leave out the first N", 0, value="N"),
)
LIST = (
    Flag("-A --all", "switch", "those of all projects"),
    Flag("--status", "text", "only those with this status", value="STATUS"),
    Flag("--deleted", "switch", "those that are deleted (`rowlock history` lists them, too)"),
    *PAGES, *OUTPUT, PROJECT, DATA_DIR,
)  # fmt: skip
WORKLOAD_LIST = (
    Flag("--type", "training|workspace|inference|distributed", "only those of this type"),
    Flag("--framework", "text", "only those of this framework", value="FRAMEWORK"),
    *LIST,
)  # fmt: skip
UUID = Flag("-u --uuid", "text", "the workload's id, instead of its name", value="UUID")
_TYPE = Flag("--type", "training|workspace|inference|distributed", "its type; another is not found")
_FRAMEWORK = Flag("--framework", "text", "its framework; another is not found", value="FRAMEWORK")
_YES = Flag("-y --yes", "switch", "do not ask")


def _section(name: str, text: str) -> Flag:
    return Flag(f"--{name}", "switch", text, True)


DESCRIBE = (
    Flag("-o --output", "table|json|yaml", "the output format", "table"),
    _section("general", "show the workload itself"),
    _section("compute", "show requested and allocated resources"),
    _section("pods", "show the pods"),
    _section("events", "show the events"),
    _section("networks", "show ports"),
    _section("storage", "show volumes"),
    Flag("--containers", "switch", "show the containers of the pods"),
    Flag("--pod-limit", "int", "no more than N pods; -1: all", 10, value="N"),
    Flag("--event-limit", "int", "no more than N events; -1: all", 50, value="N"),
    Flag("--sortEvents", "asc|desc", "the order of the events", "asc", hidden="--sort-events"),
    UUID, PROJECT, DATA_DIR,
)  # fmt: skip
WORKLOAD_DESCRIBE = (_TYPE, _FRAMEWORK, *DESCRIBE)
_WAITING = (
    Flag("--wait-timeout", "text", "wait this long for the pod to run", value="DURATION"),
    Flag("--pod-running-timeout", "text", "wait this long for the pod to run", value="DURATION"),
)
_POD = Flag("--pod", "text", "the pod (its name, or for example worker-1; default: the first rank's)", value="NAME")
LOGS = (
    _POD, CONTAINER,
    Flag("--name", "text", "the workload's name", value="NAME"),
    Flag("-f --follow", "switch", "keep printing until the pod ends"),
    Flag("--limit-bytes", "int", "no more than N bytes", value="N"),
    Flag("--previous", "switch", "the log before the last restart"),
    Flag("--since", "text", "only lines newer than this: 5s, 2m, 3h", value="DURATION"),
    Flag("--since-time", "text", "only lines newer than this time (RFC 3339)", value="TIME"),
    Flag("-t --tail", "int", "only the last N lines", -1, value="N"),
    Flag("--timestamps", "switch", "print the time before every line"),
    _WAITING[0], PROJECT, DATA_DIR,
)  # fmt: skip
POD = (_POD, CONTAINER, *_WAITING, PROJECT, DATA_DIR)
EXEC = (*EXEC_FLAGS, *POD)
ATTACH = (*ATTACH_FLAGS, *EXEC_FLAGS, *POD)
PORT_FORWARD = (*PORT_FORWARD_FLAGS, *POD)
DELETE = (UUID, _YES, PROJECT, DATA_DIR)
WORKLOAD_DELETE = (_TYPE, _FRAMEWORK, *DELETE)
STATE = (UUID, PROJECT, DATA_DIR)
RESOURCE_LIST = (*PAGES, *OUTPUT, DATA_DIR)
CREDENTIAL_LIST = (OWN_TYPE, *RESOURCE_LIST)
ASSET_LIST = (Flag("-A --all", "switch", "those of all projects"), *PAGES, *OUTPUT, PROJECT, DATA_DIR)
_SCOPE = (
    Flag("--scope", "project|department|cluster|tenant", "who may use it", "project"),
    Flag("--description", "text", "what it is for", value="TEXT"),
    PROJECT, DATA_DIR,
)  # fmt: skip
COMPUTE_ASSET = (*asset_flags("compute."), *_SCOPE)
ENVIRONMENT_ASSET = (*asset_flags(*ENVIRONMENT_FIELDS), *_SCOPE)
DATA_SOURCE_ASSET = (
    *asset_flags(
        "storage.hostPath",
        "storage.pvc",
        "storage.configMapVolume",
        "storage.secretVolume",
        "storage.git",
        "storage.nfs",
        "storage.s3",
    ),
    *_SCOPE,
)
_OF_ONE_SUBMIT = {
    "--name-prefix", "--template", "--attach", "--pod-running-timeout", "--wait-for-submit", "--compute",
    "--environment", "--dry-run", "--project", "--data-dir",
}  # fmt: skip
"""Flags of a submit that templates do not have: a template holds values, and can refer only to data sources, not to other assets."""
TEMPLATE = (
    Flag("--type", "distributed|training|workspace", "the workloads it is for", "distributed"),
    *(flag for flag in DISTRIBUTED if not _OF_ONE_SUBMIT & set(flag.names.split())),
    *_SCOPE,
)
