"""The process of a container's program before exec: everything that is done once, from claim to exec.

The shim forks it and reads from a pipe why it could not begin; exec closes the pipe without a word. It writes `program.N`
(what `exec_process.py` needs to start another program beside it) and `start.N.begun`, which the shim renames to `start.N` as
soon as the program runs. Standard library only, few imports: it is a copy of the shim.
"""

import contextlib
import errno
import os
import resource
import signal
import time
from _signal import signal as handle  # type: ignore[import-not-found] # signal.signal makes enums: 20 page faults
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rowlock.kubelet.files import beneath, untrusted
from rowlock.kubelet.mounts import calls, rootfs, spare_roots, volume_mounts
from rowlock.kubelet.mounts.cgroup_view import CgroupView
from rowlock.kubelet.shim import cgroups, netns, stdio
from rowlock.kubelet.shim.fact_files import (
    create_writable,
    own_pid,
    rename_over,
    run_fact_path,
    ticks,
    write_fact,
    write_new_file,
)
from rowlock.kubelet.shim.shim_request import ShimRequest, UserSpec

ALREADY_CLAIMED = "taken"
"""The reason when another shim has already claimed this run."""
_NO_NEW_PRIVILEGES = 38
_PDEATHSIG = 1
_FNV_BASIS, _FNV_PRIME = 0x811C9DC5, 0x01000193
_ENTERED = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY
_SIG_DFL, _SIGKILL = int(signal.SIG_DFL), int(signal.SIGKILL)
_SIGNALS = tuple(
    int(n) for n in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
)


