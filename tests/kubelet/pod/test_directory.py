"""The directories of pods: what a crash leaves of one that is being removed."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import remove_pod

from rowlock.kubelet.files import beneath
from rowlock.kubelet.files.moves import move_file
from rowlock.kubelet.pod.directory import PodCard, PodDirectories

CARD = PodCard("default", "a", "0-1", "node", "127.0.0.1", 1.0, (), owner="")


def with_files(data: Path) -> PodDirectories:
    directories = PodDirectories(data)
    directories.write_card(CARD)
    (directories.pods / "0-1" / "volumes").mkdir()
    (directories.pods / "0-1" / "volumes" / "big").write_text("data")
    return directories


def test_a_removal_that_a_crash_ended_goes_on_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def crash_after_the_card(path: str, _: object) -> None:
        (Path(path) / "pod.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(beneath, "remove_path", crash_after_the_card)
        with pytest.raises(KeyboardInterrupt):
            remove_pod(with_files(tmp_path), CARD)
    after = PodDirectories(tmp_path)
    assert after.read_cards() == [] and list(after.pods.iterdir())
    after.finish_removals()
    assert not list(after.pods.iterdir()) and not caplog.records


def test_what_cannot_be_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(beneath, "remove_path", lambda *_: None)  # as with an immutable file
    with caplog.at_level(logging.WARNING):
        remove_pod(with_files(tmp_path), CARD)
    assert "cannot be removed whole" in caplog.text


def test_the_logs_of_pods_with_the_longest_names_are_kept_apart(tmp_path: Path) -> None:
    """Namespace, name and uid are more than the name of a file may have; a shared beginning makes them no one pod."""
    cards = [
        PodCard("n" * 63, "p" * 252 + letter, f"0000000{letter}-0000-4000-8000-000000000000", "node", "127.0.0.1", 1.0)
        for letter in "ab"
    ]
    told: list[str] = []
    directories = PodDirectories(tmp_path, told.append)
    for card in cards:
        directories.write_card(card)
        container = directories.container_directory(card.uid, "c")
        container.mkdir()
        (container / "start.0").write_text("{}")
        (container / "log.0").write_text(card.name)
        remove_pod(directories, card)
    assert not list(directories.pods.iterdir()) and len(told) == 2
    for card in cards:
        found = directories.find_deleted_pod_log(card.namespace, card.name, "")
        assert found is not None and found.read_text() == card.name


def refuse(monkeypatch: pytest.MonkeyPatch, call: str, code: int) -> None:
    def refused(*args: object, **options: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refused)


def with_log(data: Path) -> PodDirectories:
    directories = with_files(data)
    container = directories.container_directory(CARD.uid, "c")
    container.mkdir()
    (container / "core").write_text("much")
    (container / "log.0").write_text("said\n")
    return directories


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE], ids=errno.errorcode.get)
@pytest.mark.parametrize("call", ["mkdir", "scandir"])
def test_a_log_that_finds_no_room_aside_is_moved_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str, code: int
) -> None:
    """A full disk has no block for a new directory."""
    directories = with_log(tmp_path)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        refuse(patch, call, code)
        remove_pod(directories, CARD)
    assert "takes them" in caplog.text and os.strerror(code) in caplog.text
    after = PodDirectories(tmp_path)  # the same server's sweep, or the next server
    assert after.read_cards() == []
    after.finish_removals()
    assert not list(after.pods.iterdir())
    log = after.find_deleted_pod_log(CARD.namespace, CARD.name, "")
    assert log is not None and log.read_text() == "said\n"


def test_a_deleted_pod_gives_a_full_disk_all_but_its_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories = with_log(tmp_path)
    refuse(monkeypatch, "mkdir", errno.ENOSPC)
    remove_pod(directories, CARD)
    left = sorted(path.name for path in directories.pods.rglob("*") if path.is_file())
    assert left == ["log.0", "pod.json"]
    directories.finish_removals()  # still full
    assert sorted(path.name for path in directories.pods.rglob("*") if path.is_file()) == left


def test_a_pod_that_filled_the_disk_makes_room_for_its_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories = with_log(tmp_path)
    big, mkdir = directories.pods / CARD.uid / "volumes" / "big", os.mkdir

    def make_if_there_is_room(*args: Any, **options: Any) -> None:
        if big.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        mkdir(*args, **options)

    monkeypatch.setattr(os, "mkdir", make_if_there_is_room)
    remove_pod(directories, CARD)
    assert not list(directories.pods.iterdir())
    assert directories.find_deleted_pod_log(CARD.namespace, CARD.name, "") is not None


def test_a_server_that_ends_does_not_wait_for_endless_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one goes on where it has stopped."""
    directories, unlink = with_files(tmp_path), os.unlink
    for number in range(10):
        (directories.pods / CARD.uid / "volumes" / f"file-{number}").touch()

    def unlink_the_last_one(name: str, **options: Any) -> None:
        unlink(name, **options)
        directories.stop_removals()

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink_the_last_one)
        remove_pod(directories, CARD)
    assert len([path for path in directories.pods.rglob("*") if path.is_file()]) == 11
    PodDirectories(tmp_path).finish_removals()
    assert not list(directories.pods.iterdir())


