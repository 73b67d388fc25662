"""The hint to ext4 that pods' directories are unrelated."""

import os
from pathlib import Path

import pytest

from rowlock.kubelet.files.inode_groups import TOP_DIRECTORY, lacks_journal, read_flags, spread_subdirectories


def machine(place: Path, *, ext4: bool, journals: tuple[str, ...]) -> str:
    """A /proc and a /sys with one disk, vda, as device 254:0."""
    (place / "sys" / "dev" / "block").mkdir(parents=True)
    (place / "sys" / "dev" / "block" / "254:0").symlink_to("../../devices/pci0/virtio1/block/vda")
    (place / "proc" / "fs").mkdir(parents=True)
    if ext4:
        (place / "proc" / "fs" / "ext4" / "vda").mkdir(parents=True)
    for journal in journals:
        (place / "proc" / "fs" / "jbd2" / journal).mkdir(parents=True)
    return f"{place}/"


@pytest.mark.parametrize(
    ("ext4", "journals", "lacks"),
    [(True, (), True), (True, ("vda-8",), False), (True, ("vdab-8", "loop0-8"), True), (False, (), False)],
)
def test_only_ext4_without_a_journal_wants_the_hint(
    tmp_path: Path, ext4: bool, journals: tuple[str, ...], lacks: bool
) -> None:
    root = machine(tmp_path, ext4=ext4, journals=journals)
    assert lacks_journal(os.makedev(254, 0), root) is lacks
    with pytest.raises(OSError):
        lacks_journal(os.makedev(0, 31), root)  # tmpfs has no block device


def test_the_hint_is_given_where_it_helps_and_nowhere_is_an_error(tmp_path: Path) -> None:
    def has_hint() -> bool:
        fd = os.open(tmp_path, os.O_RDONLY)
        try:
            return bool(read_flags(fd) & TOP_DIRECTORY)
        except OSError:
            return False
        finally:
            os.close(fd)

    def wants_hint() -> bool:
        try:
            return lacks_journal(tmp_path.stat().st_dev)
        except OSError:
            return False

    spread_subdirectories(str(tmp_path))
    spread_subdirectories(str(tmp_path))
    assert has_hint() is wants_hint()
    (tmp_path / "a").mkdir()
    spread_subdirectories(str(tmp_path / "gone"))
    (tmp_path / "link").symlink_to("a")
    spread_subdirectories(str(tmp_path / "link"))
