"""The root file system of a container whose image has files: the image's layers over this machine's, in an overlay.

What the program writes and deletes goes into a directory of this one run; neither the image nor the machine changes. Below
the layers is the machine's root, for its interpreter and its libraries, but without /tmp and the directories in `hidden`.
Other file systems of the machine are overlaid in the same way, or bound read-only where an overlay cannot be mounted on them.
/dev has the usual devices and the accelerators, /sys is read-only.

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
    """The image's layers, the uppermost first."""
    upper: str
    """The directory for what is written; existing contents stay."""
    scratch: str
    """A directory of this run alone for mounts; cleared first."""
    hidden: Sequence[str]
    """Directories of the machine that the container does not see."""
    overlaid: Sequence[str]
    """Directories below hidden ones that it sees all the same, under the image's layers."""
    shared: Sequence[Sequence[str]]
    """Path and mode (`rw` or `ro`) of directories shared with the machine."""
    own: Sequence[Sequence[str]]
    """The same for directories of this run alone, which are mounted last."""
    entry: str
    """The image's file that names the layers; "" = none. When it changes, root file systems assembled ahead are discarded."""
    is_kept: bool
    """Whether what is written becomes a layer of an image. Otherwise it is not needed after a crash of the machine, and nothing
    waits until it is on the disk."""


class RootfsError(Exception):
    """A root file system could not be made; carries a sentence."""


def enter(spec: RootfsSpec, mounts: Sequence[Mapping[str, Any]] = (), hosts: str = "", ahead: int = -1) -> None:
    """Enters the root file system and mounts what is this run's own: `own` of the spec, the file `hosts`, the volumes
    (`volume_mounts.mount_volumes`).

    It is made in the mount namespace of the calling process; or, if `ahead` is a mount namespace that `assemble_ahead` made
    from the same spec, it is that one (if it cannot be entered, a new one is made after all). Raises RootfsError
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
    """Makes everything except a run's own mounts, in a new mount namespace for `enter`. Returns its descriptor. The calling process
    is in the namespace afterwards and must end. Raises OSError."""
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
    """Enters a mount namespace, at its root. False if this process may not; it then stays where it is."""
    try:
        calls.setns(namespace, _NEWNS)
    except OSError:
        return False
    return True


def _open_shared(path: str, mode: str) -> int:
    """A directory or file of the machine as a detached mount."""
    tree = calls.detached_copy(path)
    if mode == "ro":
        calls.make_read_only(tree)
    return tree


def _attach_own(own: Sequence[tuple[str, int]], hosts_file: int) -> None:
    """In the new root: mounts what `_open_shared` has opened, and closes it."""
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
    """The path where `mount_root` mounts the root file system."""
    return f"{spec['scratch']}/root"


def mount_root(spec: RootfsSpec) -> None:
    """Makes the root file system and leaves it mounted at `root_path`. Raises RootfsError."""
    try:
        _Assembly(spec).mount_all()
    except OSError as error:
        raise RootfsError(f"an image's root file system could not be mounted: {error.strerror or error}") from None


def open_root(spec: RootfsSpec) -> int:
    """Makes the root file system and returns its root as a descriptor of detached mounts. Raises RootfsError."""
    try:
        return calls.detached_copy(_Assembly(spec).mount_all())
    except OSError as error:
        raise RootfsError(f"an image's root file system could not be mounted: {error.strerror or error}") from None


def protect_proc(proc: str) -> None:
    """Makes the files of a /proc that configure the machine read-only, as in every container."""
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
    """Why containers cannot have root file systems of their own here; "" when they can. Tried in a child, with files in
    `directory`, on the file system of the pods' files."""
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
    place = f"{data}/.probe-{os.getpid()}"  # not by `tempfile`: its imports cost every fork memory
    try:
        os.mkdir(place)
    except OSError as error:
        return f"{data}: {error.strerror}"
    return probe(place)


