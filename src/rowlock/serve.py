"""The server's entry point, which `rowlock up` runs: parses flags, starts the certificate process, and calls `assembly.py`.

    python -m rowlock.serve --data-dir D [--port P] [--nodes N] …

It imports little at first: while the heavy modules are imported here, a child process makes or checks the certificates
(`http_server/certificates.py`), so that the server itself never loads the cryptography library. `rowlock up` waits for it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import resource
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rowlock.authentication.oidc import settings as oidc_settings
from rowlock.errors import ApiError, BadRequest, Unavailable
from rowlock.http_server.shortages import CANNOT_START, few_files_sentence, shortage_sentence
from rowlock.server_settings import DEFAULTS, OPTIONAL_PARTS, SETTINGS, ServerSettings, flag_name

gc.disable()  # importing hundreds of modules makes no garbage; `heap_collector.tune` enables it again


def parse_arguments(argv: list[str] | None = None) -> ServerSettings:
    """Parse the flags of `rowlock up`, which has already validated them; durations are in seconds here, sizes in bytes."""
    parser = argparse.ArgumentParser(prog="python -m rowlock.serve", description="Serve a cluster.")
    parser.add_argument("--data-dir", type=Path, required=True)
    for name, row in SETTINGS.items():
        text = row.help.replace("%", "%%")
        if row.kind == "switch":
            parser.add_argument(flag_name(name), action="store_true", help=text)
        else:
            choices = row.kind.split("|") if "|" in row.kind else None
            parse = _PARSERS.get(row.kind, str)
            parser.add_argument(flag_name(name), type=parse, default=DEFAULTS[name], choices=choices, help=text)
    return ServerSettings(**vars(parser.parse_args(argv)))


_PARSERS: dict[str, Callable[[str], Any]] = {"int": int, "size": int, "duration": float, "file": Path}


def prepare_data_dir(data_dir: Path) -> None:
    """Create the directory, or restrict it to its owner: it holds Secrets, tokens and logs. Raises BadRequest, OSError."""
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
"""A directory with one of these files is a data directory."""


def start_certificates(data_dir: Path, names: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start the child process that makes missing or old certificates. `names`: the server's names besides loopback's."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "rowlock.http_server.certificates", str(data_dir), *names], stderr=subprocess.PIPE
    )


def external_names(options: ServerSettings) -> list[str]:
    """The names under which other machines reach the server, if they can. Raises ApiError if the server has no users for that."""
    provider = oidc_settings.parse_settings(options)
    if options.notify or options.notify_key_file or options.notify_allow:
        from rowlock.rest.notifications.settings import notify_settings  # late: most servers notify nobody

        notify_settings(options)
    _check_certificate("--tls-cert", options.tls_cert, "--tls-key", options.tls_key)
    if not (options.bind or options.users or options.tls_san or options.ui_address):
        return []
    from rowlock.authentication import users
    from rowlock.http_server import sockets  # late: most servers listen on loopback only

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


def _check_ui_certificate(options: ServerSettings) -> None:
    """Check the web UI's certificate before anything is started. Raises BadRequest."""
    if options.ui_cert is not None and options.ui_key is not None and not options.ui_address:
        raise BadRequest(
            "--ui-cert is the certificate of the web UI beyond loopback: it needs --ui-address ADDRESS[:PORT]"
        )
    _check_certificate("--ui-cert", options.ui_cert, "--ui-key", options.ui_key)


def _check_certificate(flag: str, certificate: Path | None, key_flag: str, key: Path | None) -> None:
    """Raise BadRequest if only one of certificate and key is given, or they cannot be used."""
    if (certificate is None) != (key is None):
        raise BadRequest(f"{flag} and {key_flag} go together: a certificate in PEM, with its chain, and its key")
    if certificate is None or key is None:
        return
    from rowlock.http_server.tls import server_context  # late: most servers use self-made certificates

    try:
        server_context(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        raise BadRequest(f"{flag} {certificate} and {key_flag} {key} cannot be used: {error}") from None


# ---------------------------------------------------------------- the log: one line a message, and no flood of the same one

BURST = 20
"""The most log lines from one place in the code in one `WINDOW`."""
WINDOW = 10.0  # seconds
_MAX_KINDS = 1_000
# Log lines contain untrusted names and messages: control characters are escaped, so that they cannot forge lines.
_UNPRINTABLE = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: chr(code).encode("unicode_escape").decode() for code in _UNPRINTABLE}