def set_apart(monkeypatch: pytest.MonkeyPatch, directories: PodDirectories) -> None:
    """`logs` lies on another file system from here on."""
    rename, logs = os.rename, directories.logs

    def rename_within(source: Any, target: Any) -> None:
        if (logs in Path(source).parents) is not (logs in Path(target).parents):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source), None, str(target))
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_within)


def test_a_log_is_copied_to_another_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time says which log is the newest; what was given back to the disk is not written there."""
    directories = with_log(tmp_path)
    log = directories.container_directory(CARD.uid, "c") / "log.0"
    with log.open("r+b") as file:
        file.seek(1 << 40)
        file.write(b"ended\n")
        file.truncate((1 << 40) + (1 << 20))
    os.utime(log, (100, 200))
    told: list[str] = []
    directories = PodDirectories(tmp_path, told.append)
    set_apart(monkeypatch, directories)
    remove_pod(directories, CARD)
    assert not list(directories.pods.iterdir()) and len(told) == 1
    (aside,) = directories.logs.iterdir()
    assert os.listdir(aside) == ["c.0.log"]
    status = (aside / "c.0.log").stat()
    assert status.st_mtime == 200 and status.st_size == (1 << 40) + (1 << 20) and status.st_blocks < 100
    with (aside / "c.0.log").open("rb") as file:
        assert file.read(5) == b"said\n" and file.seek(1 << 40) and file.read(7) == b"ended\n\0"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
def test_a_log_that_another_file_system_refuses_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    directories = with_log(tmp_path)
    with monkeypatch.context() as patch:
        set_apart(patch, directories)
        refuse(patch, "pwrite", code)
        remove_pod(directories, CARD)
        assert not list(directories.logs.rglob("*.log*"))
    directories.finish_removals()
    assert not list(directories.pods.iterdir())
    log = directories.find_deleted_pod_log(CARD.namespace, CARD.name, "")
    assert log is not None and log.read_text() == "said\n"


def test_a_log_waits_for_a_file_system_that_is_not_mounted_now(tmp_path: Path) -> None:
    """`logs` is a link that leads nowhere."""
    directories = with_log(tmp_path)
    directories.logs.rmdir()
    directories.logs.symlink_to(tmp_path / "mount" / "logs")
    remove_pod(directories, CARD)
    (tmp_path / "mount" / "logs").mkdir(parents=True)
    directories.finish_removals()
    log = directories.find_deleted_pod_log(CARD.namespace, CARD.name, "")
    assert log is not None and log.read_text() == "said\n"


@pytest.mark.parametrize(
    "make", [lambda p: p.symlink_to("/etc/passwd"), os.mkfifo, os.mkdir], ids=["link", "fifo", "dir"]
)
def test_what_takes_a_logs_place_is_not_copied(tmp_path: Path, make: Any) -> None:
    """A program swaps it after the server has looked."""
    source, target = tmp_path / "log.0", tmp_path / "c.0.log"
    make(source)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match=r"Too many|not a regular"):
        refuse(patch, "rename", errno.EXDEV)
        move_file(str(source), str(target))
    assert os.listdir(tmp_path) == ["log.0"]


def test_the_logs_of_a_pod_that_fails_for_hours_push_out_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = PodDirectories(tmp_path)
    for number, name in enumerate(["mine", *["loop"] * 12]):
        place = directories.logs / f"default_{name}_{number}"
        place.mkdir()
        (place / "main.0.log").write_text("said")
        os.utime(place, (number, number))
    monkeypatch.setattr("rowlock.kubelet.pod.directory.MAX_KEPT_POD_LOGS", 4)
    directories.forget_old_logs()
    assert sorted(entry.name for entry in directories.logs.iterdir()) == [
        "default_loop_10", "default_loop_11", "default_loop_12", "default_mine_0",
    ]  # fmt: skip
