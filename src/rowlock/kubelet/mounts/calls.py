"""System calls for mounts and namespaces that Python lacks: mount(2), open_tree(2), pivot_root(2), unshare(2).
Standard library only, because shims are made of it; Linux only.
"""

import ctypes
import errno
import os
import signal
from collections.abc import Callable

_NEWNS, _NEWUSER = 0x20000, 0x10000000
NEWIPC, NEWPID = 0x08000000, 0x20000000
"""Flags of `fork_into`, `unshare` and `setns`."""
BIND, RECURSIVE = 0x1000, 0x4000
"""Flags of `sys_mount`."""
_RDONLY, _REMOUNT, _PRIVATE, _DETACH = 0x1, 0x20, 0x40000, 0x2
_LOCKED_FLAGS = ((os.ST_NOSUID, 2), (os.ST_NODEV, 4), (os.ST_NOEXEC, 8), (os.ST_NOATIME, 1024), (os.ST_NODIRATIME, 2048)) if (
    hasattr(os, "ST_NODEV")
) else ()  # fmt: skip
_RELATIME = (4096, 1 << 21)
_PIVOT_ROOT_SYSCALLS = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _CLONE3, _MOUNT_SETATTR = 428, 429, 430, 431, 432, 435, 442
"""System calls (Linux 5.2, 5.3, 5.12) that have one number on all architectures."""
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_FSCONFIG_CREATE = 6
_ATTR_RDONLY = 1
_TREE_CLONE, _TREE_RECURSIVE, _EMPTY_PATH, _MOVE_FROM_EMPTY, _MOVE_TO_EMPTY = 1, 0x8000, 0x1000, 0x4, 0x40
_O_PATH = getattr(os, "O_PATH", 0) | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)
getattr(_libc, "mount", None)  # looked up here once, not in each program's own process


def _call_libc(name: str, *args: object) -> None:
    if getattr(_libc, name)(*args) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def sys_mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """mount(2). Raises OSError."""
    words = [None if w is None else w.encode() for w in (source, target, kind, options)]
    _call_libc("mount", words[0], words[1], words[2], ctypes.c_ulong(flags), words[3])


def is_linux() -> bool:
    """Whether this system has mount namespaces."""
    return hasattr(_libc, "unshare")


def syscall(number: int, *args: object) -> int:
    """A system call that libc may not know. Raises OSError."""
    words = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = int(_libc.syscall(number, *words))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def detached_copy(place: str | int) -> int:
    """A copy of the mounts at a path or descriptor, detached from any path: it outlives a change of the root. Raises OSError."""
    fd = place if isinstance(place, int) else os.open(place, _O_PATH)
    try:
        return syscall(_OPEN_TREE, fd, b"", _TREE_CLONE | os.O_CLOEXEC | _EMPTY_PATH | _TREE_RECURSIVE)
    finally:
        if fd != place:
            os.close(fd)


def attach(tree: int, place: int) -> None:
    """Mounts a `detached_copy` at the file behind the descriptor `place`. Raises OSError."""
    syscall(_MOVE_MOUNT, tree, b"", place, b"", _MOVE_FROM_EMPTY | _MOVE_TO_EMPTY)


class _MountAttr(ctypes.Structure):
    """`struct mount_attr`."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def make_read_only(tree: int) -> None:
    """Makes all mounts of a `detached_copy` read-only. Raises OSError."""
    attr = _MountAttr(attr_set=_ATTR_RDONLY)
    syscall(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH | _TREE_RECURSIVE, ctypes.byref(attr), ctypes.sizeof(attr))


def pivot_root(root: str, old: str) -> None:
    """pivot_root(2): `root` becomes /, and what was / is seen at `old`. Raises OSError."""
    number = _PIVOT_ROOT_SYSCALLS.get(os.uname().machine)
    if number is None:
        raise OSError(1, f"a new root is not supported on {os.uname().machine}")
    syscall(number, root.encode(), old.encode())


def detach(path: str) -> None:
    """Unmounts a mount and all below it, lazily. Raises OSError."""
    _call_libc("umount2", path.encode(), _DETACH)


def unshare(namespaces: int) -> None:
    """unshare(2). Raises OSError."""
    if _libc.unshare(namespaces) < 0:
        raise _namespace_error(ctypes.get_errno())


def _namespace_error(code: int) -> OSError:
    """Why the kernel made no namespace. At a limit of them it says "No space left on device", which sends people to their disks."""
    is_limit = code == errno.ENOSPC
    return OSError(
        code, "the limit of namespaces is reached (`sysctl -a | grep namespaces`)" if is_limit else os.strerror(code)
    )


def setns(fd: int, kind: int) -> None:
    """setns(2). Raises OSError."""
    _call_libc("setns", fd, kind)


class _CloneArgs(ctypes.Structure):
    """`struct clone_args`, as the first version of clone3(2) has it."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls")
    )