class ContainerInit:
    """Takes a forked process to the container's program. `begin` becomes the program, or returns why it could not."""

    def __init__(
        self, request: ShimRequest, netns: int, begin: Callable[[ShimRequest], str], spare_root: int = -1
    ) -> None:
        self._request, self._netns, self._begin, self._spare_root = request, netns, begin, spare_root
        self._cgroup_view = CgroupView([], version="")
        self._has_own_proc = "pid" in request.namespaces or "pod-pid" in request.namespaces or bool(request.joined_run)
        self._shim = own_pid()

    def become_program(self, stdio_fds: stdio.Stdio) -> str:
        """Becomes the program, or returns a sentence that says why it could not."""
        for number in _SIGNALS:
            handle(number, _SIG_DFL)
        request = self._request
        try:
            if not self._claim_run():
                return ALREADY_CLAIMED
            if failure := self._copy_image_files():
                return failure
            try:
                group = cgroups.Cgroup.make(cgroup_name(request), request.limits)
            except OSError as error:
                where = error.filename or "control group"
                return f"the limits could not be set ({where}: {error.strerror}): {request.limits}"
            write_fact(run_fact_path(request, "program"), exec_fact(request, group.procs_files))
            pid = own_pid()
            process = {"pid": pid, "ticks": ticks(pid), "started": time.time()}
            write_fact(run_fact_path(request, "start") + ".begun", self._shim_identity() | process)
            os.setsid()
            if "ipc" in request.namespaces:  # here, not in the fork server, which all starts wait for
                calls.unshare(calls.NEWIPC)
            if request.network:
                netns.enter_pod_network(request.network, self._netns, has_own_root=request.rootfs is not None)
            apply_limits(request.rlimits, group.procs_files)  # before the mounts, which make control groups read-only
            self._cgroup_view = CgroupView([] if request.engine else group.mount_points(), version=group.version)
            self._set_up_mounts()
            if request.own_directory:
                enter_own_directory(request.own_directory, request.cwd)
            stdio_fds.install(request.user.get("uid"))
            drop_privileges(request.user)
            if not request.own_directory and (failure := enter_directory(request.cwd, makes=bool(request.rootfs))):
                return failure
            return self._begin(request)
        except (OSError, ValueError, KeyError) as error:
            return start_error_message(error, request.argv, request.cwd)
        except (volume_mounts.MountError, rootfs.RootfsError) as error:
            return str(error)

    def _claim_run(self) -> bool:
        """Claims the run by creating `start.N`; False if it exists, so that a request that was sent twice starts one program. The
        file is complete when it appears: without the shim's identity the run would look lost, and its program would be killed."""
        claim_path = f"{run_fact_path(self._request, 'start')}.{own_pid()}"
        write_new_file(claim_path, self._shim_identity())
        try:
            os.link(claim_path, run_fact_path(self._request, "start"))
        except FileExistsError:
            os.unlink(claim_path)
            return False
        # The file is kept: ext4 without a journal scans the inodes freed in the last minutes whenever it creates a file.
        rename_over(claim_path, run_fact_path(self._request, "claim"))
        if self._request.message_path:
            create_writable(run_fact_path(self._request, "message"))
        return True

    def _shim_identity(self) -> dict[str, Any]:
        """The fields of `start.N` that identify the shim, which made this object, and the run's back-off."""
        return {"shim": self._shim, "shim_ticks": ticks(self._shim), "backoff": self._request.backoff}

    def _copy_image_files(self) -> str:
        """Makes the container's own copy of its image's files. Returns why it could not, "" = it is there or not needed."""
        if not self._request.image_copy:
            return ""
        import shutil  # only when needed: it loads five libraries, which each fork would map

        image, copy = self._request.image_copy
        try:
            beneath.remove_path(copy)
            shutil.copytree(image, copy, symlinks=True)
        except (OSError, shutil.Error) as error:
            return f"the image's files could not be copied from {image} to {copy}: {error}"
        return ""

    def _set_up_mounts(self) -> None:
        """Sets up the container's own view of the file system, if it needs one (an engine does that for its containers)."""
        request, mount_specs = self._request, list(self._request.mounts)
        if request.engine:
            return
        if target := request.message_path:
            mount_specs.append(
                {"source": run_fact_path(request, "message"), "target": target, "volume": "termination message"}
            )
        if request.rootfs:
            return self._enter_root(request.rootfs, mount_specs)
        is_isolated = self._has_own_proc or request.shared_memory
        if not request.network and (mount_specs or is_isolated or self._cgroup_view):
            calls.unshare_mounts()
        if self._has_own_proc:
            calls.mount_proc()
        if request.shared_memory:
            calls.mount_shared_memory(request.shared_memory)
        self._cgroup_view.attach()
        if mount_specs:
            volume_mounts.mount_volumes(mount_specs, request.directory, request.image_copy[1:])

    def _enter_root(self, spec: rootfs.RootfsSpec, mount_specs: Sequence[Mapping[str, Any]]) -> None:
        """Enters the container's own root file system: one that was assembled ahead, if there is one."""
        request = self._request
        has_spare = self._spare_root >= 0 and spare_roots.adopt(request.spare, spec)
        if not (has_spare and request.network):  # in the fabric all mounts are private already
            calls.unshare_mounts()
        hosts = request.network["hosts"] if request.network else ""
        proc = calls.detached_proc() if self._has_own_proc else -1
        rootfs.enter(spec, mount_specs, hosts, self._spare_root if has_spare else -1)
        if request.shared_memory:
            calls.mount_shared_memory(request.shared_memory)
        self._cgroup_view.attach()
        if proc >= 0:
            place = os.open("/proc", beneath.DIRECTORY)
            calls.attach(proc, place)
            os.close(place)
            os.close(proc)
            rootfs.protect_proc("/proc")
        make_in_own_root(request.cwd)


def exec_fact(request: ShimRequest, procs_files: Sequence[str]) -> dict[str, Any]:
    """What `exec_process.py` needs to start a program beside the container's own; `procs_files` of its control groups."""
    return {
        "env": request.env,
        "cwd": request.cwd,
        "own_directory": request.own_directory,
        "rlimits": request.rlimits,
        "user": request.user,
        "cgroup": procs_files,
        "engine": request.engine,
    }