class LineFormatter(logging.Formatter):
    """Formats time, level, logger and message; a traceback goes below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname).1s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.translate(_ESCAPES)
        return super().formatMessage(record)


@dataclass(slots=True)
class _Window:
    begin: float
    written: int = 0
    dropped: int = 0


class RateLimit(logging.Filter):
    """Allows `BURST` lines of a kind per `WINDOW`; the next line that is written says how many were dropped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: dict[tuple[str, int], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, kind = self._clock(), (record.pathname, record.lineno)
        window = self._windows.get(kind)
        if window is None or now - window.begin >= WINDOW:
            if window is not None and window.dropped:
                record.msg = f"{record.getMessage()} ({window.dropped} lines like this one were left out)"
                record.args = ()
            if len(self._windows) >= _MAX_KINDS:
                self._windows.clear()
            window = self._windows[kind] = _Window(now)
        if window.written >= BURST:
            window.dropped += 1
            return False
        window.written += 1
        return True


class BoundedLog(logging.StreamHandler[TextIO]):
    """stderr; where it is `file`, a log of `longest` bytes is renamed to `….1` in place of the one before it, and a new one begun."""

    def __init__(self, file: Path, longest: int = 16 << 20) -> None:
        super().__init__()
        self._file, self._longest = file, longest

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        with contextlib.suppress(OSError):  # a full disk, a file that somebody moved: the next line tries again
            written = os.fstat(self.stream.fileno())
            if written.st_size > self._longest and os.path.samestat(written, os.stat(self._file)):
                self._begin_anew(written)

    def _begin_anew(self, written: os.stat_result) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        streams = [number for number in (1, self.stream.fileno()) if os.path.samestat(os.fstat(number), written)]
        os.replace(self._file, f"{self._file}.1")
        with open(os.open(self._file, flags, 0o600), "ab") as new:
            for number in streams:
                os.dup2(new.fileno(), number)


def configure_logging(data_dir: Path) -> None:
    """Log level INFO and above to stderr, rate limited."""
    handler = BoundedLog(data_dir / "server.log")
    handler.setFormatter(LineFormatter())
    handler.addFilter(RateLimit())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def main(argv: list[str] | None = None) -> int:
    """Run the server. Exit code 0 after a graceful stop, 1 with one sentence when it cannot start."""
    options = parse_arguments(argv)
    configure_logging(options.data_dir)
    unknown_parts = {part for part in options.without.split(",") if part} - set(OPTIONAL_PARTS)
    if unknown_parts:
        print(
            f"error: --without takes {', '.join(OPTIONAL_PARTS)}, not {', '.join(sorted(unknown_parts))}",
            file=sys.stderr,
        )
        return 1
    try:
        if few := few_files_sentence(resource.getrlimit(resource.RLIMIT_NOFILE)[1]):
            raise Unavailable(few)
        prepare_data_dir(options.data_dir.absolute())
        if options.kubeconfig == Path("in-cluster"):
            from rowlock.kube.install.in_cluster import write_kubeconfig  # late: few servers run in a pod

            options = options._replace(kubeconfig=write_kubeconfig(options.data_dir.absolute()))
        certificate_process = start_certificates(options.data_dir.absolute(), external_names(options))
    except ApiError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    except OSError as error:
        shortage = shortage_sentence(error, options.data_dir)
        unusable = f"{options.data_dir} cannot be used: {error.strerror}: choose another --data-dir"
        print(f"error: {f'{CANNOT_START}: {shortage}' if shortage else unusable}", file=sys.stderr)
        return 1
    from rowlock.assembly import serve  # late: the child process runs during this import

    if options.kubeconfig is None:
        return serve(options, certificate_process)
    from rowlock.kube_assembly import KubeServer

    return serve(options, certificate_process, KubeServer)


if __name__ == "__main__":
    sys.exit(main())
