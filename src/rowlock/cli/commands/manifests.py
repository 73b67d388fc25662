"""`manifests`: what rowlock needs on a real cluster. It does not use a server."""

from __future__ import annotations

from rowlock.cli.grammar import CommandError, CommandLine, load_target

_SERVER_FLAGS = ("storage", "ingress_host", "replicas", "archive_secret", "archive_claim", "archive_port", "tls_secret")
"""Flags that apply only to a server in the cluster."""


def manifests(line: CommandLine) -> int:
    """Print what a real cluster needs for rowlock: kinds, rights, priority classes. For `kubectl apply -f -`."""
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
    return 0
