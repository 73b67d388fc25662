"""NFS exports: found in the mount table of the machine, and given to pods that name them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, until
from tests.kubelet.volumes.test_volumes import able, mounting

from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.volumes import nfs_exports
from rowlock.kubelet.volumes.nfs_exports import export_name, find_export

TABLE = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:50 / /home rw,relatime shared:2 - nfs4 nas:/export/home rw,vers=4.2,addr=10.0.0.9
41 22 0:51 / /mnt/with\040blank rw - nfs nas:/data rw,addr=10.0.0.9
42 22 0:52 /sets /sets ro - nfs4 NAS2.lab:/big rw,addr=10.0.0.8
43 22 0:53 / /v6 rw - nfs4 [fd00::9]:/x rw
44 22 0:54 / /tmp/other rw - tmpfs nas:/fake rw
45 22 0:55 / /data2 rw - nfs nas:/data rw,addr=10.0.0.9
a line that is none
"""


@pytest.mark.parametrize(
    ("server", "path", "directory"),
    [
        ("nas", "/export/home", "/home"),
        ("NAS", "/export/home/ana", "/home/ana"),
        ("nas", "/data/sets", "/data2/sets"),
        ("nas2.lab", "/big/sets/c4", "/sets/c4"),
        ("fd00::9", "/x", "/v6"),
        ("nas", "/export", ""),
        ("nas", "/export/home2", ""),
        ("nas", "/fake", ""),
        ("nas2.lab", "/big", ""),
        ("other", "/data", ""),
    ],
)
def test_an_export_is_found_where_the_machine_mounted_it(
    tmp_path: Path, server: str, path: str, directory: str
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    export = export_name(server, path)
    if directory:
        assert find_export(export, table) == Path(directory)
    else:
        with pytest.raises(ContainerConfigError, match="has not mounted the NFS export"):
            find_export(export, table)


def test_an_export_leads_to_nothing_else_of_the_machine(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    with pytest.raises(ContainerConfigError, match="leads out of itself"):
        find_export(export_name("nas", "/data/../etc"), table)


def test_a_machine_without_a_mount_table_has_no_exports(tmp_path: Path) -> None:
    with pytest.raises(ContainerConfigError, match="as root, `mount -t nfs nas:/x /mnt/NAME`"):
        find_export("nas:/x", tmp_path / "none")


@pytest.mark.parametrize("has_client", [True, False])
def test_who_has_to_mount_it_is_told_what_the_machine_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_client: bool
) -> None:
    """`mount -t nfs` fails where nobody has installed the client: so the sentence says that, too."""
    table, helper = tmp_path / "mountinfo", tmp_path / "mount.nfs"
    table.write_text("")
    if has_client:
        helper.touch()
    monkeypatch.setattr(nfs_exports, "MOUNT_TABLE", table)
    monkeypatch.setattr(nfs_exports, "MOUNT_HELPERS", (helper,))
    with pytest.raises(ContainerConfigError) as refusal:
        find_export("nas:/x")
    assert ("install the package nfs-common" in str(refusal.value)) == (not has_client)
    assert "`mount -t nfs nas:/x /mnt/NAME`; the pod starts then" in str(refusal.value)


def test_a_pod_reads_its_export_and_waits_until_it_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported, table = tmp_path / "exported", tmp_path / "mountinfo"
    (exported / "sets").mkdir(parents=True)
    (exported / "sets" / "one").write_text("from the server\n")
    table.write_text("")
    monkeypatch.setattr(nfs_exports, "MOUNT_TABLE", table)

    async def body(node: Node) -> None:
        able(node)
        volumes = [{"name": "n", "nfs": {"server": "nas", "path": "/data/sets", "readOnly": True}}]
        script = "cat /rowlock-n/one; touch /rowlock-n/two || echo kept"
        await node.add(mounting("a", script, volumes, [{"name": "n", "mountPath": "/rowlock-n"}]))
        await until(lambda: [r for _, r, _ in node.events("a") if r == "FailedMount"])
        table.write_text(f"40 22 0:50 / {exported} rw - nfs4 nas:/data rw\n")
        await node.ended("a")
        said = await node.log("a")
        assert said.startswith("from the server\n") and said.endswith("kept\n"), said

    on_node(tmp_path, body)
