"""The data directory: for its owner alone, and no file of it opens the server by being empty or half written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.rest.conftest import TOKEN, World, _world

from rowlock.errors import BadRequest
from rowlock.rest.call import RestSettings
from rowlock.serve import prepare_data_dir
from rowlock.server_files import ensure_token
from rowlock.storage.journal import Journal


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("left", ["", "\n", "short"])
def test_a_token_that_protects_nothing_is_made_anew(tmp_path: Path, left: str) -> None:
    path = tmp_path / "token"
    path.write_text(left)
    path.chmod(0o644)
    token = ensure_token(path)
    assert len(token) >= 32
    assert path.read_text() == token + "\n"
    assert mode(path) == 0o600
    assert ensure_token(path) == token, "a good one stays"


def test_a_link_laid_where_the_token_will_be_written_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "token.new").symlink_to(victim)
    ensure_token(tmp_path / "token")
    assert victim.read_text() == "mine"


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Token, kubeconfig and server.json: after a power cut each is the old one or the new one, never an empty one."""
    steps, fsync, replace = list[str](), os.fsync, Path.replace

    def sync(fd: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        steps.append("directory" if is_directory else f"{os.fstat(fd).st_size} bytes")
        fsync(fd)

    def rename(self: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", rename)
    token = ensure_token(tmp_path / "token")
    assert steps == [f"{len(token) + 1} bytes", "rename", "directory"]


def test_an_empty_token_opens_nothing(tmp_path: Path) -> None:
    world: World
    for world in _world(RestSettings(token="", user="ana"), tmp_path):
        client: TestClient = world.client
        for headers in ({}, {"authorization": "Bearer "}, {"authorization": f"Bearer {TOKEN}"}):
            assert client.get("/api/v1/workloads", headers=headers).status_code == 401


def test_secrets_on_disk_are_for_their_owner(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    mask = os.umask(0)
    try:
        path.touch(mode=0o644)  # as an older rowlock may have left it
        journal = Journal(path)
        journal.append([])
    finally:
        os.umask(mask)
    files = [tmp_path / name for name in ("cluster.db", "cluster.db-wal", "cluster.db-shm", "lock")]
    assert {file.name: oct(mode(file)) for file in files} == {file.name: "0o600" for file in files}
    journal.close()


def test_a_directory_that_is_open_to_others_is_closed_or_refused(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for directory, file in ((ours, "cluster.db"), (theirs, "thesis.tex")):
        directory.mkdir()
        directory.chmod(0o755)
        (directory / file).touch()
    prepare_data_dir(ours)
    assert mode(ours) == 0o700
    with pytest.raises(BadRequest, match=r"open to other users \(mode 0755\).*chmod 700"):
        prepare_data_dir(theirs)
    assert mode(theirs) == 0o755, "it was left as it is"
    prepare_data_dir(tmp_path / "new")
    assert mode(tmp_path / "new") == 0o700
