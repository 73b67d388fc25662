"""Commands that work without the server's help: `manifests`, `backup`, `restore` and `diff-engines` call functions of the package, `skill`
prints a file of it.

`backup` and `restore` read and write the database themselves.
"""

from __future__ import annotations

import os
from importlib import resources

from rowlock.cli.context import data_dir
from rowlock.cli.grammar import CommandError, CommandLine, load_target
from rowlock.cli.output import parse_duration, show
from rowlock.cli.server_json import running_server

_SERVER_FLAGS = ("storage", "ingress_host", "replicas", "archive_secret", "archive_claim", "archive_port", "tls_secret")
"""Flags that apply only to a server in the cluster."""


def skill(line: CommandLine) -> None:
    show(resources.files("rowlock.cli").joinpath("SKILL.md").read_text(encoding="utf-8").rstrip())


def manifests(line: CommandLine) -> None:
    given = [name for name in _SERVER_FLAGS if name in line.given_flags]
    if given and not line.image:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise CommandError(
            f"{flags} {'is' if len(given) == 1 else 'are'} of the server in the cluster: name its image with --image IMAGE",
            2,
        )
    if line.replicas < 1:
        raise CommandError(f"--replicas must be at least 1, but is {line.replicas}", 2)
    if not 0 < line.archive_port < 65536:
        raise CommandError(f"--archive-port must be between 1 and 65535, but is {line.archive_port}", 2)
    if line.replicas > 1 and not line.archive:
        raise CommandError(
            "--replicas above 1 need one archive for all of them, since a volume is that of one pod: --archive s3://BUCKET/PREFIX",
            2,
        )
    for name in ("archive_secret", "archive_claim"):
        if name in given and not line.archive:
            raise CommandError(f"--{name.replace('_', '-')} is of the storage that --archive names: give both", 2)
    if line.service_monitor and not line.image:
        raise CommandError("--service-monitor is of the server in the cluster: name its image with --image IMAGE", 2)
    load_target("rowlock.kube.manifests:print_manifests")(
        credentials=line.credentials,
        monitor=line.service_monitor,
        **{name: getattr(line, name) or "" for name in ("scheduler", "operator", "image", "archive", "debug_image")},
        **{name: getattr(line, name) or "" for name in _SERVER_FLAGS},
    )


def create(line: CommandLine) -> int:
    return int(load_target("rowlock.storage.backup:print_backup")(data_dir(line), line.word("file"), as_json=line.json))


def restore(line: CommandLine) -> int:
    return int(
        load_target("rowlock.storage.backup:print_restore")(data_dir(line), line.word("file"), as_json=line.json)
    )


def diff_engines(line: CommandLine) -> int:
    directory = data_dir(line)
    server_json = running_server(directory)
    if server_json is None:
        raise CommandError(
            f"no server runs in {directory}: `rowlock up -d` starts an embedded cluster to compare with", 2
        )
    if (server_json.get("flags") or {}).get("kubeconfig") is not None:
        raise CommandError(
            f"the server of {directory} serves a real cluster: name the data directory of an embedded one with --data-dir",
            2,
        )
    if not line.kubeconfig or not line.file:
        raise CommandError("name the job's manifest with -f FILE, and the real cluster with --kubeconfig FILE", 2)
    run = load_target("rowlock.kube.comparison.engines:print_differences")
    embedded, wait = os.path.join(directory, "kubeconfig"), parse_duration(line.wait, "--wait")
    return int(
        run(line.file, embedded, line.kubeconfig, context=line.context or "", wait=wait, as_json=bool(line.json))
    )
