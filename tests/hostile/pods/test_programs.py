"""What a program gets that it should not have, and what it should have and does not get."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod

from rowlock.kubelet.files import log_writer

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("network", ["rewrite", "auto"])
def test_a_program_has_its_three_descriptors_and_no_namespace(tmp_path: Path, network: str) -> None:
    async def body(node: Node) -> None:
        container = {
            "command": ["python", "-c", "import os; print(*(os.readlink(p) for p in (f'/proc/self/fd/{n}' for n in range(3, 64)) if os.path.lexists(p)))"],
            "volumeMounts": [{"name": "m", "mountPath": "/rowlock-m"}],
        }  # fmt: skip
        volumes = [{"name": "m", "emptyDir": {"medium": "Memory"}}]
        await node.add(pod("a", "", container=container, spec={"volumes": volumes}))
        await node.ended("a")
        assert await node.log("a") == "\n"

    on_node(tmp_path, body, network=network)


@ROOT_ONLY
@pytest.mark.parametrize("network", ["rewrite", "auto"])
def test_a_program_of_another_user_writes_checkpoints_that_stay(tmp_path: Path, network: str) -> None:
    async def body(node: Node) -> None:
        if why := node.kubelet.node.mount_problem:
            pytest.skip(f"containers cannot have mounts of their own here: {why}")
        os.chmod(tmp_path, 0o700)
        script = "echo x >> $ROWLOCK_CHECKPOINT_DIR/c; cat $ROWLOCK_CHECKPOINT_DIR/c; id -u; test $(wc -l < $ROWLOCK_CHECKPOINT_DIR/c) -ge 2"
        nobody = pwd.getpwnam("nobody").pw_uid
        await node.add(pod("a", script, "OnFailure", container={"securityContext": {"runAsUser": nobody}}))
        await node.ended("a")
        assert await node.log("a") == f"x\nx\n{nobody}\n"
        (kept,) = (tmp_path / "checkpoints").glob("*/c")
        assert kept.read_text() == "x\nx\n" and kept.stat().st_uid == nobody

    on_node(tmp_path, body, network=network)


class Disk:
    """`os.write` with so much room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room, self._write = 1 << 30, os.write
        monkeypatch.setattr(log_writer.os, "write", self.write)  # type: ignore[attr-defined]

    def write(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self._write(fd, data[: self.room])
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", [0, 1, 31, 40, 60, 200])
def test_output_that_was_lost_to_a_full_disk_is_said_and_glues_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    disk = Disk(monkeypatch)
    log = log_writer.LogFile(str(tmp_path / "log"))
    log.write(b"first\n")
    disk.room = room
    for n in range(20):
        log.write(b"a line that may be lost %d\n" % n)
    log.write(b"half a li")
    disk.room = 1 << 30
    log.write(b"ne\n")
    log.write(b"last\n")
    log.close()
    lines = (tmp_path / "log").read_bytes().splitlines()
    texts = [line[log_writer.TIMESTAMP_WIDTH :] for line in lines]
    (gap,) = [n for n, text in enumerate(texts) if b"bytes of output are missing here: the disk was full" in text]
    assert texts[0] == b"first" and texts[gap + 1 :] == [b"ne", b"last"]
    whole = [text for text in texts[1:gap] if text in {b"a line that may be lost %d" % n for n in range(20)}]
    assert len(texts[1:gap]) - len(whole) <= 1, "at most the last one is cut"


def test_a_gap_within_the_mark_is_said_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    log = log_writer.LogFile(str(tmp_path / "log"))
    for room in (0, 50, 10):
        disk.room = room
        log.write(b"lost\n")
    disk.room = 1 << 30
    log.write(b"last\n")
    log.close()
    texts = [line[log_writer.TIMESTAMP_WIDTH :] for line in (tmp_path / "log").read_bytes().splitlines()]
    assert texts[-1] == b"last" and b"are missing here" in texts[-2]
