"""One step of a build, run in a child that has entered the image's root file system, so nothing outside is touched.

The child has its own namespaces for mounts, processes, System V objects and the host name, and only the privileges of a
container's root (Docker's default capabilities). It uses the machine's network, as a build needs it.
"""

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import stat
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rowlock.kubelet.files import beneath
from rowlock.kubelet.images.build_context import is_excluded
from rowlock.kubelet.mounts import calls, rootfs, volume_mounts
from rowlock.kubelet.mounts.rootfs import RootfsSpec
from rowlock.kubelet.shim import netns, process_tree

FAILED = 125
"""The exit code of a step that failed or could not be tried; it has printed why."""
_NEWUTS = 0x04000000
_DROP_CAPABILITY, _DIES_WITH_PARENT = 24, 1
_KEPT_CAPABILITIES = frozenset((0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))
"""Docker's default set, by number: chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service,
net_raw, sys_chroot, mknod, audit_write, setfcap."""
_LAST_CAPABILITY = 63
_IN_ROOT, _OPENAT2 = 0x10, 437
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_DOWNLOAD_SECONDS = 60.0


class StepFailed(Exception):
    """A step cannot be done; carries a sentence."""


@dataclass(frozen=True, slots=True)
class ImageUser:
    """The user of an image's steps and programs."""

    name: str = "root"
    uid: int = 0
    gid: int = 0
    home: str = "/root"
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RunStep:
    """A RUN step."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    user: ImageUser
    script: str = ""
    """A script to write to the file named by the last word of `argv`; "" = none."""


@dataclass(frozen=True, slots=True)
class CopyStep:
    """A COPY or ADD step."""

    sources: Sequence[str]
    """Paths below the source root, where links are resolved; for ADD also URLs."""
    target: str
    """Absolute; ends with a slash when it is a directory."""
    owner: str = ""
    """`user:group`, by names of the image or by number; "" = root."""
    mode: int | None = None
    unpack: bool = False
    parents: bool = False
    """Whether the sources keep their parent directories."""
    rules: Sequence[tuple[bool, Any]] = ()
    """Rules of files to leave out (`build_context.parse_dockerignore`)."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Files given in the Dockerfile itself: name → content."""


