"""The root file system of a container whose image has files: the image's layers over this machine's, in an overlay.

What the program writes, and what it deletes, is written to a directory of this one run; neither the image nor the machine
changes. Below the layers lies the machine, so that its interpreter and its libraries are there; its /tmp and what
`hidden` names are not. Other file systems of the machine are overlaid in the same way, or bound read-only where an
overlay cannot lie on them. /dev has the usual devices and the accelerators, /sys is read-only.

`enter` is called in the program's own process, which has a mount namespace of its own (`calls.unshare_mounts`).
Standard library only, because shims are made of it; Linux only (mount_setattr: 5.12).
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict

from rowlock.kubelet.files import beneath
from rowlock.kubelet.mounts import calls, machine_files, volume_mounts

_NOSUID, _BIND, _REC, _NEWNS = 0x2, 0x1000, 0x4000, 0x20000
_HOSTS = "/etc/hosts"
_DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
)
_MACHINE_SETTINGS = ("sys", "sysrq-trigger", "irq", "bus")


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
    own: Sequence[Sequence[str]]
    """The same, of this run alone: mounted last."""
    entry: str
    """The file that names the layers, of an image; "" = there is none. What was assembled ahead is of no use when it changes."""
    is_kept: bool
    """Is what is written a layer of an image? Else nobody needs it after a crash of the machine, and nothing waits until
    it is on the disk."""


class RootfsError(Exception):
    """A root file system that could not be made; a sentence."""


def enter(spec: RootfsSpec, mounts: Sequence[Mapping[str, Any]] = (), hosts: str = "", ahead: int = -1) -> None:
    """Moves into it, and mounts there what is this run's own: `own` of the spec, the file `hosts`, the volumes
    (`volume_mounts.mount_volumes`).

    Makes it, in the mount namespace of the calling process; or takes the one of the mount namespace `ahead`, which
    `assemble_ahead` made of the same spec (where it cannot be entered, a new one is made after all). Raises RootfsError
    or MountError."""
    sources = volume_mounts.open_sources(mounts, detached=True)
    try:
        own = [(path, _open_shared(path, mode)) for path, mode in spec["own"]]
        hosts_file = _open_shared(hosts, "ro") if hosts and os.path.exists(_HOSTS) else -1
        if ahead < 0 or not _join(ahead):
            if ahead >= 0:
                calls.unshare_mounts()
            _pivot_into(_Assembly(spec).mount_all())
        _attach_own(own, hosts_file)
    except OSError as error:
        where = f" ({error.filename})" if isinstance(error.filename, str) else ""
        raise RootfsError(
            f"the image's root file system could not be mounted: {error.strerror or error}{where}"
        ) from None
    volume_mounts.bind_volumes(mounts, sources)


def assemble_ahead(spec: RootfsSpec) -> int:
    """Makes all but what is a run's own, in a mount namespace that `enter` takes: its descriptor. The calling process is
    inside afterwards, and of no use for anything else. Raises OSError."""
    os.umask(0o022)
    calls.unshare(_NEWNS)
    calls.make_private()
    _pivot_into(_Assembly(spec, needs_all=True).mount_all())
    return os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)


def _pivot_into(root: str) -> None:
    os.chdir(root)
    calls.pivot_root(".", ".")
    calls.detach(".")
    os.chdir("/")


def _join(namespace: int) -> bool:
    """Moves to the root of a mount namespace. False where this process may not: it is where it was."""
    try:
        calls.setns(namespace, _NEWNS)
    except OSError:
        return False
    return True


def _open_shared(path: str, mode: str) -> int:
    """A directory or file of the machine, as a mount that lies nowhere yet."""
    tree = calls.detached_copy(path)
    if mode == "ro":
        calls.make_read_only(tree)
    return tree


def _attach_own(own: Sequence[tuple[str, int]], hosts_file: int) -> None:
    """In the new root: mounts what `_open_shared` opened, and closes it."""
    root = os.open("/", beneath.DIRECTORY)
    for path, tree in own:
        place = _open_place(root, path)
        calls.attach(tree, place)
        os.close(place)
        os.close(tree)
    if hosts_file >= 0:
        if (file := _open_file(root, _HOSTS)) is not None:
            calls.attach(hosts_file, file)
            os.close(file)
        os.close(hosts_file)
    os.close(root)


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
                calls.make_read_only(tree)
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
                layers=[layer],
                upper=upper,
                scratch=f"{directory}/scratch",
                hidden=(),
                overlaid=(),
                shared=(),
                own=(),
                entry="",
                is_kept=False,
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

    def __init__(self, spec: RootfsSpec, *, needs_all: bool = False) -> None:
        self._spec, self._needs_all = spec, needs_all
        self._root, self._memory, self._work = (f"{spec['scratch']}/{name}" for name in ("root", "memory", "work"))
        self._count = 0
        self._root_fd = -1
        self._layer_fds: list[int] = []
        self._skeleton = f"{self._memory}/skeleton"
        self._in_user_namespace = not machine_files.is_initial_user_namespace()

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
        other_mounts = list(
            machine_files.other_mounts(
                [*machine_files.TEMPORARY, *spec["hidden"], spec["scratch"], spec["upper"], "/dev"]
            )
        )
        silent, points = machine_files.silent_mounts(other_mounts), {path for path, _ in other_mounts}
        self._leave_out(sorted(silent))
        other_mounts = [(path, kind) for path, kind in other_mounts if path not in silent]
        calls.sys_mount("tmpfs", self._memory, "tmpfs", 0, "mode=755")
        os.mkdir(f"{self._memory}/empty")
        if self._in_user_namespace:
            os.mkdir(self._skeleton)
            other_mounts = sorted([*other_mounts, *machine_files.copy_skeleton("/", self._skeleton, points)])
        # before anything is mounted: an overlay may not be changed from below
        for path in (
            *machine_files.TEMPORARY,
            *(path for path, kind in other_mounts if machine_files.may_be_layer(path, kind)),
            *spec["overlaid"],
        ):
            machine_files.make_directories(spec["upper"], path)
        if not self._in_user_namespace:
            machine_files.open_way_to_interpreter(spec["upper"])
        self._mount_machine()
        for path, kind in other_mounts:
            self._mount_other(path, kind)
        for path in machine_files.TEMPORARY:
            self._overlay(path, machine=False)
        self._mount_devices()
        for path in spec["hidden"]:
            self._cover(path)
        for path in spec["overlaid"]:
            self._overlay(path, machine=True)
        for path, mode in spec["shared"]:
            with self._place(path) as target:
                self._bind(path, target, read_only=mode == "ro")

    def _leave_out(self, silent: Sequence[str]) -> None:
        """Of the machine's file systems, those whose server is gone: the container starts without them, and says so.
        Raises OSError for what is to be used later, when it may have come back."""
        if silent and self._needs_all:
            raise OSError(errno.ETIMEDOUT, "a file system of the machine does not answer", silent[0])
        for path in silent:
            with contextlib.suppress(OSError):  # no receiver is left
                os.write(2, f"rowlock: {path} of this machine does not answer: it is left out\n".encode())

    @contextlib.contextmanager
    def _place(self, path: str) -> Iterator[str]:
        """A name for a directory of the new root, made where it is missing: no link of the image is followed."""
        fd = _open_place(self._root_fd, path)
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
                if not self._spec["is_kept"] and os.geteuid() == 0:  # only root can remove what this leaves
                    options += ",volatile"
            if self._in_user_namespace:
                options += ",userxattr"
            calls.sys_mount("overlay", target, "overlay", 0, options)
        finally:
            for fd in fds:
                os.close(fd)

    def _mount_other(self, path: str, kind: str) -> None:
        """Another file system of the machine; nothing where the image has something else there."""
        is_directory = os.path.isdir(path)
        if machine_files.may_be_layer(path, kind):
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
            for name in machine_files.device_names():
                if name != "ptmx" or not _make_ptmx(target):
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

    def _bind(self, path: str, target: str, *, read_only: bool) -> None:
        tree = calls.detached_copy(path)
        try:
            if read_only:
                calls.make_read_only(tree)
            calls.attach(tree, int(target.rpartition("/")[2]))
        finally:
            os.close(tree)

    def _next(self) -> int:
        self._count += 1
        return self._count


def _make_ptmx(directory: str) -> bool:
    """The device from which programs get pseudo-terminals. The kernel looks for these in the `pts` beside it, and beside a file
    that is bound it finds none. False where we may make no devices."""
    try:
        os.mknod(f"{directory}/ptmx", stat.S_IFCHR, os.makedev(5, 2))
        os.chmod(f"{directory}/ptmx", 0o666)
    except OSError:
        return False
    return True


def _open_place(root: int, path: str) -> int:
    """A directory below an open root, made where it is missing: no link of the image is followed."""
    fd = _open_directory(root, path)  # nearly always there, and one call
    return beneath.make_directories(root, path.lstrip("/"), 0o755) if fd is None else fd


def _open_directory(directory: int, path: str) -> int | None:
    """The directory of that path below another one; None where there is none, or a link is on the way: a layer is an
    image's, and its links mean files of the container."""
    try:
        return beneath.open_beneath(directory, path.lstrip("/"), beneath.REFERENCE | os.O_DIRECTORY)
    except OSError:
        return None


def _open_file(directory: int, path: str) -> int | None:
    """The regular file of that path below a directory; None where an image has removed it, or put something else there."""
    try:
        fd = beneath.open_beneath(directory, path.lstrip("/"), beneath.REFERENCE)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None
