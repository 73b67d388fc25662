"""`manifests`: runs the program that knows what rowlock needs on a real cluster. It does not use a server."""

from __future__ import annotations

import os
import sys

from rowlock.cli.grammar import CommandError, CommandLine

_SERVER_FLAGS = ("storage", "ingress_host", "replicas", "archive_secret", "archive_claim", "archive_port", "tls_secret")
"""Those of the server in the cluster."""


def manifests(line: CommandLine) -> int:
    """Print what a real cluster needs for rowlock: kinds, rights, priority classes. For `kubectl apply -f -`."""
    sys.stdout.flush()
    given = [name for name in _SERVER_FLAGS if name in line.given_flags]
    if given and not line.image:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise CommandError(
            f"{flags} {'is' if len(given) == 1 else 'are'} of the server in the cluster: name its image with --image IMAGE",
            2,
        )
    if line.replicas < 1:
        raise CommandError(f"--replicas must be at least 1, but is {line.replicas}", 2)
    if line.replicas > 1 and not line.archive:
        raise CommandError(
            "--replicas above 1 need one archive for all of them, since a volume is that of one pod: --archive s3://BUCKET/PREFIX",
            2,
        )
    for name in ("archive_secret", "archive_claim"):
        if name in given and not line.archive:
            raise CommandError(f"--{name.replace('_', '-')} is of the storage that --archive names: give both", 2)
    argv = ["--scheduler", line.scheduler, "--operator", line.operator, "--archive", line.archive or ""]
    argv += ["--credentials"] if line.credentials else []
    argv += ["--debug-image", line.debug_image] if line.debug_image else []
    if line.image:
        argv += ["--image", line.image]
        for name in _SERVER_FLAGS:
            argv += [f"--{name.replace('_', '-')}", str(getattr(line, name) or "")]
        argv += ["--service-monitor"] if line.service_monitor else []
    elif line.service_monitor:
        raise CommandError("--service-monitor is of the server in the cluster: name its image with --image IMAGE", 2)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "rowlock.kube.manifests", *argv])