def run_in_root(
    spec: RootfsSpec,
    action: Callable[[], int],
    emit_line: Callable[[str], None],
    step_mounts: Sequence[Mapping[str, Any]] = (),
    before: Callable[[], None] = lambda: None,
) -> int:
    """Calls `action` in a child inside the root file system; returns its exit code. Its output is passed to `emit_line`.

    `before` is called in the child first, while it still sees the machine's root and may mount."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _become_child(writing)
        code = FAILED
        try:
            calls.unshare_mounts()
            before()
            rootfs.enter(spec, step_mounts)
            code = action()
        except (
            OSError,
            StepFailed,
            rootfs.RootfsError,
            volume_mounts.MountError,
            shutil.Error,
            tarfile.TarError,
        ) as error:
            os.write(2, f"{_sentence(error)}\n".encode())
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.close(writing)
    try:
        with open(reading, encoding="utf-8", errors="replace") as output:
            for line in output:
                emit_line(line.rstrip("\n"))
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    return process_tree.decode_wait_status(os.waitpid(child, 0)[1])[0]


def _become_child(output: int) -> None:
    os.setsid()
    netns.prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in enumerate((null, output, output)):
        os.dup2(source, target)
    sys.stdout = open(1, "w", buffering=1, closefd=False)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'the step'}: {error.strerror}"
    return str(error)


def remove_mount_points(targets: Sequence[str], layer: Path, below: Sequence[str]) -> None:
    """Removes mount points that were made for the step and did not exist before: they are not part of the image."""
    for target in targets:
        path = os.path.normpath(target)
        while path != "/" and not any(os.path.lexists(f"{lower}{path}") for lower in ("", *below)):
            made = Path(f"{layer}{path}")
            try:
                if made.is_dir() and not made.is_symlink():
                    made.rmdir()
                elif made.is_file() and not made.stat().st_size:
                    made.unlink()
            except OSError:  # the step wrote there, too
                break
            path = os.path.dirname(path)


def run_command(command: RunStep) -> int:
    """Runs the program as process 1 of a PID namespace: what it leaves running ends with it."""
    with contextlib.suppress(OSError):  # without privileges it shares the machine's
        calls.unshare(_NEWUTS | calls.NEWIPC | calls.NEWPID)
    child = os.fork()
    if child == 0:
        try:
            _exec(command)
        except OSError as error:
            os.write(2, f"{command.argv[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)
    return process_tree.decode_wait_status(os.waitpid(child, 0)[1])[0]


def _exec(command: RunStep) -> None:
    netns.prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    with contextlib.suppress(OSError):  # else it still sees the machine's processes
        calls.mount_proc()
        rootfs.protect_proc("/proc")
    os.makedirs(command.cwd, exist_ok=True)
    os.chdir(command.cwd)
    if command.script:
        script = command.argv[-1]
        with open(script, "w") as file:
            file.write(command.script)
        os.chmod(script, 0o755)
    os.umask(0o022)
    if os.geteuid() == 0:
        for number in range(_LAST_CAPABILITY + 1):
            if number not in _KEPT_CAPABILITIES:
                with contextlib.suppress(OSError):
                    netns.prctl(_DROP_CAPABILITY, number)
        os.setgroups(command.user.groups)
        os.setgid(command.user.gid)
        os.setuid(command.user.uid)
    netns.prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    os.execvpe(command.argv[0], list(command.argv), command.env)


def lookup_user(text: str) -> ImageUser:
    """A user of the image: `name`, `uid`, `name:group`, `uid:gid`. Called inside the root. Raises StepFailed."""
    name, _, group = text.partition(":")
    rows = _rows("/etc/passwd")
    row = next((r for r in rows if len(r) > 5 and name in (r[0], r[2])), None)
    if row is None and not (name.isascii() and name.isdigit()):
        raise StepFailed(f"unable to find user {name}: no matching entries in passwd file")
    groups = [r for r in _rows("/etc/group") if len(r) > 2]
    if row is None:
        user = ImageUser(name, int(name), 0, "/")
    else:
        member = tuple(int(g[2]) for g in groups if len(g) > 3 and row[0] in g[3].split(","))
        user = ImageUser(row[0], int(row[2]), int(row[3]), row[5] or "/", () if group else member)
    if not group:
        return user
    found = next((g for g in groups if group in (g[0], g[2])), None)
    if found is None and not (group.isascii() and group.isdigit()):
        raise StepFailed(f"unable to find group {group}: no matching entries in group file")
    return ImageUser(user.name, user.uid, int(found[2] if found else group), user.home)


def _rows(path: str) -> list[list[str]]:
    try:
        return [line.split(":") for line in Path(path).read_text(errors="replace").splitlines()]
    except OSError:
        return []


# ---------------------------------------------------------------- COPY and ADD


def open_in_root(root: int, path: str, flags: int) -> int:
    """A descriptor of `path` as a process whose root is `root` finds it. Raises OSError."""
    how = beneath.OpenHow(flags | os.O_CLOEXEC, 0, _IN_ROOT)
    try:
        return calls.syscall(_OPENAT2, root, os.fsencode(path) or b".", ctypes.byref(how), ctypes.sizeof(how))
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def make_directories(paths: Sequence[str]) -> int:
    """Makes directories that are missing. Called inside the root."""
    for path in paths:
        os.makedirs(path, exist_ok=True)
    return 0


def require_in_root(root: str, path: str) -> None:
    """Raises OSError if a process whose root is `root` would find nothing at `path`."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(open_in_root(fd, path, beneath.REFERENCE))
    finally:
        os.close(fd)


def copy_files(copy: CopyStep, root: int) -> int:
    """Copies from below the directory `root` into this root file system. Called inside it. Raises StepFailed or OSError."""
    owner = lookup_user(copy.owner or "0:0")
    ids = (owner.uid, owner.gid) if os.geteuid() == 0 else (-1, -1)  # only root may change owners
    copier = _Copier(root, copy, ids)
    count = len(copy.sources) + len(copy.texts)
    into = copy.target.endswith("/") or os.path.isdir(copy.target)
    if count > 1 and not into:
        raise StepFailed(f"{copy.target} must be a directory and end with a / when there are several sources")
    for name, text in copy.texts.items():
        copier.write_text(text, os.path.join(copy.target, name) if into else copy.target)
    for source in copy.sources:
        if "://" in source:
            copier.download(source, into=into)
        else:
            copier.copy(source, into=into)
    return 0


def _plain_member(member: tarfile.TarInfo, target: str) -> tarfile.TarInfo:
    """Filters an archive's members: links must stay inside. Raises StepFailed for devices and pipes."""
    if member.isdev():
        raise StepFailed(f"{member.name} in the archive is neither a file nor a directory nor a link")
    return tarfile.tar_filter(member, target)


