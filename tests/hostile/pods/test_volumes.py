"""Volumes in which a program has put links, deep trees and worse: nothing outside of them is touched."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock import kinds
from rowlock.kubelet.files import beneath
from rowlock.kubelet.mounts import volume_mounts
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.volume import Volume
from rowlock.kubelet.volumes.directories import VolumeDirectories, write_files
from rowlock.kubelet.volumes.volumes import Mount

FILES = {"key": (b"value", 0o644), "sub/other": (b"more", 0o600)}
DEPTH = 3000
"""Levels of directories: more than Python recurses."""


@pytest.fixture(params=["openat2", "component by component"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without the system call that keeps paths below a directory."""
    if request.param != "openat2":
        monkeypatch.setattr(beneath, "_openat2", lambda *_, **__: None)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory of somebody else, with a file."""
    directory = tmp_path / "victim"
    directory.mkdir()
    (directory / "precious").write_text("kept")
    (directory / "precious").chmod(0o600)
    return directory


def unharmed(victim: Path) -> bool:
    entries = sorted(entry.name for entry in victim.iterdir())
    mode = stat.S_IMODE((victim / "precious").stat().st_mode)
    return entries == ["precious"] and (victim / "precious").read_text() == "kept" and mode == 0o600


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A volume's directory and a handle of it."""
    directory = tmp_path / "volume"
    directory.mkdir()
    with beneath.open_directory(str(directory)) as fd:
        yield directory, fd


