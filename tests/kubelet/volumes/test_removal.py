"""Directories are removed with all that a program has closed in them, also by who is not root."""

import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rowlock.kubelet.files import beneath
from rowlock.kubelet.shim import netns

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a closed directory stays")
_OTHER = 65534
_SET_DUMPABLE = 4


def as_other(action: Callable[[], None]) -> None:
    """Calls it as a user who may pass no directory that is closed to him."""
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(_OTHER)
                os.setuid(_OTHER)
                netns.prctl(_SET_DUMPABLE, 1)  # else its /proc/self is root's
            action()
            os._exit(0)
        except (OSError, AssertionError):
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in which everybody may write; those that pytest makes lie below one that is closed to others."""
    made = Path(tempfile.mkdtemp(prefix="rowlock-removal-"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("mode", [0o000, 0o500, 0o444, 0o111, 0o222])
def test_closed_directories_go(place: Path, mode: int) -> None:
    def act() -> None:
        closed = [place / "top", place / "top" / "middle", place / "top" / "middle" / "low"]
        closed[-1].mkdir(parents=True)
        for directory in reversed(closed):
            (directory / "file").write_text("x")
            directory.chmod(mode)
        beneath.remove_path(str(place / "top"))
        assert not os.path.lexists(place / "top")

    as_other(act)


def test_what_a_link_leads_to_keeps_its_mode(place: Path) -> None:
    def act() -> None:
        (place / "kept" / "inside").mkdir(parents=True)
        (place / "top").mkdir()
        (place / "top" / "link").symlink_to(place / "kept")
        (place / "kept").chmod(0o500)
        (place / "top").chmod(0)
        beneath.remove_path(str(place / "top"))
        assert (place / "kept" / "inside").is_dir() and (place / "kept").stat().st_mode & 0o777 == 0o500
        assert not (place / "top").exists()

    as_other(act)
