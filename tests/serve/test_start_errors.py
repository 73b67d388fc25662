"""What a server that cannot start says: the cause, and what helps against that one."""

from __future__ import annotations

import errno
import os
import resource
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rowlock.assembly import _describe_os_error
from rowlock.errors import Unavailable
from rowlock.http_server.shortages import LEAST_OPEN_FILES, few_files_sentence, find_shortage
from rowlock.kubelet.shim import cgroups
from rowlock.server_settings import ServerSettings

OPTIONS = ServerSettings(port=8443, data_dir=Path("/data"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EADDRINUSE, "Address already in use"), "port 8443 is taken: choose another with --port"),
        (
            ssl.SSLError(116, "[X509: KEY_VALUES_MISMATCH] key values mismatch"),
            "remove /data/server.crt, /data/server.key",
        ),
    ],
)
def test_the_advice_fits_the_error(error: OSError, said: str) -> None:
    text = _describe_os_error(error, OPTIONS)
    assert said in text
    assert ("--port" in text) == (error.errno == errno.EADDRINUSE)


def raised(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/data/wake"), "the disk of /data/wake has no room"),
        (OSError(errno.EROFS, "Read-only file system", "/data/lock"), "the file system of /data/lock is read-only: remount it for writing"),
        (OSError(errno.EMFILE, "Too many open files", "/data/pods"), "it may open no more files"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "it may start no more processes or threads"),
        (RuntimeError("can't start new thread"), "it may start no more processes or threads"),
        (RuntimeError("another one"), ""),
        (raised(Unavailable("no lock"), OSError(errno.ENOSPC, "No space left on device")), "has no room for another file"),
        (raised(Unavailable("another server"), BlockingIOError(errno.EAGAIN, "it is locked")), ""),
        (ExceptionGroup("two", [KeyError("a"), RuntimeError("can't start new thread")]), "no more processes or threads"),
        (ExceptionGroup("two", [KeyError("a"), KeyError("b")]), ""),
    ],
)  # fmt: skip
def test_what_there_is_too_little_of_is_found_wherever_it_shows(
    error: BaseException, said: str, tmp_path: Path
) -> None:
    found = find_shortage(error, tmp_path)
    assert said in found and bool(said) == bool(found)


@pytest.mark.parametrize(("most", "is_refused"), [(8, True), (LEAST_OPEN_FILES - 1, True), (LEAST_OPEN_FILES, False), (resource.RLIM_INFINITY, False)])  # fmt: skip
def test_a_server_that_may_open_few_files_is_not_started(most: int, is_refused: bool) -> None:
    assert bool(few_files_sentence(most)) == is_refused


def start(data: Path, *, before: Callable[[], None] | None = None, prefix: tuple[str, ...] = ()) -> tuple[int, str]:
    """The code and the words of a server that cannot start."""
    argv = [*prefix, sys.executable, "-P", "-m", "rowlock.serve", "--data-dir", str(data), "--without", "kubelet"]
    done = subprocess.run(argv, preexec_fn=before, capture_output=True, text=True, timeout=110)
    return done.returncode, done.stderr + done.stdout


@pytest.mark.parametrize("most", [24, 64])
def test_a_start_without_descriptors_says_so(tmp_path: Path, most: int) -> None:
    code, said = start(tmp_path / "data", before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
    assert code == 1 and "the server cannot start: it may open no more files" in said and "ulimit -n" in said, said
    assert "Traceback" not in said


MOUNTED = """
mount -t tmpfs -o nr_inodes="$1",mode=700 tmpfs "$2" || exit 77
shift 2
exec "$@"
"""


@pytest.mark.parametrize("inodes", [3, 8, 11])
def test_a_start_without_inodes_says_so(tmp_path: Path, inodes: int) -> None:
    flags = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    code, said = start(
        tmp_path, prefix=("unshare", *flags, "--mount", "sh", "-c", MOUNTED, "sh", str(inodes), str(tmp_path))
    )
    if code == 77 or "unshare" in said:
        pytest.skip(f"nothing can be mounted here: {said}")
    assert code == 1 and "has no room for another file" in said and "`df -i` counts inodes" in said, said
    assert "Traceback" not in said


READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 77
shift
exec "$@"
"""


@pytest.mark.parametrize("is_used", [False, True])
def test_a_start_on_a_read_only_file_system_says_so(tmp_path: Path, is_used: bool) -> None:
    if is_used:
        (tmp_path / "lock").touch()
        tmp_path.chmod(0o700)
    flags = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    data = tmp_path if is_used else tmp_path / "data"
    code, said = start(data, prefix=("unshare", *flags, "--mount", "sh", "-c", READ_ONLY, "sh", str(tmp_path)))
    if code == 77 or "unshare" in said:
        pytest.skip(f"nothing can be mounted here: {said}")
    assert code == 1 and "is read-only: remount it for writing" in said and "remove that file" not in said, said
    assert "Traceback" not in said


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_start_without_processes_says_so(tmp_path: Path, most: int) -> None:
    if os.geteuid() or cgroups.detect_backend() == "watchdog":
        pytest.skip("control groups cannot be written here")
    backend, name = cgroups.detect_backend(), f"start.{os.getpid()}.{most}"
    if cgroups.probe_pids(backend):
        pytest.skip("control groups cannot be written here")
    group = cgroups.Cgroup.make(name, {"how": backend, "pids": most})
    try:
        code, said = start(tmp_path / "data", before=lambda: cgroups.join_group(group.procs_files))
    finally:
        group.remove()
    assert code == 1 and "it may start no more processes or threads" in said and "ulimit -u" in said, said
    assert "Traceback" not in said