PLANTED: dict[str, Callable[[Path, Path], object]] = {
    "..data leads out": lambda volume, victim: (volume / "..data").symlink_to(victim),
    "..data leads up": lambda volume, victim: (volume / "..data").symlink_to("../victim"),
    "..data leads to itself": lambda volume, victim: (volume / "..data").symlink_to("..data"),
    "..data leads to nothing": lambda volume, victim: (volume / "..data").symlink_to("..99"),
    "..data is a directory": lambda volume, victim: (volume / "..data" / "deep").mkdir(parents=True),
    "..new is a directory": lambda volume, victim: (volume / "..new").mkdir(),
    "..new leads out": lambda volume, victim: (volume / "..new").symlink_to(victim),
    "a key is a FIFO": lambda volume, victim: os.mkfifo(volume / "key"),
    "a key leads out": lambda volume, victim: (volume / "key").symlink_to(victim / "precious"),
    "a key is a directory": lambda volume, victim: (volume / "key" / "deep").mkdir(parents=True),
    "a stranger": lambda volume, victim: (volume / "stranger").symlink_to(victim),
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
@pytest.mark.usefixtures("kernel")
def test_files_are_written_whatever_lies_there(
    plant: Callable[[Path, Path], object], volume: tuple[Path, int], victim: Path
) -> None:
    directory, fd = volume
    plant(directory, victim)
    write_files(fd, FILES)
    assert (directory / "key").read_bytes() == b"value" and (directory / "sub" / "other").read_bytes() == b"more"
    plain = sorted(entry.name for entry in directory.iterdir() if not entry.name.startswith(".."))
    assert plain == ["key", "sub"] and unharmed(victim)


@pytest.mark.usefixtures("kernel")
def test_files_whose_data_was_exchanged_are_written_anew(volume: tuple[Path, int], victim: Path) -> None:
    directory, fd = volume
    write_files(fd, FILES)
    data = directory / os.readlink(directory / "..data")
    (data / "key").unlink()
    (data / "key").symlink_to(victim / "precious")
    (data / "sub").rename(data / "old")
    (data / "sub").symlink_to(victim)
    write_files(fd, FILES)
    assert (directory / "key").read_bytes() == b"value" and (directory / "sub" / "other").read_bytes() == b"more"
    assert unharmed(victim) and not data.exists()


def test_files_that_are_there_are_not_written_again(volume: tuple[Path, int]) -> None:
    directory, fd = volume
    write_files(fd, FILES)
    data = os.readlink(directory / "..data")
    write_files(fd, FILES)
    assert os.readlink(directory / "..data") == data


def test_the_group_of_a_volume_reaches_nothing_that_is_exchanged_meanwhile(
    volume: tuple[Path, int], victim: Path
) -> None:
    """As `renameat2` in a loop would do it, at the worst moment of each step."""
    directory, fd = volume
    for name in ("a", "b"):
        (directory / name / "inner").mkdir(parents=True)
        (directory / name / "inner" / "precious").write_text("mine")
    swapped = []

    def swap_first(parent: int, name: str, found: os.stat_result) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{parent}")) / name
        path.rename(path.with_name(f"{name}.moved"))
        path.symlink_to(victim if stat.S_ISDIR(found.st_mode) else victim / "precious")
        swapped.append(name)
        beneath.change_group(parent, name, os.getgid())

    beneath.visit_tree(fd, swap_first)
    assert len(swapped) >= 6 and unharmed(victim)


def test_a_directory_that_is_moved_away_ends_the_walk(volume: tuple[Path, int], victim: Path) -> None:
    directory, fd = volume
    (directory / "a" / "b").mkdir(parents=True)
    (directory / "a" / "b" / "file").touch()

    def move(parent: int, name: str, found: os.stat_result) -> None:
        (directory / "a" / "b").rename(victim.parent / "elsewhere")

    with pytest.raises(OSError, match="moved"):
        beneath.visit_tree(fd, move)


def link_out(base: Path, victim: Path, depth: int) -> str:
    """A path of three components below `base` whose component `depth` is a link to the victim."""
    words = ["one", "two", "three"]
    parent = base.joinpath(*words[:depth])
    parent.mkdir(parents=True, exist_ok=True)
    (parent / words[depth]).symlink_to(victim)
    return "/".join(words)


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.usefixtures("kernel")
def test_a_sub_path_leaves_the_volume_by_no_link(tmp_path: Path, victim: Path, depth: int, absolute: bool) -> None:
    directories = VolumeDirectories(tmp_path)
    volume = Volume("work", "empty")
    directories.make_volumes("uid", [volume])
    base = directories.volume_path("uid", volume)
    target = victim if absolute else Path(os.path.relpath(victim, base.joinpath(*["x"] * depth)))
    path = link_out(base, target, depth)
    with pytest.raises(ContainerConfigError, match="failed to prepare subPath"):
        directories.mount_specs("uid", [volume], [Mount("work", "/mnt", path)])[0]["source"]
    with pytest.raises(OSError):
        volume_mounts._open_source({"root": str(base), "sub_path": path, "source": ""})
    assert unharmed(victim)


@pytest.mark.usefixtures("kernel")
def test_a_sub_path_may_use_links_that_stay_in_the_volume(tmp_path: Path) -> None:
    directories = VolumeDirectories(tmp_path)
    volume = Volume("files", "files", FILES)
    directories.make_volumes("uid", [volume])
    source = directories.mount_specs("uid", [volume], [Mount("files", "/mnt", "sub/other")])[0]["source"]
    assert Path(source).read_bytes() == b"more"
    work = Volume("work", "empty")
    directories.make_volumes("uid", [work])
    made = Path(directories.mount_specs("uid", [work], [Mount("work", "/mnt", "deep/er")])[0]["source"])
    assert made == directories.volume_path("uid", work) / "deep" / "er" and stat.S_IMODE(made.stat().st_mode) == 0o777


def test_a_volume_that_a_link_replaced_is_refused(tmp_path: Path, victim: Path) -> None:
    directories = VolumeDirectories(tmp_path)
    for volume in (Volume("work", "empty"), Volume("files", "files", FILES)):
        path = directories.volume_path("uid", volume)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(victim)
        with pytest.raises(ContainerConfigError, match=r"MountVolume\.SetUp failed"):
            directories.make_volumes("uid", [volume], os.getgid())
    assert unharmed(victim)


@pytest.mark.parametrize("path", ["/tmp/\0", "a\0b"])
def test_a_path_with_a_nul_is_a_volume_that_cannot_be_mounted(tmp_path: Path, path: str) -> None:
    directories = VolumeDirectories(tmp_path)
    with pytest.raises(ContainerConfigError, match=r"MountVolume\.SetUp failed"):
        directories.make_volumes("uid", [Volume("host", "host", path=path)])


@pytest.mark.parametrize("name", ["..", "../../victim", "a/b", "", "a\0b", "*"])
def test_the_directory_of_a_claim_is_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ContainerConfigError, match="cannot name a directory"):
        VolumeDirectories(tmp_path).volume_path("uid", Volume("data", "claim", path=name))


def deep_tree(directory: Path, levels: int) -> None:
    fd = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


