"""`manifests`: runs the program that knows what rowlock needs on a real cluster. It does not use a server."""

from __future__ import annotations

import os
import sys

from rowlock.cli.grammar import CommandError, CommandLine


def manifests(line: CommandLine) -> int:
    """Print what a real cluster needs for rowlock: kinds, rights, priority classes. For `kubectl apply -f -`."""
    sys.stdout.flush()
    if not line.image and (line.ingress_host or line.service_monitor or "storage" in line.given_flags):
        raise CommandError(
            "--storage, --ingress-host and --service-monitor are of the server in the cluster: name its image with --image IMAGE",
            2,
        )
    module = [sys.executable, "-P", "-m", "rowlock.kube.manifests"]
    server = ["--image", line.image, "--storage", line.storage, "--ingress-host", line.ingress_host or ""]
    server += ["--service-monitor"] if line.service_monitor else []
    os.execv(
        sys.executable,
        [
            *(*module, "--scheduler", line.scheduler, "--operator", line.operator),
            *(("--credentials",) if line.credentials else ()),
            *(server if line.image else ()),
        ],
    )
