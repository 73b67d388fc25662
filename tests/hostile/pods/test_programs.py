"""What a program gets that it should not have, and what it should have and does not get."""

from __future__ import annotations

import errno
import json
import os
import pwd
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock.diagnostics.rank_failures import find_run_error
from rowlock.kubelet.files import log_writer

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


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


@ROOT_ONLY
def test_a_program_of_another_user_tells_its_failure_as_torch_does(tmp_path: Path) -> None:
    """torch removes an older file and writes another: a directory of its own for each run."""
    report = json.dumps({"message": {"message": "ValueError: bad batch", "extraInfo": {}}})
    script = (
        "test ! -e $TORCHELASTIC_ERROR_FILE && echo old > $TORCHELASTIC_ERROR_FILE && rm $TORCHELASTIC_ERROR_FILE"
        f" && echo '{report}' > $TORCHELASTIC_ERROR_FILE && id -u; exit 3"
    )

    async def body(node: Node) -> None:
        if why := node.kubelet.node.mount_problem:
            pytest.skip(f"containers cannot have mounts of their own here: {why}")
        os.chmod(tmp_path, 0o700)
        nobody = pwd.getpwnam("nobody").pw_uid
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": "j1", "controller": True}
        container = {"securityContext": {"runAsUser": nobody}}
        await node.add(pod("a", script, "OnFailure", container=container, ownerReferences=[owner]))
        await until(lambda: (node.state("a", "restartCount") or 0) >= 1, "a restart")
        await until(lambda: node.state("a", "lastState.terminated.exitCode") == 3, "its first end")
        (directory,) = (tmp_path / "pods").glob("*/main")
        error = find_run_error(directory, 0)
        assert error is not None and (error.kind, error.text) == ("ValueError", "bad batch")
        assert (directory / "errors.0").stat().st_uid == nobody
        await until(lambda: not (directory / "errors.0").exists(), "what is older than the last two runs to go")

    on_node(tmp_path, body, restart_backoff=0.2)


def test_an_error_file_of_another_user_is_an_enemys(tmp_path: Path) -> None:
    """Neither the file nor the directory may be a link, and nothing is waited for."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "error.json").write_text(json.dumps({"message": "Secret: it is out"}))
    (tmp_path / "errors.0").symlink_to(elsewhere)
    assert find_run_error(tmp_path, 0) is None
    for number in (1, 2, 3):
        (tmp_path / f"errors.{number}").mkdir()
    os.mkfifo(tmp_path / "errors.1" / "error.json")
    (tmp_path / "errors.2" / "error.json").mkdir()
    (tmp_path / "errors.3" / "error.json").symlink_to(elsewhere / "error.json")
    assert [find_run_error(tmp_path, number) for number in (1, 2, 3)] == [None] * 3
    (tmp_path / "errors.9").mkdir()
    (tmp_path / "errors.9" / "error.json").write_text(json.dumps({"message": "ValueError: no"}))
    assert find_run_error(tmp_path, 9) is not None


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


def test_what_was_lost_last_is_said_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    log = log_writer.LogFile(str(tmp_path / "log"))
    disk.room = 0
    log.write(b"lost\n")
    log.write(b"")  # as a shim does before each try to write how its program ended
    disk.room = 1 << 30
    log.write(b"")
    log.write(b"")
    log.close()
    (text,) = [line[log_writer.TIMESTAMP_WIDTH :] for line in (tmp_path / "log").read_bytes().splitlines()]
    assert b"are missing here" in text
