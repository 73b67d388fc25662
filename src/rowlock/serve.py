"""The server's entry point: what `rowlock up` runs. It parses, starts what can start beside it, and hands over to `assembly.py`.

    python -m rowlock.serve --data-dir D [--port P] [--nodes N] …

It is light on purpose: while the heavy modules are imported here, a child process makes or checks the certificates
(`http_server/certificates.py`), so that the server itself never loads the cryptography library. `rowlock up` waits for us.
"""

from __future__ import annotations

import argparse
import gc
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rowlock.authentication.oidc import settings as oidc_settings
from rowlock.errors import ApiError, BadRequest
from rowlock.server_log import configure_logging

gc.disable()  # hundreds of modules are made now and none of them is garbage; assembly.py switches it on again

OPTIONAL_PARTS = ("kubelet", "scheduler")
"""What a cluster can be started without."""


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The flags of `rowlock up`, which has checked them already."""
    parser = argparse.ArgumentParser(prog="python -m rowlock.serve", description="Serve an embedded cluster.")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--kubeconfig", type=Path, help="serve the real cluster of this file, not an embedded one")
    parser.add_argument("--context", default="", help="the kubeconfig's context; default: its current one")
    parser.add_argument("--install-crds", action="store_true", help="create the kinds Queue and PodGroup there")
    parser.add_argument("--scheduler", default="auto", help="a name of gangs/dialects.py, or auto")
    parser.add_argument("--operator", choices=("kubeflow", "own"), default="kubeflow")
    parser.add_argument(
        "--archive", default="", help="s3://BUCKET/PREFIX or file:///DIRECTORY: the archive of several servers"
    )
    parser.add_argument("--debug-image", default="", help='of debug containers in pods without py-spy; "" = none')
    parser.add_argument(
        "--tls-cert", type=Path, help="the certificate for clients that name the server of a real cluster"
    )
    parser.add_argument("--tls-key", type=Path, help="its key")
    parser.add_argument("--port", type=int, default=0, help="0 = the port of last time if it is free, else any")
    parser.add_argument(
        "--bind", default="", help="another address to listen on besides loopback; needs --users or --kubeconfig"
    )
    parser.add_argument("--users", type=Path, help="a file of lines token,user,uid,groups, for its owner's eyes only")
    parser.add_argument("--system", type=Path, help="users of this machine log in at a socket in this directory")
    parser.add_argument("--ui-address", default="", help="ADDRESS[:PORT] at which others reach the web UI over HTTPS")
    parser.add_argument("--ui-cert", type=Path, help="the certificate of the web UI there; default: the server's own")
    parser.add_argument("--ui-key", type=Path, help="its key")
    oidc_settings.add_arguments(parser)
    parser.add_argument("--tls-san", default="", help="more names for the certificate, comma-separated")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--pretend-nodes", type=int, default=0)
    parser.add_argument("--half-life", type=float, default=0.0, help="of time-based fair share in seconds; 0 = off")
    parser.add_argument("--gpus-per-node", type=int, default=None)
    parser.add_argument("--simulated-gpus", type=int, default=0)
    parser.add_argument("--cpus-per-node", type=float, default=None)
    parser.add_argument("--max-pods", type=int, default=1000, help="pods that each node holds")
    parser.add_argument("--host-ports", default="", help="ports of loopback that pods reach, with commas between them")
    parser.add_argument("--network", choices=("auto", "namespaces", "rewrite"), default="auto")
    parser.add_argument("--runtime", choices=("auto", "process", "container"), default="auto")
    parser.add_argument("--warm-start", choices=("auto", "off"), default="auto")
    parser.add_argument("--log-limit", type=int, default=50 << 20, help="bytes of a container's log that are kept")
    parser.add_argument("--pids-limit", type=int, default=0, help="processes and threads of a container; 0 = no limit")
    parser.add_argument("--event-ttl", type=float, default=3600.0, help="seconds after an Event was last seen")
    parser.add_argument("--keep-checkpoints", type=float, default=7 * 86400, help="seconds after a job was deleted")
    parser.add_argument("--keep-runs", type=float, default=90 * 86400, help="seconds after the end of a run")
    parser.add_argument("--archive-size", type=int, default=4 << 30, help="bytes of the archive")
    parser.add_argument(
        "--accept-loss", action="store_true", help="go on with a database that lacks changes it once had"
    )
    parser.add_argument("--restart-backoff", type=float, default=10.0, help="seconds before a second restart")
    parser.add_argument("--parity", choices=("default", "strict", "fixed"), default="default")
    parser.add_argument(
        "--without", default="", help=f"comma-separated parts to leave out: {', '.join(OPTIONAL_PARTS)}"
    )
    return parser.parse_args(argv)


def prepare_data_dir(data_dir: Path) -> None:
    """The directory, for its owner alone: it holds Secrets, tokens and logs. Raises BadRequest, OSError."""
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    mode = stat.S_IMODE(data_dir.stat().st_mode)
    if not mode & 0o077:
        return
    if any(data_dir.iterdir()) and not any((data_dir / name).exists() for name in _OUR_FILES):
        raise BadRequest(
            f"{data_dir} holds other files and is open to other users (mode {mode:04o}), but a data directory holds Secrets:"
            " choose a directory of its own with --data-dir, or close this one with `chmod 700`"
        )
    data_dir.chmod(0o700)


_OUR_FILES = ("cluster.db", "lock", "config.json", "server.log")
"""A directory with one of these is a data directory already."""


def start_certificates(data_dir: Path, names: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """A child that makes what is missing or old; quick where nothing is. `names` are the server's besides loopback's."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "rowlock.http_server.certificates", str(data_dir), *names], stderr=subprocess.PIPE
    )


