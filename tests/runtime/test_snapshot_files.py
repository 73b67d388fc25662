"""Checkpoints on disk: whole or not there, whatever happens in between; without torch."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from rowlock.runtime.snapshot_files import MANIFEST, CheckpointError, SnapshotFiles, check, rank_file


def ranks(root: Path, count: int = 1, keep: int = 3) -> list[SnapshotFiles]:
    return [SnapshotFiles(root, rank, count, keep=keep) for rank in range(count)]


def save(files: SnapshotFiles, step: int, rank: int = 0, content: bytes = b"state") -> None:
    files.write(step, rank_file(rank), lambda path: path.write_bytes(content))


def test_the_newest_whole_one_is_found_and_the_oldest_go(tmp_path: Path) -> None:
    (files,) = ranks(tmp_path, keep=2)
    for step in (5, 10, 15):
        save(files, step)
        files.commit(step)
    newest = files.newest(pytest.fail)
    assert newest is not None and (newest.step, newest.world_size) == (15, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000010", "step-000000015"]


def test_nothing_is_there_at_first(tmp_path: Path) -> None:
    assert ranks(tmp_path / "none")[0].newest(pytest.fail) is None


@pytest.mark.parametrize("damage", ["cut", "bit", "gone", "manifest", "no manifest", "other format", "empty"])
def test_a_damaged_one_is_passed_over_and_named(tmp_path: Path, damage: str) -> None:
    (files,) = ranks(tmp_path)
    for step in (1, 2):
        save(files, step, content=b"a state of some length")
        files.commit(step)
    newest = tmp_path / "step-000000002"
    file, manifest = newest / rank_file(0), newest / MANIFEST
    match damage:
        case "cut":
            file.write_bytes(file.read_bytes()[:-1])
        case "bit":
            file.write_bytes(b"A" + file.read_bytes()[1:])
        case "gone":
            file.unlink()
        case "manifest":
            manifest.write_text(manifest.read_text()[:-9])
        case "no manifest":
            manifest.unlink()
        case "other format":
            manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
        case "empty":
            manifest.write_text("[]")
    said: list[str] = []
    found = files.newest(said.append)
    assert found is not None and found.step == 1
    assert len(said) == 1 and "step-000000002 is not whole" in said[0]
    assert check(newest) and not check(found.path)


def test_one_that_was_never_finished_is_none_and_goes(tmp_path: Path) -> None:
    first, second = ranks(tmp_path, 2)
    save(first, 7)
    assert first.newest(pytest.fail) is None
    first.discard_partial()
    assert list(tmp_path.iterdir()) == []
    save(second, 7, rank=1)
    with pytest.raises(CheckpointError, match="1 of 2 ranks have not written"):
        first.commit(7, timeout=0.05)


def test_a_checkpoint_is_complete_when_the_last_rank_has_written(tmp_path: Path) -> None:
    first, second = ranks(tmp_path, 2)
    save(first, 7)
    committing = threading.Thread(target=first.commit, args=(7,))
    committing.start()
    assert first.newest(pytest.fail) is None
    save(second, 7, rank=1)
    committing.join(200)
    found = second.newest(pytest.fail)
    assert found is not None and found.world_size == 2
    assert sorted(path.name for path in found.path.iterdir()) == [MANIFEST, rank_file(0), rank_file(1)]


def test_another_attempt_replaces_the_checkpoint_of_its_step(tmp_path: Path) -> None:
    (files,) = ranks(tmp_path)
    for content in (b"first", b"second"):
        save(files, 3, content=content)
        files.commit(3)
    found = files.newest(pytest.fail)
    assert found is not None and (found.path / rank_file(0)).read_bytes() == b"second"


def test_a_full_disk_is_a_sentence_and_leaves_the_older_ones(tmp_path: Path) -> None:
    (files,) = ranks(tmp_path)
    save(files, 1)
    files.commit(1)

    def no_room(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match=r"step 2 could not be written .*No space left.* are whole"):
        files.write(2, rank_file(0), no_room)
    found = files.newest(pytest.fail)
    assert found is not None and found.step == 1