def test_a_tree_deeper_than_python_recurses_is_measured_and_removed(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "tree").mkdir()
    deep_tree(tmp_path / "tree", DEPTH)
    (tmp_path / "tree" / "out").symlink_to(victim)
    assert beneath.newest_change(str(tmp_path / "tree")) > 0 and beneath.disk_usage(str(tmp_path / "tree")) >= 0
    with beneath.open_directory(str(tmp_path / "tree")) as fd:
        beneath.change_groups(fd, os.getgid())
    beneath.remove_path(str(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists() and unharmed(victim)


# ---------------------------------------------------------------- against a node

CONFIG: Any = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}
SECRET: Any = {**CONFIG, "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
FILE_VOLUMES: list[Any] = [
    {"name": "config", "configMap": {"name": "c"}},
    {"name": "secret", "secret": {"secretName": "s"}},
    {"name": "fields", "downwardAPI": {"items": [{"path": "key", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    {"name": "all", "projected": {"sources": [{"configMap": {"name": "c"}}]}},
]
ATTACK = """
for v in config secret fields all; do
  ln -sfn %(victim)s /rowlock-$v/..data 2>/dev/null && echo linked $v
  echo other > /rowlock-$v/key 2>/dev/null && echo written $v
  mkdir /rowlock-$v/..1 2>/dev/null && echo made $v
done
until grep -q second /rowlock-config/key; do sleep 0.05; done
cat /rowlock-secret/key; echo done
"""


def able(node: Node) -> None:
    if why := node.kubelet.node.mount_problem:
        pytest.skip(f"containers cannot have mounts of their own here: {why}")


@pytest.mark.parametrize("network", ["rewrite", "auto"])
def test_programs_cannot_write_to_files_and_an_update_harms_nobody(tmp_path: Path, victim: Path, network: str) -> None:
    async def body(node: Node) -> None:
        able(node)
        await node.store.create(kinds.CONFIG_MAP, {**CONFIG, "data": {"key": "first"}})
        await node.store.create(kinds.SECRET, {**SECRET, "data": {"key": "c2VjcmV0Cg=="}})
        volume_mounts = [{"name": v["name"], "mountPath": f"/rowlock-{v['name']}"} for v in FILE_VOLUMES]
        script = ATTACK % {"victim": victim}
        attacker = pod("a", script, container={"volumeMounts": volume_mounts}, spec={"volumes": FILE_VOLUMES})
        await node.add(attacker)
        await node.phase("a", "Running")
        await node.store.patch(kinds.CONFIG_MAP, "default", "c", {"data": {"key": "second"}})
        await node.ended("a")
        lines = [line for line in (await node.log("a")).splitlines() if "Read-only file system" not in line]
        assert lines == ["secret", "done"] and unharmed(victim)

    on_node(tmp_path / "data", body, network=network)


def test_a_mount_point_that_a_program_made_a_link_leads_nowhere(tmp_path: Path, victim: Path) -> None:
    """The first run exchanges the place of the inner volume; the second start must not make it where the link leads."""

    async def body(node: Node) -> None:
        able(node)
        volume_mounts = [{"name": "outer", "mountPath": "/rowlock-v"}, {"name": "inner", "mountPath": "/rowlock-v/a/b"}]
        link = f"mv /rowlock-w/a /rowlock-w/old; ln -s {victim} /rowlock-w/a; test -L /rowlock-w/a"
        volumes = [{"name": "outer", "emptyDir": {}}, {"name": "inner", "emptyDir": {}}]
        inner = {"name": "main", "image": "rowlock.dev/host", "command": ["sh", "-c", "true"]}
        linker = {**inner, "name": "linker", "command": ["sh", "-c", link]}
        inits = [
            {**inner, "name": "first", "volumeMounts": volume_mounts},
            {**linker, "volumeMounts": [{"name": "outer", "mountPath": "/rowlock-w"}]},
        ]
        spec = {"initContainers": inits, "volumes": volumes}
        await node.add(pod("a", "true", container={"volumeMounts": volume_mounts}, spec=spec))
        await until(lambda: node.state("a", "state.terminated"), "the second start to be refused")
        assert node.state("a", "state.terminated.reason") == "StartError", node.pod("a")["status"]
        assert 'volume "inner" cannot be mounted' in node.state("a", "state.terminated.message")
        assert unharmed(victim)

    on_node(tmp_path / "data", body)


def test_the_directory_of_a_pod_goes_however_deep_it_is(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        script = f"i=0; while [ $i -lt {DEPTH} ]; do mkdir d && cd d; i=$((i+1)); done; echo deep; sleep 600"
        await node.add(pod("a", script))
        await node.phase("a", "Running")
        await node.said("a", "deep")
        await node.add(pod("b", "sleep 600"))
        await node.delete("a")
        await until(lambda: len(list((tmp_path / "pods").iterdir())) == 1, "the pod's directory to go")
        await node.phase("b", "Running")

    on_node(tmp_path, body)
