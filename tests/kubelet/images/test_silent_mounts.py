"""A file system of the machine whose server is gone holds no container up: here a FUSE one whose program never answers."""

import errno
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from rowlock.kubelet.images import build
from rowlock.kubelet.mounts import calls, machine_files, rootfs
from rowlock.kubelet.mounts.rootfs import RootfsSpec

SILENT = "/mnt"


@pytest.fixture(autouse=True)
def can_mount(tmp_path: Path) -> None:
    if problem := build.rootfs_problem(tmp_path / "probe"):
        pytest.skip(f"containers cannot have root file systems of their own here: {problem}")
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.skip("only root may write where these steps do")


def beside_a_silent_one(action: Callable[[], None]) -> str:
    """Calls it in a process that sees a file system that does not answer, as nobody else does; what it says."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(writer, 2)
            calls.unshare_mounts()
            fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
            calls.sys_mount("silent", SILENT, "fuse", 0, f"fd={fuse},rootmode=40000,user_id=0,group_id=0")
            action()
            code = 0
        except (OSError, AssertionError, rootfs.RootfsError):
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(writer)
    with open(reader) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, said
    return said


def image(place: Path) -> RootfsSpec:
    (place / "layer").mkdir()
    (place / "layer" / "text").write_text("of the image")
    return RootfsSpec(
        layers=[str(place / "layer")],
        upper=str(place / "run" / "upper"),
        scratch=str(place / "run" / "scratch"),
        hidden=(),
        overlaid=(),
        shared=(),
        own=(),
        entry="",
        is_kept=False,
    )


def test_a_container_starts_without_it_and_says_so(tmp_path: Path) -> None:
    spec, below = image(tmp_path), os.listdir(SILENT)

    def start() -> None:
        rootfs.enter(spec)
        assert Path("/text").read_text() == "of the image"
        assert sorted(os.listdir(SILENT)) == sorted(below), "what it lies on"
        assert f" {SILENT} " not in Path("/proc/self/mountinfo").read_text()

    assert beside_a_silent_one(start) == f"rowlock: {SILENT} of this machine does not answer: it is left out\n"


def test_nothing_is_assembled_ahead_without_it(tmp_path: Path) -> None:
    spec = image(tmp_path)

    def assemble() -> None:
        try:
            rootfs.assemble_ahead(spec)
        except OSError as error:
            assert (error.errno, error.filename) == (errno.ETIMEDOUT, SILENT)
        else:
            raise AssertionError("a container would miss it for as long as the spare is kept")

    assert beside_a_silent_one(assemble) == ""


def test_one_that_is_silent_hides_no_other_and_leaves_no_process() -> None:
    def ask() -> None:
        machine_files.ANSWER_SECONDS = 10.0  # the others answer at once, but not on every machine within two seconds
        mounts = [("/usr", "nfs"), (SILENT, "fuse.sshfs"), ("/nowhere", "nfs4"), ("/etc", "cifs"), ("/proc", "proc")]
        assert machine_files.silent_mounts(mounts) == {SILENT}
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        assert children == "", children

    assert beside_a_silent_one(ask) == ""


def test_local_file_systems_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: sys.exit("a process was made"))
    assert machine_files.silent_mounts([("/", "ext4"), ("/x", "xfs"), ("/proc", "proc"), ("/y", "overlay")]) == set()


def test_who_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_files, "ANSWER_SECONDS", 600.0)
    began = time.monotonic()
    assert machine_files.silent_mounts([("/usr", "nfs"), ("/nowhere", "nfs4"), ("/etc", "cifs")]) == set()
    assert time.monotonic() - began < 300
