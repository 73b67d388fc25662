"""Root file systems that are assembled before a container needs them, for images that are in use.

An image's root file system is some thirty mounts and five hundred system calls; nearly all of them depend on the image and
on the machine, not on the pod. So after a container of an image has started, a process forked from the pod host makes them
once more, in a mount namespace of its own, and exits; the pod host keeps the namespace as a descriptor. The next container
of the image enters it and mounts what is its own. No other container ever does.

A spare has a directory of its own for what will be written, which becomes the container's by a rename. It is valid only
while the machine and the image are unchanged (`machine_files.likeness`). When a pod host dies, the namespaces go with the
last descriptor, and the next pod host removes the directories. Standard library only.
"""

import contextlib
import fcntl
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rowlock.kubelet.files import beneath
from rowlock.kubelet.mounts import machine_files, rootfs
from rowlock.kubelet.mounts.rootfs import RootfsSpec

SPARES_PER_IMAGE = 2
MAX_IMAGES = 4
"""Most images that have spares: each spare is several overlays, which the kernel keeps. Beyond that, the image whose last
start is longest ago loses its spares."""
IDLE_TIMEOUT = 900.0
"""Seconds without a start after which an image loses its spares."""
PAUSE = 0.01
"""Seconds between a start and the assembly of a spare: the starting program gets the CPUs first."""
_POLL_INTERVAL = 0.005
"""Seconds between polls for an assembled spare."""
CHECK_INTERVAL = 3.0
"""Seconds between checks whether spares are still valid."""
_ASSEMBLY_TIMEOUT = 10.0
_RETRY_SECONDS = 60.0
_MAX_ANSWER = 4096
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class SpareRoot(NamedTuple):
    """A spare: a directory with `upper` in it, and the mount namespace (a descriptor)."""

    directory: str
    namespace: int


class _Stock:
    """The spares of one image, valid as long as the machine and the image are as at its creation."""

    def __init__(self, spec: RootfsSpec) -> None:
        self.spec, self.spares = spec, list[SpareRoot]()
        self.used_at = 0.0
        self.try_at = 0.0
        """When the next one may be made; later after a failure."""
        named = (*spec["layers"], *spec["hidden"], *spec["overlaid"], *(path for path, _ in spec["shared"]))
        self._watched = machine_files.watched_paths(named)
        self._versions = [spec["entry"]] if spec["entry"] else []
        if not machine_files.is_initial_user_namespace():
            self._versions += machine_files.mount_parents()
        self._likeness = machine_files.likeness(self._watched, self._versions)

    def is_valid(self) -> bool:
        """Whether all that the spares depend on is unchanged."""
        return machine_files.likeness(self._watched, self._versions) == self._likeness

    def fail(self, problem: str) -> None:
        """Notes a failure: containers make their own, and the pod host's log says why."""
        self.try_at = time.monotonic() + _RETRY_SECONDS
        print(f"no root file system was assembled ahead: {problem}", file=sys.stderr, flush=True)


class _Assembler(NamedTuple):
    """A process that makes a spare."""

    pid: int
    connection: socket.socket
    stock: _Stock
    directory: str
    began: float


