"""The root file system of a container whose image has files: the image's layers over this machine's, in an overlay.

What the program writes, and what it deletes, is written to a directory of this one run; neither the image nor the machine
changes. Below the layers lies the machine, so that its interpreter and its libraries are there; its /tmp and what
`hidden` names are not. Other file systems of the machine are overlaid in the same way, or bound read-only where an
overlay cannot lie on them. /dev has the usual devices and the accelerators, /sys is read-only.

`enter` is called in the program's own process, which has a mount namespace of its own (`calls.unshare_mounts`).
Standard library only, because shims are made of it; Linux only (mount_setattr: 5.12).
"""

import contextlib
import ctypes
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

from rowlock.kubelet.files import beneath
from rowlock.kubelet.mounts import calls, volume_mounts

_MOUNT_SETATTR, _EMPTY_PATH, _RECURSIVE, _ATTR_RDONLY = 442, 0x1000, 0x8000, 1
_NOSUID, _BIND, _REC = 0x2, 0x1000, 0x4000
_DEVICES = (
    "null",
    "zero",
    "full",
    "random",
    "urandom",
    "tty",
    "ptmx",
    "pts",
    "mqueue",
    "fuse",
    "kfd",
    "dri",
    "infiniband",
)
_DEVICE_PREFIXES = ("nvidia",)
_DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
)
_MACHINE_SETTINGS = ("sys", "sysrq-trigger", "irq", "bus")
TEMPORARY = ("/tmp", "/var/tmp")
"""Directories whose files on this machine no container sees."""
_KERNEL_FILE_SYSTEMS = frozenset(
    "proc sysfs devtmpfs devpts mqueue cgroup cgroup2 debugfs tracefs securityfs pstore bpf configfs efivarfs fusectl "
    "hugetlbfs binfmt_misc autofs rpc_pipefs nsfs selinuxfs".split()
)


class RootfsSpec(TypedDict):
    """What a root file system is made of. All paths are absolute and of this machine."""

    layers: Sequence[str]
    """Of the image, the uppermost first."""
    upper: str
    """Where what is written goes; kept as it is when it is there."""
    scratch: str
    """A directory of this run alone, for mounts; made anew."""
    hidden: Sequence[str]
    """Directories of the machine that the container does not see."""
    overlaid: Sequence[str]
    """Directories below hidden ones that it sees nevertheless, under the image's layers."""
    shared: Sequence[Sequence[str]]
    """Path and mode (`rw` or `ro`) of directories that it shares with the machine."""


class RootfsError(Exception):
    """A root file system that could not be made; a sentence."""


def enter(spec: RootfsSpec, mounts: Sequence[Mapping[str, Any]] = ()) -> None:
    """Makes it, moves into it and mounts the volumes there (`volume_mounts.mount_volumes`). Raises RootfsError or MountError."""
    sources = volume_mounts.open_sources(mounts, detached=True)
    try:
        root = _Assembly(spec).mount_all()
        os.chdir(root)
        calls.pivot_root(".", ".")
        calls.detach(".")
        os.chdir("/")
    except OSError as error:
        where = f" ({error.filename})" if isinstance(error.filename, str) else ""
        raise RootfsError(
            f"the image's root file system could not be mounted: {error.strerror or error}{where}"
        ) from None
    volume_mounts.bind_volumes(mounts, sources)


def root_path(spec: RootfsSpec) -> str:
    """Where `mount_root` mounts it."""
    return f"{spec['scratch']}/root"


def mount_root(spec: RootfsSpec) -> None:
    """Makes it, and leaves it mounted at `root_path`. Raises RootfsError."""
    try:
        _Assembly(spec).mount_all()
    except OSError as error:
        raise RootfsError(f"an image's root file system could not be mounted: {error.strerror or error}") from None


def open_root(spec: RootfsSpec) -> int:
    """Makes it, and gives its root as a descriptor of mounts that lie nowhere. Raises RootfsError."""
    try:
        return calls.detached_copy(_Assembly(spec).mount_all())
    except OSError as error:
        raise RootfsError(f"an image's root file system could not be mounted: {error.strerror or error}") from None


def protect_proc(proc: str) -> None:
    """The files of a /proc that set how the machine works are read-only, as in every container."""
    for name in _MACHINE_SETTINGS:
        with contextlib.suppress(FileNotFoundError):
            tree = calls.detached_copy(f"{proc}/{name}")
            place = os.open(f"{proc}/{name}", beneath.REFERENCE)
            try:
                _make_read_only(tree)
                calls.attach(tree, place)
            finally:
                os.close(place)
                os.close(tree)