_held_syscall = ctypes.PyDLL(None, use_errno=True).syscall
"""A call that keeps the GIL: a child would have to take it from a thread that exists only in its parent."""
_after_fork_child = ctypes.pythonapi.PyOS_AfterFork_Child


def fork_into(namespaces: int) -> int:
    """`os.fork` for a single-threaded process whose child gets new namespaces: with NEWPID it is process 1 of its own.

    With unshare(2) and fork the parent would have to return to its own PID namespace by setns(2), which a user namespace does
    not allow. 0 is a plain fork. Returns the child's pid, 0 in the child. Raises OSError."""
    if not namespaces:
        return os.fork()
    arguments = _CloneArgs(flags=namespaces, exit_signal=int(signal.SIGCHLD))
    pid = int(_held_syscall(_CLONE3, ctypes.byref(arguments), ctypes.c_size_t(ctypes.sizeof(arguments))))
    if pid < 0:
        raise _namespace_error(ctypes.get_errno())
    if pid == 0:
        _after_fork_child()
    return pid


def try_in_child(action: Callable[[], None], namespaces: int = 0) -> str:
    """Runs `action` in a child with these new namespaces (`fork_into`). Returns why it failed, "" = it did not. Raises OSError if there
    can be no such child."""
    reader, writer = os.pipe()
    try:
        child = fork_into(namespaces)
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if child == 0:
        try:
            action()
        except OSError as error:
            os.write(writer, str(error.strerror).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        problem = pipe.read().decode()
    os.waitpid(child, 0)
    return problem


def detached_proc() -> int:
    """A /proc of the calling process's PID namespace, as a detached mount. In a user namespace the kernel makes one only while it
    sees another /proc with nothing mounted over it. Raises OSError."""
    context = syscall(_FSOPEN, b"proc", 1)
    try:
        syscall(_FSCONFIG, context, _FSCONFIG_CREATE, 0, 0, 0)
        return syscall(_FSMOUNT, context, 1, _NOSUID | _NODEV | _NOEXEC)
    finally:
        os.close(context)


def mount_proc() -> None:
    """In a mount namespace of its own: mounts a /proc of the calling process's PID namespace. Raises OSError."""
    sys_mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)


def mount_shared_memory(size: int) -> None:
    """In a mount namespace of its own: mounts an empty /dev/shm of at most `size` bytes. Raises OSError."""
    sys_mount("shm", "/dev/shm", "tmpfs", _NOSUID | _NODEV, f"mode=1777,size={size}")


def make_private() -> None:
    """Makes all mounts private: later mounts are seen in this namespace alone. Raises OSError."""
    sys_mount("none", "/", None, RECURSIVE | _PRIVATE)


def unshare_mounts() -> None:
    """Gives the calling process a mount namespace of its own, inside a user namespace if the kernel requires that.
    Raises OSError where the kernel allows neither."""
    uid, gid = os.getuid(), os.getgid()
    try:
        unshare(_NEWNS)
    except PermissionError:
        unshare(_NEWNS | _NEWUSER)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    make_private()


def remount_read_only(place: str) -> None:
    """Makes one mount read-only; other mounts of the same files are not affected. Raises OSError."""
    sys_mount("none", place, None, BIND | _REMOUNT | _RDONLY | _locked_flags(place))


def _locked_flags(target: str) -> int:
    """The mount's own restrictions, which may not be dropped inside a user namespace."""
    current = os.statvfs(target).f_flag
    return sum(flag for seen, flag in (*_LOCKED_FLAGS, _RELATIME) if current & seen)
