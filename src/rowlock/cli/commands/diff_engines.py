"""`diff-engines`: one job on the embedded cluster of the data directory and on a real one."""

from __future__ import annotations

import os

from rowlock.cli.context import data_dir
from rowlock.cli.grammar import CommandError, CommandLine, load_target
from rowlock.cli.output import parse_duration
from rowlock.cli.server_json import running_server


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
    return int(run(line.file, embedded, line.kubeconfig, context=line.context or "", wait=wait))