def cgroup_name(request: ShimRequest) -> str:
    """The name of this run's control group, unique by its directory: a copied or restored cluster has pods with the same uids."""
    checksum = _FNV_BASIS  # FNV-1a: a hash library would be mapped in each fork
    for byte in os.fsencode(request.directory):
        checksum = (checksum ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return f"{request.hint.replace('/', '.')}.{request.number}.{checksum:08x}"


def commit_start_fact(request: ShimRequest) -> bool:
    """In the shim, once the program runs: makes its `start.N` final. False if the program was killed before it began."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(run_fact_path(request, "start") + ".begun", run_fact_path(request, "start"))
        return True
    return False


def join_processes(start_fact: str) -> bool:
    """Puts what the calling process forks from now on into the PID namespace of the container that the fact is about. False if that
    container no longer runs."""
    fact = untrusted.read_object(start_fact) or {}
    pid = untrusted.integer_of(fact, "pid")
    try:
        namespace = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not pid or ticks(pid) != untrusted.integer_of(fact, "ticks", 1 << 62):
            return False
        calls.setns(namespace, calls.NEWPID)
    finally:
        os.close(namespace)
    return True


def apply_limits(rlimits: Mapping[str, Sequence[int]], procs_files: Sequence[str]) -> None:
    """In a program's own process, before exec: its resource limits, its control group and its umask."""
    for name, (soft, hard) in rlimits.items():
        resource.setrlimit(getattr(resource, name), (soft, hard))
    cgroups.join_group(procs_files)
    os.umask(0o022)


def drop_privileges(user: UserSpec) -> None:
    """In a program's own process, last before exec: sets its user and groups, and then that it dies with its parent, which a
    change of user would undo."""
    groups, gid, uid = user.get("groups"), user.get("gid"), user.get("uid")
    if groups is not None:
        os.setgroups(groups)
    if gid is not None:
        os.setgid(gid)
    if uid is not None:
        os.setuid(uid)
    netns.prctl(_PDEATHSIG, _SIGKILL)
    if user.get("no_new_privileges"):
        netns.prctl(_NO_NEW_PRIVILEGES, 1)


def enter_own_directory(own_directory: str, cwd: str) -> None:
    """Enters a working directory within `own_directory`, which lies in the data directory: the program's user could not get there by
    path. Called before privileges are dropped, so links that lead out of it are not followed. Raises OSError."""
    root = os.open(own_directory, beneath.DIRECTORY)
    try:
        below = beneath.open_beneath(root, cwd[len(own_directory) :].strip("/"), _ENTERED, follow=True)
        os.fchdir(below)
        os.close(below)
    finally:
        os.close(root)


def enter_directory(cwd: str, *, makes: bool = False) -> str:
    """Enters any other working directory as the program's user, so that the kernel checks access. Returns why it could not, "" = it is
    there. `makes`: a missing one is made, as far as that user may."""
    try:
        try:
            os.chdir(cwd)
        except FileNotFoundError:
            if not makes:
                return f'the working directory "{cwd}" does not exist on this machine'
            os.makedirs(cwd, exist_ok=True)
            os.chdir(cwd)
    except OSError as error:
        return f'the working directory "{cwd}" cannot be entered by user {os.geteuid()}: {error.strerror}'
    return ""


def make_in_own_root(path: str) -> None:
    """Makes a missing working directory, as a container runtime does, but only in the container's own root file system: no link is
    followed, and within volumes it is left to the program's user (`enter_directory`)."""
    current = os.open("/", beneath.DIRECTORY)
    own = os.fstat(current).st_dev
    try:
        for word in path.split("/"):
            if word in ("", "."):
                continue
            try:
                below = os.open(word, beneath.DIRECTORY, dir_fd=current)
            except FileNotFoundError:
                if os.fstat(current).st_dev != own:
                    return
                os.mkdir(word, 0o755, dir_fd=current)
                below = os.open(word, beneath.DIRECTORY, dir_fd=current)
            os.close(current)
            current = below
    except OSError:  # a link, or a file: the program gets the error
        return
    finally:
        os.close(current)


def start_error_message(error: Exception, argv: Sequence[str], cwd: str) -> str:
    """The sentence for a program that could not be started."""
    program = argv[0] if argv else ""
    if isinstance(error, OSError) and error.filename == cwd:
        return f'the working directory "{cwd}" cannot be entered: {error.strerror}'
    if isinstance(error, FileNotFoundError) and os.path.exists(program):
        return f'exec: "{program}": the interpreter named in its first line was not found'
    if isinstance(error, FileNotFoundError):
        reason = "no such file or directory" if "/" in program else "executable file not found in $PATH"
        return f'exec: "{program}": {reason}'
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        return f'exec: "{program}": exec format error (a script needs a first line such as #!/bin/sh)'
    return f'exec: "{program}": {error.strerror if isinstance(error, OSError) and error.strerror else error}'


def exec_program(request: ShimRequest) -> str:
    """Becomes the program by exec, or runs its container. Raises OSError, or returns why the container could not be started."""
    if request.engine:
        from rowlock.kubelet.shim.engine import (
            engine_proxy,
        )  # only for engines: every shim copies this memory

        return engine_proxy.run_container(request, request.engine)
    os.execvpe(request.argv[0], list(request.argv), request.env)