class _Assembly:
    """Makes the mounts of one root file system, in order."""

    def __init__(self, spec: RootfsSpec, *, needs_all: bool = False) -> None:
        self._spec, self._needs_all = spec, needs_all
        self._root, self._memory, self._work = (f"{spec['scratch']}/{name}" for name in ("root", "memory", "work"))
        self._count = 0
        self._root_fd = -1
        self._layer_fds: list[int] = []
        self._skeleton = f"{self._memory}/skeleton"
        self._in_user_namespace = not machine_files.is_initial_user_namespace()

    def mount_all(self) -> str:
        """Mounts everything, parents first; returns the path of the root."""
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
        # before anything is mounted: the layers of an overlay may not change
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
        """Leaves out file systems of the machine whose server is gone; the container starts without them, with a note on stderr.
        Raises OSError when assembling ahead, as they may be back when the result is used."""
        if silent and self._needs_all:
            raise OSError(errno.ETIMEDOUT, "a file system of the machine does not answer", silent[0])
        for path in silent:
            with contextlib.suppress(OSError):  # no receiver is left
                os.write(2, f"rowlock: {path} of this machine does not answer: it is left out\n".encode())

    @contextlib.contextmanager
    def _place(self, path: str) -> Iterator[str]:
        """A path of a directory in the new root, made if missing; no link of the image is followed."""
        fd = _open_place(self._root_fd, path)
        try:
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)

    def _mount_machine(self) -> None:
        """Mounts the overlay at /. In a user namespace the machine's root cannot be a layer, as mounts lie on it that may not be
        removed; there the layers are its directories without mounts on them or below them."""
        is_user = self._in_user_namespace
        self._overlay("/", machine=not is_user, below=[self._skeleton] if is_user else [])

    def _overlay(self, path: str, *, machine: bool, below: Sequence[str] = ()) -> None:
        """Mounts the image's layers at `path`, over the machine's files there if `machine`."""
        inside = "" if path == "/" else path
        held = [fd for layer in self._layer_fds if (fd := _open_directory(layer, inside)) is not None]
        try:
            layers = [f"/proc/self/fd/{fd}" for fd in held]
            if inside and not machine and not any(os.listdir(layer) for layer in layers):
                # there is nothing to lay over, and an overlay takes half a millisecond
                with self._place(path) as target:
                    self._bind(self._spec["upper"] + inside, target, read_only=False)
                return
            self._lay_over(path, [*layers, *([self._machine_layer(path)] if machine else ()), *below])
        finally:
            for fd in held:
                os.close(fd)

    def _lay_over(self, path: str, layers: Sequence[str]) -> None:
        """Mounts the overlay of these layers at `path`; writes go to that path of the upper directory."""
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
        """Makes a directory of the machine usable as a layer. Writes go to a directory below it on the disk, which overlayfs refuses;
        so another overlay of that directory alone is put between them."""
        target = f"{self._memory}/{self._next()}"
        os.mkdir(target)
        self._mount_overlay([f"{self._memory}/empty", path], target)
        return target

    def _mount_overlay(self, layers: Sequence[str], target: str, upper: str = "", work: str = "") -> None:
        """Mounts an overlay by descriptors, because mount options must fit on one page, and need no escapes then."""
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
                if not self._spec["is_kept"] and os.geteuid() == 0:  # its leftovers can only be removed by root
                    options += ",volatile"
            if self._in_user_namespace:
                options += ",userxattr"
            calls.sys_mount("overlay", target, "overlay", 0, options)
        finally:
            for fd in fds:
                os.close(fd)

    def _mount_other(self, path: str, kind: str) -> None:
        """Mounts another file system of the machine, unless the image has something else at its path."""
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
        """Hides a directory of the machine, if it exists."""
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
    """Makes the device from which programs get pseudo-terminals. The kernel looks for them in `pts` beside it, which it does not find
    beside a bound device. False if we may make no devices."""
    try:
        os.mknod(f"{directory}/ptmx", stat.S_IFCHR, os.makedev(5, 2))
        os.chmod(f"{directory}/ptmx", 0o666)
    except OSError:
        return False
    return True


def _open_place(root: int, path: str) -> int:
    """Opens a directory below an open root, made if missing; no link of the image is followed."""
    fd = _open_directory(root, path)  # nearly always there: one call
    return beneath.make_directories(root, path.lstrip("/"), 0o755) if fd is None else fd


def _open_directory(directory: int, path: str) -> int | None:
    """The directory at that path below another one; None if there is none, or a link is on the way: links of an image's layer mean
    files of the container."""
    try:
        return beneath.open_beneath(directory, path.lstrip("/"), beneath.REFERENCE | os.O_DIRECTORY)
    except OSError:
        return None


def _open_file(directory: int, path: str) -> int | None:
    """The regular file at that path below a directory; None if an image has removed or replaced it."""
    try:
        fd = beneath.open_beneath(directory, path.lstrip("/"), beneath.REFERENCE)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None
