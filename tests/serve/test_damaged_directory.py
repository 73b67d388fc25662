"""Each file of a data directory, damaged while no server runs: the next start works and has lost nothing, or is refused in one
sentence that names the file and says what to do; and what is refused works again when the file is put back."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, make

FILES = (
    "cluster.db", "cluster.revision", "ca.crt", "ca.key", "server.crt", "server.key", "service-account.key", "token", "accounts.json",
    "credentials.json", "config.json", "server.json", "kubeconfig", "audit.jsonl", "lock", "podhost.log", "server.log", "wake", "told.json",
    "archive/archive.db", "archive/logs", "archive", "hosts", "pods", "logs", "claims", "checkpoints", "deaths", "sources", "images",
)  # fmt: skip
"""And directories: a file in their place."""
_CERTIFICATES = frozenset(name for name in FILES if name.endswith((".crt", ".key")))
"""What becomes of their content is in `tests/http_server/test_damaged_files.py`."""
_NEXT_STEP = re.compile(r"remove|put it back|put the|restore|move|choose|look at|mend|chmod")


def cut(path: Path) -> None:
    if path.is_file():
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])


def flip_a_bit(path: Path) -> None:
    if path.is_file() and (content := bytearray(path.read_bytes())):
        content[len(content) * 2 // 3] ^= 4
        path.write_bytes(content)


def put_a_directory(path: Path) -> None:
    _remove(path)
    path.mkdir()
    (path / "full").touch()


def put_a_link(path: Path) -> None:
    _remove(path)
    path.symlink_to("/proc/self/nowhere")


def put_a_file(path: Path) -> None:
    _remove(path)
    path.write_text("no directory")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """A cluster that was used and is down, and a copy of its directory."""
    home = tmp_path_factory.mktemp("damaged")
    cluster = make(home / "data", home)
    cluster.up()
    subprocess.run(
        ["rowlock", "user", "create", "ana"], env=cluster.env, input="correct horse battery", text=True,
        capture_output=True, timeout=200,
    )  # fmt: skip
    cluster.api(
        "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "precious"}, "data": {"a": "42"}}
    )
    cluster.run("rowlock", "run", "--name", "done", "--", "echo", "said")
    cluster.run("rowlock", "project", "set", "default")
    cluster.run("rowlock", "down", "--yes")
    copy = home / "whole"
    shutil.copytree(
        cluster.data, copy, symlinks=True, ignore=lambda _, names: [n for n in names if n in ("wake", "podhost.sock")]
    )
    yield cluster, copy
    subprocess.run(["rowlock", "down", "--yes"], env=cluster.env, capture_output=True, timeout=200)


def put_back(cluster: Cluster, copy: Path) -> None:
    """In the same directory: a copy would be another one."""
    for path in cluster.data.iterdir():
        _remove(path)
    shutil.copytree(copy, cluster.data, symlinks=True, dirs_exist_ok=True)


def start(cluster: Cluster) -> str:
    """ "" where the server starts and has lost nothing, else what it says."""
    done = subprocess.run(
        ["rowlock", "up", "-d"], env=cluster.env, text=True, capture_output=True, timeout=200, cwd="/"
    )
    if done.returncode:
        return done.stdout + done.stderr
    try:
        kept = cluster.api("GET", "/api/v1/namespaces/default/configmaps/precious")
        assert kept["data"] == {"a": "42"}
        runs = json.loads(cluster.run("rowlock", "history", "-p", "default", "--json"))
        assert (
            "done" in json.dumps(runs)
            or "damaged" in cluster.run("rowlock", "history", "-p", "default") + done.stdout + cluster.last_words()
        )
    finally:
        cluster.run("rowlock", "down", "--yes")
    return ""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "damage", [cut, flip_a_bit, put_a_directory, put_a_link, put_a_file], ids=lambda one: one.__name__
)
def test_no_damage_is_silent(whole: tuple[Cluster, Path], damage: Callable[[Path], None]) -> None:
    cluster, copy = whole
    wrong = list[str]()
    for name in FILES:
        put_back(cluster, copy)
        path = cluster.data / name
        is_directory = (copy / name).is_dir()
        if name in _CERTIFICATES and damage in (cut, flip_a_bit):
            continue
        if not (copy / name).exists() or (is_directory != (damage is put_a_file) and damage is not put_a_link):
            continue
        damage(path)
        try:
            said = start(cluster)
        except (AssertionError, pytest.fail.Exception) as lost:
            said = f"LOST: {lost}"
        if said and not (name.rpartition("/")[2] in said and _NEXT_STEP.search(said) and "Traceback" not in said):
            wrong.append(f"{name}: {said[-1500:]}")
    assert not wrong, "\n\n".join(wrong)