def external_names(options: argparse.Namespace) -> list[str]:
    """What others may call the server, when they can reach it. Raises ApiError: without users nobody else may."""
    provider = oidc_settings.parse_settings(options)
    _check_certificate("--tls-cert", options.tls_cert, "--tls-key", options.tls_key)
    if not (options.bind or options.users or options.tls_san or options.ui_address):
        return []
    from rowlock.authentication import users
    from rowlock.http_server import sockets  # late: most servers are for their owner alone

    bind, ui_address = sockets.parse_bind(options.bind), sockets.parse_ui_address(options.ui_address)[0]
    has_accounts = (options.data_dir / "accounts.json").exists()
    if ui_address and not (options.users or has_accounts or provider):
        raise BadRequest(
            f"--ui-address {options.ui_address} lets other users see the login page, but there is nobody who could log in: make users with"
            " `rowlock user create NAME` first, without --ui-address, or name an identity provider with --oidc-issuer-url URL"
        )
    _check_ui_certificate(options)
    if bind and not options.users and not has_accounts and provider is None and options.kubeconfig is None:
        raise BadRequest(
            f"--bind {options.bind} lets other users connect, but the owner's token is for the owner alone: make users with"
            ' `rowlock user create NAME` first, without --bind, or name users with --users FILE, a file that only you can read (chmod 600), with a line `token,user,uid,"group,group"` for'
            " each; `openssl rand -hex 32` makes a token, the group system:masters may do everything, rowlock:viewers read"
        )
    if options.users:
        users.read_token_file(options.users)
    names = [*sockets.server_names(bind, options.tls_san), *sockets.server_names(ui_address, options.tls_san)]
    return list(dict.fromkeys(names))


def _check_ui_certificate(options: argparse.Namespace) -> None:
    """Raises BadRequest, before anything is started."""
    if options.ui_cert is not None and options.ui_key is not None and not options.ui_address:
        raise BadRequest(
            "--ui-cert is the certificate of the web UI beyond loopback: it needs --ui-address ADDRESS[:PORT]"
        )
    _check_certificate("--ui-cert", options.ui_cert, "--ui-key", options.ui_key)


def _check_certificate(flag: str, certificate: Path | None, key_flag: str, key: Path | None) -> None:
    """Raises BadRequest where one of the two is missing, or they cannot be used."""
    if (certificate is None) != (key is None):
        raise BadRequest(f"{flag} and {key_flag} go together: a certificate in PEM, with its chain, and its key")
    if certificate is None or key is None:
        return
    from rowlock.http_server.tls import server_context  # late: most servers make their own

    try:
        server_context(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        raise BadRequest(f"{flag} {certificate} and {key_flag} {key} cannot be used: {error}") from None


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 after an orderly stop, 1 with one sentence when it cannot start."""
    options = parse_arguments(argv)
    configure_logging()
    unknown_parts = {part for part in options.without.split(",") if part} - set(OPTIONAL_PARTS)
    if unknown_parts:
        print(
            f"error: --without takes {', '.join(OPTIONAL_PARTS)}, not {', '.join(sorted(unknown_parts))}",
            file=sys.stderr,
        )
        return 1
    try:
        prepare_data_dir(options.data_dir.absolute())
        if options.kubeconfig == Path("in-cluster"):
            from rowlock.kube.install.in_cluster import write_kubeconfig  # late: few servers are in a pod

            options.kubeconfig = write_kubeconfig(options.data_dir.absolute())
        certificate_process = start_certificates(options.data_dir.absolute(), external_names(options))
    except ApiError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {options.data_dir} cannot be used: {error.strerror}: choose another --data-dir", file=sys.stderr)
        return 1
    from rowlock.assembly import serve  # late: the child works while this is imported

    if options.kubeconfig is None:
        return serve(options, certificate_process)
    from rowlock.kube_assembly import KubeServer

    return serve(options, certificate_process, KubeServer)


if __name__ == "__main__":
    sys.exit(main())
