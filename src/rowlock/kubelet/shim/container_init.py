"""A program's own process before it is the program: everything that is done once, from claim to exec.

The shim forks it and reads from a pipe why it could not begin; the pipe closes without a word when it is the program.
It writes `program.N` (what a program beside it needs) and `start.N.new`, which the shim makes `start.N` as soon as the
program runs. Standard library only, few imports: it is a copy of the shim.
"""

import contextlib
import errno
import os
import resource
import shutil
import signal
import time
import zlib
from collections.abc import Callable
from typing import Any

from rowlock.kubelet.files import beneath
from rowlock.kubelet.shim import cgroups, mounts, netns, stdio
from rowlock.kubelet.shim.fact_files import create_writable, run_fact_path, ticks, write_fact

ALREADY_CLAIMED = "taken"
"""Why it did not begin: another shim runs this run already."""
EXEC_FIELDS = ("env", "cwd", "rlimits", "user", "cgroup", "engine")
"""What a program that is started beside the container's own gets, too."""
_NO_NEW_PRIVILEGES = 38
_PDEATHSIG = 1


class ContainerInit:
    """The way of one container's program to its first instruction. `begin` becomes it, or returns why it could not."""

    def __init__(self, spec: dict[str, Any], netns: int, begin: Callable[[dict[str, Any]], str]) -> None:
        self._spec, self._netns, self._begin = spec, netns, begin

    def become_program(self, stdio_fds: stdio.Stdio) -> str:
        """Becomes the program, or returns a sentence why not."""
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        spec = self._spec
        try:
            if not self._claim_run():
                return ALREADY_CLAIMED
            if failure := self._copy_image_files() or self._create_cgroup():
                return failure
            write_fact(run_fact_path(spec, "program"), {k: v for k, v in spec.items() if k in EXEC_FIELDS})
            process = {"pid": os.getpid(), "ticks": ticks(os.getpid()), "started": time.time()}
            write_fact(run_fact_path(spec, "start") + ".begun", self._shim_identity() | process)
            os.setsid()
            if spec.get("network"):
                netns.enter_pod_network(spec["network"], self._netns)
            self._set_up_mounts()
            apply_limits(spec)
            os.chdir(spec["cwd"])
            stdio_fds.install((spec.get("user") or {}).get("uid"))
            drop_privileges(spec.get("user") or {})
            return self._begin(spec)
        except (OSError, ValueError, KeyError) as error:
            return start_error_message(error, spec)
        except mounts.MountError as error:
            return str(error)

    def _claim_run(self) -> bool:
        """The first to make `start.N` runs it: a request that was sent twice starts one program. It comes to be with the
        shim's name in it: a claim of nobody would read as one whose shim was lost, and its program be killed."""
        claim_path = f"{run_fact_path(self._spec, 'start')}.{os.getpid()}"
        write_fact(claim_path, self._shim_identity())
        try:
            os.link(claim_path, run_fact_path(self._spec, "start"))
        except FileExistsError:
            return False
        finally:
            os.unlink(claim_path)
        if self._spec.get("message_path"):
            create_writable(run_fact_path(self._spec, "message"))
        return True

    def _shim_identity(self) -> dict[str, Any]:
        """Who looks after it: the shim."""
        shim = os.getppid()
        return {"shim": shim, "shim_ticks": ticks(shim), "backoff": self._spec.get("backoff", 0)}

    def _copy_image_files(self) -> str:
        """The container's own copy of its image's files. Returns why it could not be made, "" when it is there."""
        if not self._spec.get("copy"):
            return ""
        image, copy = self._spec["copy"]
        try:
            beneath.remove_path(copy)
            shutil.copytree(image, copy, symlinks=True)
        except (OSError, shutil.Error) as error:
            return f"the image's files could not be copied from {image} to {copy}: {error}"
        return ""

    def _create_cgroup(self) -> str:
        """Makes the control group that keeps the container's limits. Returns why it could not be made."""
        limit_spec = self._spec.get("limits") or {}
        try:
            group = cgroups.Cgroup.make(cgroup_name(self._spec), limit_spec)
        except OSError as error:
            return f"the limits could not be set ({error.filename or 'control group'}: {error.strerror}): {limit_spec}"
        self._spec["cgroup"] = group.procs_files
        return ""

    def _set_up_mounts(self) -> None:
        """The container's own view of the file system, where it needs one (an engine's containers always have one)."""
        if self._spec.get("engine"):
            return
        spec, mount_specs = self._spec, list(self._spec.get("mounts") or ())
        if target := spec.get("message_path"):
            mount_specs.append(
                {"source": run_fact_path(spec, "message"), "target": target, "volume": "termination message"}
            )
        if mount_specs:
            if not spec.get("network"):
                mounts.unshare_mounts()
            mounts.mount_volumes(mount_specs, str(spec["dir"]), spec["copy"][1:] if spec.get("copy") else ())


def cgroup_name(spec: dict[str, Any]) -> str:
    """The control group of this run: a copied or restored cluster has pods with the same uids, but other directories."""
    return f"{str(spec['hint']).replace('/', '.')}.{spec['n']}.{zlib.crc32(os.fsencode(spec['dir'])):08x}"


def commit_start_fact(spec: dict[str, Any]) -> bool:
    """In the shim: the program runs, and `start.N` says so from now on. False when it was killed before it began."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(run_fact_path(spec, "start") + ".begun", run_fact_path(spec, "start"))
        return True
    return False


def apply_limits(spec: dict[str, Any]) -> None:
    """In a program's own process, before exec: its resource limits, its control group and its umask."""
    for name, (soft, hard) in (spec.get("rlimits") or {}).items():
        resource.setrlimit(getattr(resource, name), (soft, hard))
    cgroups.join_group(spec.get("cgroup") or ())
    os.umask(0o022)


def drop_privileges(user: dict[str, Any]) -> None:
    """In a program's own process, last before exec: its user and groups; it dies with its parent (which a change of
    user would undo)."""
    if user.get("groups") is not None:
        os.setgroups(user["groups"])
    if user.get("gid") is not None:
        os.setgid(user["gid"])
    if user.get("uid") is not None:
        os.setuid(user["uid"])
    netns.prctl(_PDEATHSIG, signal.SIGKILL)
    if user.get("no_new_privileges"):
        netns.prctl(_NO_NEW_PRIVILEGES, 1)


def start_error_message(error: Exception, spec: dict[str, Any]) -> str:
    """The sentence for a program that could not be started."""
    program = spec["argv"][0] if spec.get("argv") else ""
    if isinstance(error, FileNotFoundError) and not os.path.isdir(str(spec.get("cwd"))):
        return f'the working directory "{spec.get("cwd")}" does not exist on this machine'
    if isinstance(error, FileNotFoundError) and os.path.exists(program):
        return f'exec: "{program}": the interpreter named in its first line was not found'
    if isinstance(error, FileNotFoundError):
        reason = "no such file or directory" if "/" in program else "executable file not found in $PATH"
        return f'exec: "{program}": {reason}'
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        return f'exec: "{program}": exec format error (a script needs a first line such as #!/bin/sh)'
    return f'exec: "{program}": {error.strerror if isinstance(error, OSError) and error.strerror else error}'


def exec_program(spec: dict[str, Any]) -> str:
    """A program's beginning: exec, or its container. Returns only by raising, or with why there is no container."""
    if spec.get("engine"):
        from rowlock.kubelet.shim import (
            engine_proxy,  # only where there are containers: every shim is a copy of its memory
        )

        return engine_proxy.run_container(spec)
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