def probe(directory: str) -> str:
    """Why no container can have a root file system of its own here; "" when they can. Tried in a child, with files in
    `directory`, on whose file system the pods' files are."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        problem = ""
        try:
            calls.unshare_mounts()
            upper, layer = f"{directory}/upper", f"{directory}/layer"
            os.makedirs(f"{layer}/rowlock")
            spec = RootfsSpec(
                layers=[layer], upper=upper, scratch=f"{directory}/scratch", hidden=(), overlaid=(), shared=()
            )
            enter(spec)
            os.mkdir("/rowlock/writable")
            os.stat("/usr/bin")
        except (OSError, RootfsError) as error:
            problem = str(error)
        os.write(writer, problem.encode()[:4096])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        beneath.remove_path(directory)
    return answer if status == 0 else answer or "it could not be tried"


def probe_directory(data: str) -> str:
    """`probe` in a new directory below `data`."""
    place = f"{data}/.probe-{os.getpid()}"  # not from `tempfile`: what it imports costs every fork memory
    try:
        os.mkdir(place)
    except OSError as error:
        return f"{data}: {error.strerror}"
    return probe(place)


class _Assembly:
    """The mounts of one root file system, one after the other."""

    def __init__(self, spec: RootfsSpec) -> None:
        self._spec = spec
        self._root, self._memory, self._work = (f"{spec['scratch']}/{name}" for name in ("root", "memory", "work"))
        self._count = 0
        self._root_fd = -1
        self._layer_fds: list[int] = []
        self._skeleton = f"{self._memory}/skeleton"
        self._in_user_namespace = not _is_initial_user_namespace()

    def mount_all(self) -> str:
        """Everything, parents first; where it lies."""
        try:
            self._layer_fds = [os.open(layer, beneath.REFERENCE) for layer in self._spec["layers"]]
            self._mount_all(self._spec)
        finally:
            for fd in (*self._layer_fds, self._root_fd):
                if fd >= 0:
                    os.close(fd)
        return self._root

    def _mount_all(self, spec: RootfsSpec) -> None:
        beneath.remove_path(spec["scratch"])
        for path in (self._root, self._memory, self._work, spec["upper"]):
            os.makedirs(path, exist_ok=True)
        os.chmod(self._root, 0o755)
        other_mounts = list(_other_mounts([*TEMPORARY, *spec["hidden"], spec["scratch"], spec["upper"], "/dev"]))
        calls.sys_mount("tmpfs", self._memory, "tmpfs", 0, "mode=755")
        os.mkdir(f"{self._memory}/empty")
        if self._in_user_namespace:
            os.mkdir(self._skeleton)
            points = {path for path, _ in other_mounts}
            other_mounts = sorted([*other_mounts, *_copy_skeleton("/", self._skeleton, points)])
        # before anything is mounted: an overlay may not be changed from below
        for path in (
            *TEMPORARY,
            *(path for path, kind in other_mounts if _may_be_layer(path, kind)),
            *spec["overlaid"],
        ):
            _make_directories(spec["upper"], path)
        if not self._in_user_namespace:
            _open_way_to_interpreter(spec["upper"])
        self._mount_machine()
        for path, kind in other_mounts:
            self._mount_other(path, kind)
        for path in TEMPORARY:
            self._overlay(path, machine=False)
        self._mount_devices()
        for path in spec["hidden"]:
            self._cover(path)
        for path in spec["overlaid"]:
            self._overlay(path, machine=True)
        for path, mode in spec["shared"]:
            self._share(path, read_only=mode == "ro")

    @contextlib.contextmanager
    def _place(self, path: str) -> Iterator[str]:
        """A name for a directory of the new root, made where it is missing: no link of the image is followed."""
        fd = _open_directory(self._root_fd, path)  # nearly always there, and one call
        if fd is None:
            fd = beneath.make_directories(self._root_fd, path.lstrip("/"), 0o755)
        try:
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)

    def _mount_machine(self) -> None:
        """The overlay at /: in a user namespace the machine's root cannot be a layer, for mounts lie on it that may not
        be taken away; there it is put together from the directories on which and below which none lies."""
        is_user = self._in_user_namespace
        self._overlay("/", machine=not is_user, below=[self._skeleton] if is_user else [])

    def _overlay(self, path: str, *, machine: bool, below: Sequence[str] = ()) -> None:
        """The image's layers, and below them the machine's files when `machine`, at `path`."""
        inside = "" if path == "/" else path
        held = [fd for layer in self._layer_fds if (fd := _open_directory(layer, inside)) is not None]
        try:
            layers = [f"/proc/self/fd/{fd}" for fd in held]
            if inside and not machine and not any(os.listdir(layer) for layer in layers):
                # an overlay takes half a millisecond, and there is nothing to lay over
                with self._place(path) as target:
                    self._bind(self._spec["upper"] + inside, target, read_only=False)
                return
            self._lay_over(path, [*layers, *([self._machine_layer(path)] if machine else ()), *below])
        finally:
            for fd in held:
                os.close(fd)

    def _lay_over(self, path: str, layers: Sequence[str]) -> None:
        """The overlay of these layers at `path`, with what is written below that path of the upper directory."""
        inside = "" if path == "/" else path
        layers = layers or [f"{self._memory}/empty"]
        upper = self._spec["upper"] + inside
        work = f"{self._work}/{self._next()}"
        os.mkdir(work)
        if path == "/":
            self._mount_overlay(layers, self._root, upper, work)
            self._root_fd = os.open(self._root, beneath.DIRECTORY)
            return
        with self._place(path) as target:
            self._mount_overlay(layers, target, upper, work)

    def _machine_layer(self, path: str) -> str:
        """A directory of the machine as a layer. What is written lies below it on the disk, and overlayfs refuses that;
        so there is an overlay between them, of the directory alone."""
        target = f"{self._memory}/{self._next()}"
        os.mkdir(target)
        self._mount_overlay([f"{self._memory}/empty", path], target)
        return target

    def _mount_overlay(self, layers: Sequence[str], target: str, upper: str = "", work: str = "") -> None:
        """By descriptors, because the options of a mount fit on one page, and need no escapes then."""
        fds: list[int] = []

        def reference(path: str) -> str:
            if path.startswith("/proc/self/fd/"):
                return path
            fds.append(os.open(path, beneath.REFERENCE))
            return f"/proc/self/fd/{fds[-1]}"

        try:
            options = f"lowerdir={':'.join(reference(layer) for layer in layers)}"
            if upper:
                options += f",upperdir={reference(upper)},workdir={reference(work)}"
            if self._in_user_namespace:
                options += ",userxattr"
            calls.sys_mount("overlay", target, "overlay", 0, options)
        finally:
            for fd in fds:
                os.close(fd)

    def _mount_other(self, path: str, kind: str) -> None:
        """Another file system of the machine; nothing where the image has something else there."""
        is_directory = os.path.isdir(path)
        if _may_be_layer(path, kind):
            with contextlib.suppress(OSError):  # not every file system can be a layer
                self._overlay(path, machine=True)
                return
        with contextlib.suppress(OSError):
            place = beneath.open_beneath(self._root_fd, path.lstrip("/"), beneath.REFERENCE)
            try:
                if stat.S_ISDIR(os.fstat(place).st_mode) == is_directory:
                    self._bind(path, f"/proc/self/fd/{place}", read_only=path != "/proc")
            finally:
                os.close(place)
            if path == "/proc":
                protect_proc(f"{self._root}/proc")

    def _mount_devices(self) -> None:
        with self._place("/dev") as place:
            calls.sys_mount("tmpfs", place, "tmpfs", _NOSUID, "mode=755,size=64k")
        with self._place("/dev") as target:
            for name in sorted(os.listdir("/dev")):
                if name in _DEVICES or name.startswith(_DEVICE_PREFIXES):
                    self._bind_device(f"/dev/{name}", f"{target}/{name}")
            for name, to in _DEVICE_LINKS:
                os.symlink(to, f"{target}/{name}")
            os.mkdir(f"{target}/shm")
            calls.sys_mount("shm", f"{target}/shm", "tmpfs", _NOSUID, "mode=1777")

    def _bind_device(self, device: str, target: str) -> None:
        if os.path.isdir(device):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        calls.sys_mount(device, target, None, _BIND | _REC)

    def _cover(self, path: str) -> None:
        """Nothing of a directory is seen."""
        if os.path.isdir(path):
            with self._place(path) as target:
                calls.sys_mount("tmpfs", target, "tmpfs", _NOSUID, "mode=755,size=64k")

    def _share(self, path: str, *, read_only: bool) -> None:
        with self._place(path) as target:
            self._bind(path, target, read_only=read_only)

    def _bind(self, path: str, target: str, *, read_only: bool) -> None:
        tree = calls.detached_copy(path)
        try:
            if read_only:
                _make_read_only(tree)
            calls.attach(tree, int(target.rpartition("/")[2]))
        finally:
            os.close(tree)

    def _next(self) -> int:
        self._count += 1
        return self._count


def _may_be_layer(path: str, kind: str) -> bool:
    """Can an overlay lie on this file system of the machine?"""
    return kind not in _KERNEL_FILE_SYSTEMS and os.path.isdir(path)


def _copy_skeleton(path: str, copy: str, points: set[str]) -> Iterator[tuple[str, str]]:
    """Makes the entries of a directory in `copy`, empty: links as they are, and what is to be mounted there. Goes down
    where something is mounted (`points`) below; gives what nothing is mounted on, which can be a layer of its own."""
    for entry in sorted(os.scandir(path), key=lambda e: e.name):
        target = f"{copy}/{entry.name}"
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif not entry.is_dir(follow_symlinks=False):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            yield entry.path, ""
        else:
            os.mkdir(target)
            if entry.path in points or entry.path in (*TEMPORARY, "/proc", "/sys", "/dev"):
                continue
            if any(point.startswith(f"{entry.path}/") for point in points):
                with contextlib.suppress(PermissionError):  # what we may not look into stays empty
                    yield from _copy_skeleton(entry.path, target, points)
            else:
                yield entry.path, ""


def _make_directories(base: str, path: str) -> None:
    """`path` below `base`, each directory with the mode and owner that the machine's has: the uppermost decides in an
    overlay."""
    current, like = base, ""
    for step in path.strip("/").split("/"):
        current, like = f"{current}/{step}", f"{like}/{step}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(current)
            _copy_mode(like, current)


def _open_way_to_interpreter(upper: str) -> None:
    """Where the interpreter lies in a home that only its owner enters, users of the image (USER) find it nevertheless: they may
    go through, and list nothing."""
    closed = []
    for program in {sys.executable, os.path.realpath(sys.executable)}:
        directory = os.path.dirname(program)
        while directory not in ("/", ""):
            if not os.stat(directory).st_mode & stat.S_IXOTH:
                closed.append(directory)
            directory = os.path.dirname(directory)
    for directory in closed:
        if not os.path.isdir(upper + directory):
            _make_directories(upper, directory)
            os.chmod(upper + directory, stat.S_IMODE(os.stat(directory).st_mode) | stat.S_IXGRP | stat.S_IXOTH)


def _copy_mode(model: str, path: str) -> None:
    with contextlib.suppress(OSError):  # an owner that we cannot give
        seen = os.stat(model)
        os.chmod(path, stat.S_IMODE(seen.st_mode))
        os.chown(path, seen.st_uid, seen.st_gid)


def _open_directory(directory: int, path: str) -> int | None:
    """The directory of that path below another one; None where there is none, or a link is on the way: a layer is an
    image's, and its links mean files of the container."""
    try:
        return beneath.open_beneath(directory, path.lstrip("/"), beneath.REFERENCE | os.O_DIRECTORY)
    except OSError:
        return None


def _other_mounts(skipped: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Mount point and type of the machine's mounts but /, without those that lie below another or below `skipped`."""
    with open("/proc/self/mountinfo") as file:
        rows = [line.split() for line in file]
    covered = tuple(path.rstrip("/") + "/" for path in skipped)
    for path, kind in sorted({_unescape(row[4]): row[row.index("-") + 1] for row in rows}.items()):
        if path != "/" and not f"{path}/".startswith(covered):
            yield path, kind
            covered += (f"{path}/",)


def _unescape(path: str) -> str:
    for escaped, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(escaped, character)
    return path


def _is_initial_user_namespace() -> bool:
    with open("/proc/self/uid_map") as file:
        return file.read().split() == ["0", "0", "4294967295"]


class _MountAttr(ctypes.Structure):
    """`struct mount_attr`."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _make_read_only(tree: int) -> None:
    """Everything that is mounted in a detached tree."""
    attr = _MountAttr(attr_set=_ATTR_RDONLY)
    calls.syscall(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH | _RECURSIVE, ctypes.byref(attr), ctypes.sizeof(attr))