class _Copier:
    """Copies as BuildKit does: a directory's contents, files with their modes and times, links as links."""

    def __init__(self, root: int, copy: CopyStep, owner: tuple[int, int]) -> None:
        self._root, self._copy, self._owner = root, copy, owner

    def copy(self, source: str, *, into: bool) -> None:
        target = self._copy.target
        if self._copy.parents:
            target, into = os.path.join(target, source), False
        fd = open_in_root(self._root, source, os.O_RDONLY | os.O_NONBLOCK)
        try:
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                self._make_directories(target)
                self._copy_directory(fd, os.path.normpath(source), target)
            elif not stat.S_ISREG(found.st_mode):
                raise StepFailed(f"{source} is neither a file nor a directory")
            elif self._copy.unpack and source.endswith(_ARCHIVES):
                self._make_directories(target)
                with open(os.dup(fd), "rb") as file, tarfile.open(fileobj=file) as archive:
                    archive.extractall(target, filter=_plain_member)
            else:
                self._copy_file(fd, found, os.path.join(target, os.path.basename(source)) if into else target)
        finally:
            os.close(fd)

    def _copy_directory(self, fd: int, path: str, target: str) -> None:
        for name in sorted(os.listdir(fd)):
            inside = os.path.normpath(f"{path}/{name}").lstrip("/")
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if is_excluded(inside, self._copy.rules) and not stat.S_ISDIR(found.st_mode):
                continue
            place = f"{target.rstrip('/')}/{name}"
            if stat.S_ISLNK(found.st_mode):
                self._clear(place)
                os.symlink(os.readlink(name, dir_fd=fd), place)
                os.lchown(place, *self._owner)
            elif stat.S_ISDIR(found.st_mode):
                if is_excluded(inside, self._copy.rules) and not any(not excludes for excludes, _ in self._copy.rules):
                    continue
                with beneath.open_directory(name, beneath=fd) as child:
                    is_new = not os.path.isdir(place)
                    if is_new:
                        self._clear(place)
                        os.mkdir(place, 0o755)
                    self._copy_directory(child, inside, place)
                    if is_new:
                        self._finish(place, found)
            elif stat.S_ISREG(found.st_mode):
                child = beneath.open_beneath(fd, name, os.O_RDONLY)
                try:
                    self._copy_file(child, found, place)
                finally:
                    os.close(child)
            else:
                raise StepFailed(f"{inside} is neither a file nor a directory nor a link")

    def _copy_file(self, fd: int, found: os.stat_result, target: str) -> None:
        self._make_directories(os.path.dirname(target))
        self._clear(target)
        with open(os.dup(fd), "rb") as source, open(target, "wb") as destination:
            shutil.copyfileobj(source, destination, 1 << 20)
        self._finish(target, found)

    def _finish(self, target: str, found: os.stat_result) -> None:
        os.chown(target, *self._owner)
        os.chmod(target, stat.S_IMODE(found.st_mode) if self._copy.mode is None else self._copy.mode)
        os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))

    def write_text(self, text: str, target: str) -> None:
        """Writes a file whose text is in the Dockerfile itself."""
        self._make_directories(os.path.dirname(target))
        self._clear(target)
        Path(target).write_text(text)
        os.chown(target, *self._owner)
        os.chmod(target, 0o644 if self._copy.mode is None else self._copy.mode)

    def download(self, url: str, *, into: bool) -> None:
        """Downloads a URL for ADD; the file is readable only by its owner, as in BuildKit."""
        import urllib.error  # imported late: these take a third of the time of a fully cached build
        import urllib.request

        name = os.path.basename(url.partition("?")[0].rstrip("/"))
        target = os.path.join(self._copy.target, name) if into else self._copy.target
        self._make_directories(os.path.dirname(target))
        try:
            with urllib.request.urlopen(url, timeout=_DOWNLOAD_SECONDS) as answer, open(target, "wb") as file:
                shutil.copyfileobj(answer, file, 1 << 20)
        except (urllib.error.URLError, ValueError) as error:
            raise StepFailed(f"{url} cannot be fetched: {getattr(error, 'reason', error)}") from None
        os.chown(target, *self._owner)
        os.chmod(target, 0o600 if self._copy.mode is None else self._copy.mode)

    def _make_directories(self, path: str) -> None:
        missing = []
        while path and not os.path.isdir(path):
            if os.path.lexists(path):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            missing.append(path)
            path = os.path.dirname(path.rstrip("/"))
        for directory in reversed(missing):
            os.mkdir(directory, 0o755)
            os.chown(directory, *self._owner)

    def _clear(self, path: str) -> None:
        """Removes a file or a link at `path`, so that it is not written through."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.islink(path) or not os.path.isdir(path):
                os.unlink(path)