class SpareRoots:
    """All spares, which the pod host owns. `close_other_fds` closes, in a fork, everything but the descriptors it is given."""

    def __init__(self, close_other_fds: Callable[..., None]) -> None:
        self._close_other_fds = close_other_fds
        self._directory, self._directory_fd, self._count = "", -1, 0
        self._stocks: dict[tuple[object, ...], _Stock] = {}
        self._assembler: _Assembler | None = None
        self._due_at = self._checked_at = 0.0

    def settle(self, data: str) -> None:
        """Enables spares, in a new directory below `data`, the data directory; removes what dead pod hosts have left there.
        Does nothing the second time."""
        if self._directory_fd >= 0:
            return
        with contextlib.suppress(OSError):  # a full disk, say: there are no spares then
            parent = f"{data}/.roots"
            os.makedirs(parent, mode=0o700, exist_ok=True)
            _remove_abandoned(parent)
            self._directory = f"{parent}/{os.getpid()}-{time.monotonic_ns()}"
            os.mkdir(self._directory, 0o700)
            self._directory_fd = _lock(self._directory)

    def take(self, spec: RootfsSpec) -> SpareRoot | None:
        """A spare for a container that starts; the caller closes its namespace. None = the container makes its own. Either way
        spares will be made for the next one."""
        if self._directory_fd < 0 or spec["is_kept"] or spec["upper"] != f"{spec['scratch']}/upper":
            return None
        self._collect()
        key = _key(spec)
        stock = self._stocks.pop(key, None)
        if stock is None or not stock.is_valid():
            self._discard(stock.spares if stock else [])
            stock = self._new_stock(spec)
        self._stocks[key] = stock  # the last entry is the image that was started last
        stock.used_at = time.monotonic()
        while len(self._stocks) > MAX_IMAGES:
            self._drop(next(iter(self._stocks)))
        if not self._assembler and self._due_at <= stock.used_at:  # else an earlier deadline stands
            self._due_at = stock.used_at + PAUSE
        return stock.spares.pop(0) if stock.spares else None

    def wait_seconds(self) -> float | None:
        """Seconds until `advance` has something to do; None = there is nothing."""
        if self._assembler:
            return _POLL_INTERVAL
        return max(0.0, self._due_at - time.monotonic()) if self._next_stock() else None

    def advance(self) -> None:
        """Called by the pod host between requests: takes an assembled spare, begins the next one when it is due, and drops
        those that are no longer valid."""
        self._collect()
        now = time.monotonic()
        self._drop_useless(now)
        if not self._assembler and now >= self._due_at and (stock := self._next_stock()):
            self._start_assembler(stock)

    def _drop_useless(self, now: float) -> None:
        """Every CHECK_INTERVAL seconds: drops spares whose image has changed or is no longer used, and those that would now be made
        differently."""
        if now - self._checked_at < CHECK_INTERVAL:
            return
        self._checked_at = now
        for key, stock in list(self._stocks.items()):
            if now - stock.used_at > IDLE_TIMEOUT or not stock.is_valid():
                self._drop(key)

    def close(self) -> None:
        """Removes all spares and their directories."""
        self._collect()
        if self._assembler:
            self._abandon_assembler(self._assembler)
        for spare in (spare for stock in self._stocks.values() for spare in stock.spares):
            os.close(spare.namespace)
        self._stocks.clear()
        if self._directory_fd >= 0:
            beneath.remove_path(self._directory)
            os.close(self._directory_fd)
            self._directory_fd = -1
            with contextlib.suppress(OSError):  # another pod host has spares there
                os.rmdir(os.path.dirname(self._directory))

    def _new_stock(self, spec: RootfsSpec) -> _Stock:
        stock = _Stock({**spec, "own": ()})
        pods = os.path.dirname(spec["scratch"])
        if os.stat(pods).st_dev != os.fstat(self._directory_fd).st_dev:
            stock.try_at = math.inf  # a directory cannot be renamed to another file system
        return stock

    def _next_stock(self) -> _Stock | None:
        """Of the images that need one more spare, the one that was started last."""
        now, stocks = time.monotonic(), reversed(self._stocks.values())
        return next((s for s in stocks if len(s.spares) < SPARES_PER_IMAGE and s.try_at <= now), None)

    def _start_assembler(self, stock: _Stock) -> None:
        if not stock.is_valid():
            stock.try_at = math.inf  # its image may be deleted: the next start will show
            return
        self._count += 1
        directory = f"{self._directory}/{self._count}"
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError as error:
            stock.fail(str(error))
            ours.close()
            theirs.close()
            return
        if pid == 0:
            self._close_other_fds(theirs.fileno())
            _assemble({**stock.spec, "scratch": directory, "upper": f"{directory}/upper"}, theirs)
        theirs.close()
        ours.setblocking(False)
        self._assembler = _Assembler(pid, ours, stock, directory, time.monotonic())

    def _collect(self) -> None:
        """Takes the spare from the process that assembles it, if it is ready."""
        assembler = self._assembler
        if assembler is None:
            return
        try:
            text, fds, _, _ = socket.recv_fds(assembler.connection, _MAX_ANSWER, 1, _CLOSE_ON_EXEC)
        except BlockingIOError:
            if time.monotonic() - assembler.began > _ASSEMBLY_TIMEOUT:
                assembler.stock.fail(f"it took longer than {_ASSEMBLY_TIMEOUT:g} s")
                self._abandon_assembler(assembler)
            return
        self._assembler = None
        assembler.connection.close()
        if not fds:
            assembler.stock.fail(text.decode(errors="replace") or "the process that makes it was killed")
            beneath.remove_path(assembler.directory)
            return
        spare = SpareRoot(assembler.directory, fds[0])
        if assembler.stock in self._stocks.values():
            assembler.stock.spares.append(spare)
        else:
            self._discard([spare])

    def _abandon_assembler(self, assembler: _Assembler) -> None:
        """Kill it without waiting: a file system that does not answer may hold it. The pod host reaps all children."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(assembler.pid, signal.SIGKILL)
        assembler.connection.close()
        self._assembler = None
        beneath.remove_path(assembler.directory)

    def _drop(self, key: tuple[object, ...]) -> None:
        self._discard(self._stocks.pop(key).spares)

    def _discard(self, spares: list[SpareRoot]) -> None:
        """Discards spares in a child: unmounting a file system for the last time may wait for the disk."""
        if not spares:
            return
        try:
            if os.fork() == 0:
                try:
                    self._close_other_fds(*(spare.namespace for spare in spares))
                    for spare in spares:
                        beneath.remove_path(spare.directory)
                finally:
                    os._exit(0)
        except OSError:  # no fork: the namespaces are closed here, and the directories go with the pod host
            pass
        for spare in spares:
            os.close(spare.namespace)


def _key(spec: RootfsSpec) -> tuple[object, ...]:
    """The key of an image's spares; equal for containers that can use each other's."""
    shared = tuple((path, mode) for path, mode in spec["shared"])
    return spec["entry"], tuple(spec["layers"]), tuple(spec["hidden"]), tuple(spec["overlaid"]), shared


def _assemble(spec: RootfsSpec, connection: socket.socket) -> None:
    """In the forked process: assembles a spare and sends its namespace; never returns."""
    try:
        try:
            namespace = rootfs.assemble_ahead(spec)
        except (OSError, rootfs.RootfsError) as error:
            connection.send((str(error) or "it cannot be assembled").encode()[:_MAX_ANSWER])
        else:
            socket.send_fds(connection, [b"."], [namespace])
    finally:
        os._exit(0)


def _lock(directory: str) -> int:
    """Marks a directory as in use as long as this process lives. Raises OSError if it is another's."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _remove_abandoned(parent: str) -> None:
    """Removes the directories that no process has locked."""
    for name in os.listdir(parent):
        with contextlib.suppress(OSError):  # it is another pod host's, or was just removed
            fd = _lock(f"{parent}/{name}")
            beneath.remove_path(f"{parent}/{name}")
            os.close(fd)


def adopt(directory: str, spec: Mapping[str, Any]) -> bool:
    """In the container's own process: makes a spare's directory for written files this run's. False if that fails."""
    beneath.remove_path(spec["scratch"])
    try:
        os.rename(directory, spec["scratch"])
    except OSError:
        return False
    return True
