"""Volumes in pods that are processes: what programs see, what waits, what is said."""

from __future__ import annotations

import os
import signal
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import WAY, Node, on_node, pod, until

from rowlock import kinds
from rowlock.api import DeleteOptions
from rowlock.kubelet.volumes import nfs_exports
from rowlock.objects import Key, Object, dig

MODES = pytest.mark.parametrize("network", ["rewrite", "auto"])


def mounting(name: str, script: str, volumes: list[Any], mounts: list[Any], **more: Any) -> Object:
    container = {"volumeMounts": mounts, **more.pop("container", {})}
    return pod(name, script, container=container, spec={"volumes": volumes, **more.pop("spec", {})}, **more)


def config(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def secret(name: str, **data: str) -> Object:
    encoded = {k: b64encode(v.encode()).decode() for k, v in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "data": encoded}


def able(node: Node) -> None:
    if why := node.kubelet.node.mount_problem:
        pytest.skip(f"containers cannot have mounts of their own here: {why}")


@MODES
def test_a_directory_that_the_machine_does_not_have_is_there_for_the_container_alone(
    tmp_path: Path, network: str
) -> None:
    async def body(node: Node) -> None:
        able(node)
        work: list[Any] = [
            {"name": "work", "mountPath": "/rowlock-work/deep"},
            {"name": "work", "mountPath": "/etc/rowlock-x"},
        ]
        script = "echo told > /rowlock-work/deep/file; cat /etc/rowlock-x/file; ls / | grep -c '^usr$'; test -d /proc/self && echo proc"
        await node.add(mounting("a", script, [{"name": "work", "emptyDir": {}}], work))
        await node.ended("a")
        assert await node.log("a") == "told\n1\nproc\n", node.pod("a")["status"]
        assert not Path("/rowlock-work").exists() and not Path("/etc/rowlock-x").exists()

    on_node(tmp_path, body, network=network)


@MODES
def test_init_containers_hand_over_through_an_empty_dir(tmp_path: Path, network: str) -> None:
    async def body(node: Node) -> None:
        able(node)
        mounts = [{"name": "work", "mountPath": "/rowlock-work"}]
        first = {"name": "first", "image": WAY.image, "volumeMounts": mounts}
        first["command"] = ["sh", "-c", "echo prepared > /rowlock-work/file"]
        made = mounting("a", "cat /rowlock-work/file", [{"name": "work", "emptyDir": {}}], mounts)
        made["spec"]["initContainers"] = [first]
        await node.add(made)
        await node.ended("a")
        assert await node.log("a") == "prepared\n"
        directory = tmp_path / "pods" / node.pod("a")["metadata"]["uid"] / ".volumes" / "work"
        assert (directory / "file").read_text() == "prepared\n"
        await node.delete("a")
        await until(lambda: not directory.exists())

    on_node(tmp_path, body, network=network)


def test_config_maps_secrets_fields_and_their_sum_are_files(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        able(node)
        await node.store.create(kinds.CONFIG_MAP, config("settings", lr="0.1", conf="k=v\n"))
        await node.store.create(kinds.SECRET, secret("creds", password="s3cret"))
        items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
        items += [{"path": "in/cpus", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}}]
        picked = {"name": "settings", "items": [{"key": "lr", "path": "rates/one", "mode": 0o400}]}
        volumes: list[Any] = [
            {"name": "c", "configMap": {"name": "settings"}},
            {"name": "s", "secret": {"secretName": "creds", "defaultMode": 0o440}},
            {"name": "d", "downwardAPI": {"items": items}},
            {"name": "p", "projected": {"sources": [{"configMap": picked}, {"secret": {"name": "creds"}}]}},
        ]
        mounts: list[Any] = [{"name": v["name"], "mountPath": f"/rowlock-v/{v['name']}"} for v in volumes]
        mounts += [{"name": "c", "mountPath": "/rowlock-v/just.conf", "subPath": "conf", "readOnly": True}]
        script = (
            "cd /rowlock-v; cat c/lr c/conf s/password d/labels; echo; cat d/in/cpus p/rates/one p/password just.conf;"
            "stat -Lc %a s/password p/rates/one; ls c; touch just.conf 2>&1 || echo kept"
        )
        made = mounting("a", script, volumes, mounts, labels={"role": "trainer", "b": 'q"'})
        made["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
        await node.add(made)
        await node.ended("a")
        said = await node.log("a")
        assert said.splitlines()[:5] == ["0.1k=v", 's3cretb="q\\""', 'role="trainer"', "20.1s3cretk=v", "440"], said
        assert said.splitlines()[5:8] == ["400", "conf", "lr"] and said.endswith("kept\n")

    on_node(tmp_path, body)


@pytest.mark.parametrize(
    ("volume", "sentence"),
    [
        ({"configMap": {"name": "not-there"}}, 'configmap "not-there" not found'),
        ({"secret": {"secretName": "not-there"}}, 'secret "not-there" not found'),
        ({"persistentVolumeClaim": {"claimName": "not-there"}}, 'persistentvolumeclaim "not-there" not found'),
        ({"configMap": {"name": "here", "items": [{"key": "no", "path": "x"}]}}, "configmap references non-existent config key: no"),
        ({"hostPath": {"path": "/etc/passwd", "type": "Directory"}}, "hostPath type check failed: /etc/passwd is not a directory"),
        ({"hostPath": {"path": "/proc/none/x"}}, "/proc/none cannot be used: No such file or directory"),
        ({"nfs": {"server": "nas", "path": "/x"}}, "this node has not mounted the NFS export nas:/x, and pods do not mount it themselves: as root, `mount -t nfs nas:/x /mnt/NAME`; the pod starts then" + nfs_exports.missing_client()),
        ({"iscsi": {"targetPortal": "s", "iqn": "iqn.x", "lun": 0}}, "rowlock does not mount iscsi; it mounts emptyDir, hostPath, nfs, configMap, secret, downwardAPI, projected, persistentVolumeClaim"),
        ({"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}, "this cluster makes no service account tokens: use a Secret with a token of your own"),
        ({"emptyDir": {"medium": "HugePages"}}, 'rowlock has no medium "HugePages"; it knows "" (disk) and Memory'),
    ],
)  # fmt: skip
def test_what_cannot_be_mounted_waits_with_a_sentence(tmp_path: Path, volume: Object, sentence: str) -> None:
    async def body(node: Node) -> None:
        await node.store.create(kinds.CONFIG_MAP, config("here", yes="1"))
        await node.add(mounting("a", "true", [{"name": "v", **volume}], [{"name": "v", "mountPath": "/rowlock-v"}]))
        whole = f'MountVolume.SetUp failed for volume "v" : {sentence}'
        await until(lambda: ("Warning", "FailedMount", whole) in node.events("a"))
        await until(lambda: node.state("a", "state.waiting.message") == whole)
        assert node.state("a", "state.waiting.reason") == "ContainerCreating"
        assert node.pod("a")["status"]["phase"] == "Pending"
        assert not [m for _, _, m in node.events("a") if m.startswith("Error: ")]
        await node.delete("a", DeleteOptions(grace=0))

    on_node(tmp_path, body)


def test_a_pod_that_waits_for_its_config_starts_when_it_comes(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        able(node)
        volumes = [{"name": "c", "configMap": {"name": "late"}}]
        await node.add(mounting("a", "cat /rowlock-c/x", volumes, [{"name": "c", "mountPath": "/rowlock-c"}]))
        await until(lambda: [r for _, r, _ in node.events("a") if r == "FailedMount"])
        await node.store.create(kinds.CONFIG_MAP, config("late", x="come"))
        await node.ended("a")
        assert await node.log("a") == "come"

    on_node(tmp_path, body, restart_backoff=600.0)


def test_optional_things_may_be_missing(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        able(node)
        volumes = [{"name": "c", "configMap": {"name": "none", "optional": True}}]
        await node.add(mounting("a", "ls /rowlock-c; echo here", volumes, [{"name": "c", "mountPath": "/rowlock-c"}]))
        await node.ended("a")
        assert await node.log("a") == "here\n"

    on_node(tmp_path, body)


def test_files_follow_their_config_map_and_labels_while_the_pod_runs(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        able(node)
        await node.store.create(kinds.CONFIG_MAP, config("c", x="one"))
        fields = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
        volumes = [{"name": "c", "configMap": {"name": "c"}}, {"name": "d", "downwardAPI": {"items": fields}}]
        mounts = [{"name": n, "mountPath": f"/rowlock-{n}"} for n in "cd"]
        script = "until grep -q two /rowlock-c/x; do sleep 0.02; done; until grep -q new /rowlock-d/labels; do sleep 0.02; done"
        await node.add(mounting("a", script, volumes, mounts))
        await node.phase("a", "Running")
        await node.store.patch(kinds.CONFIG_MAP, "default", "c", {"data": {"x": "two"}})
        await node.store.patch(kinds.POD, "default", "a", {"metadata": {"labels": {"is": "new"}}})
        await node.ended("a")
        assert node.pod("a")["status"]["phase"] == "Succeeded"

    on_node(tmp_path, body)


@MODES
def test_memory_is_shared_by_containers_survives_restarts_and_has_a_limit(tmp_path: Path, network: str) -> None:
    async def body(node: Node) -> None:
        able(node)
        if not node.kubelet.node.can_mount_memory:
            pytest.skip("memory volumes need root or a user namespace")
        volumes = [{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
        mounts = [{"name": "m", "mountPath": "/dev/shm"}]
        script = "test -e /dev/shm/once && { cat /dev/shm/once /dev/shm/other; df -k /dev/shm | tail -1; head -c 2000000 /dev/zero 2>&1 > /dev/shm/big; exit 0; }; until test -s /dev/shm/other; do sleep 0.02; done; echo first > /dev/shm/once; exit 3"
        made = mounting("a", script, volumes, mounts, policy="OnFailure")
        other = {"name": "other", "image": WAY.image, "volumeMounts": mounts}
        made["spec"]["containers"].append({**other, "command": ["sh", "-c", "echo beside > /dev/shm/other"]})
        before = set(os.listdir("/dev/shm"))
        await node.add(made)
        await node.ended("a")
        said = await node.log("a", container="main")
        assert said.startswith("first\nbeside\ntmpfs") and " 1024 " in said and "No space left" in said
        assert "once" not in set(os.listdir("/dev/shm")) - before

    on_node(tmp_path, body, network=network)


@pytest.mark.parametrize(
    ("size_limit", "limits", "size"),
    [
        (None, ["8Mi", "24Mi"], "32768"),
        ("1Mi", ["8Mi"], "1024"),
        ("64Mi", ["8Mi"], "8192"),
        ("1Mi", ["8Mi", None], "1024"),
    ],
)
def test_a_memory_volume_is_no_larger_than_the_memory_of_its_pod(
    tmp_path: Path, size_limit: str | None, limits: list[str | None], size: str
) -> None:
    async def body(node: Node) -> None:
        able(node)
        if not node.kubelet.node.can_mount_memory:
            pytest.skip("memory volumes need root or a user namespace")
        source = {"medium": "Memory"} | ({"sizeLimit": size_limit} if size_limit else {})
        mounts = [{"name": "m", "mountPath": "/memory"}]
        made = mounting("a", "df -k /memory | tail -1", [{"name": "m", "emptyDir": source}], mounts)
        first = made["spec"]["containers"][0]
        made["spec"]["containers"] += [{**first, "name": f"other{n}"} for n in range(1, len(limits))]
        for container, limit in zip(made["spec"]["containers"], limits, strict=True):
            container["resources"] = {"limits": {"memory": limit}} if limit else {}
        await node.add(made)
        await node.ended("a")
        assert (await node.log("a", container="main")).split()[1] == size

    on_node(tmp_path, body)


@pytest.mark.parametrize("containers", [1, 2])
def test_a_volume_inside_of_dev_shm_leaves_that_as_it_is(tmp_path: Path, containers: int) -> None:
    async def body(node: Node) -> None:
        able(node)
        if node.kubelet.node.process_problem:
            pytest.skip("pods have no /dev/shm of their own here")
        volumes = [{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
        script = "df -k /dev/shm /dev/shm/deep | tail -2; echo x > /dev/shm/deep/word"
        made = mounting("a", script, volumes, [{"name": "m", "mountPath": "/dev/shm/deep"}])
        made["spec"]["containers"] += [{**made["spec"]["containers"][0], "name": f"n{n}"} for n in range(1, containers)]
        await node.add(made)
        await node.ended("a")
        assert node.pod("a")["status"]["phase"] == "Succeeded"
        own, deep = (await node.log("a", container="main")).splitlines()
        assert (own.split()[1], deep.split()[1]) == ("65536", "1024")

    on_node(tmp_path, body)


def test_a_claim_that_holds_more_than_it_asked_for_is_told(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        able(node)
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default"},
        }
        await node.store.create(kinds.PERSISTENT_VOLUME_CLAIM, {**claim, "spec": spec})
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        mounts = [{"name": "v", "mountPath": "/rowlock-data"}]
        await node.add(mounting("a", "head -c 2M /dev/urandom > /rowlock-data/file", volumes, mounts))
        await node.ended("a")
        await until(lambda: node.events("data"), "the warning")
        ((kind, reason, said),) = node.events("data")
        assert (kind, reason) == ("Warning", "ClaimOverCapacity")
        size, _, rest = said.removeprefix("the claim holds ").partition("Mi ")
        assert 1 <= float(size) <= 2.1, "measured while it is written, or later; the figure is rounded"
        assert rest == "but requested 1Mi: rowlock does not enforce this; elsewhere the volume would be full"

    on_node(tmp_path, body, sweep=0.05)


def test_a_claim_is_a_directory_that_outlives_pods_and_goes_with_the_claim(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        able(node)
        meta = {"name": "data", "namespace": "default"}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
        await node.store.create(kinds.PERSISTENT_VOLUME_CLAIM, claim)
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
        mounts = [{"name": "v", "mountPath": "/rowlock-data", "subPath": "runs/1"}]
        await node.add(mounting("a", "echo kept > /rowlock-data/file", volumes, mounts))
        await node.ended("a")
        await node.delete("a")
        await node.add(
            mounting(
                "b",
                "cat /rowlock-data/file; touch /rowlock-data/x 2>&1 || echo closed",
                volumes,
                [{**mounts[0], "readOnly": True}],
            )
        )
        await node.ended("b")
        assert (await node.log("b")).startswith("kept\n") and (await node.log("b")).endswith("closed\n")
        bound = node.store.view.get(kinds.PERSISTENT_VOLUME_CLAIM, "default", "data") or {}
        assert dig(bound, "status.phase") == "Bound" and dig(bound, "status.capacity.storage") == "1Gi"
        assert dig(bound, "spec.volumeName") == f"pvc-{bound['metadata']['uid']}"
        where = Path(bound["metadata"]["annotations"]["rowlock.dev/directory"])
        assert (where / "runs/1/file").read_text() == "kept\n"
        await node.store.delete(kinds.PERSISTENT_VOLUME_CLAIM, "default", "data")
        await node.delete("b")
        await until(lambda: not where.exists(), "the claim's directory to go")

    on_node(tmp_path, body, sweep=0.05)


def test_a_path_that_leads_out_of_its_volume_is_refused(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        able(node)
        outside = tmp_path / "outside"
        outside.mkdir()
        inside = tmp_path / "inside"
        inside.mkdir()
        (inside / "link").symlink_to(outside)
        volumes = [{"name": "h", "hostPath": {"path": str(inside)}}]
        await node.add(mounting("a", "true", volumes, [{"name": "h", "mountPath": "/rowlock-h", "subPath": "link"}]))
        await until(lambda: node.state("a", "state.waiting.reason") == "CreateContainerConfigError")
        assert "link leads out of it" in node.state("a", "state.waiting.message")
        await node.delete("a", DeleteOptions(grace=0))

    on_node(tmp_path, body)


@MODES
def test_who_comes_in_later_sees_the_same_files(tmp_path: Path, network: str) -> None:
    async def body(node: Node) -> None:
        able(node)
        mounts = [{"name": "w", "mountPath": "/rowlock-w"}]
        await node.add(mounting("a", "echo inside > /rowlock-w/f; sleep 60", [{"name": "w", "emptyDir": {}}], mounts))
        await until(lambda: list(tmp_path.glob("pods/*/.volumes/w/f")))
        await node.phase("a", "Running")
        session = await node.kubelet.streaming.exec(Key("default", "a"), "main", ["cat", "/rowlock-w/f"])
        try:
            assert await session.read(1) == b"inside\n"
            assert await session.wait_exit() == (0, "")
        finally:
            await session.close()
        await node.delete("a", DeleteOptions(grace=0))

    on_node(tmp_path, body, network=network)


@MODES
def test_memory_outlives_the_pod_host(tmp_path: Path, network: str) -> None:
    async def body(node: Node) -> None:
        able(node)
        if not node.kubelet.node.can_mount_memory:
            pytest.skip("memory volumes need root or a user namespace")
        volumes = [{"name": "m", "emptyDir": {"medium": "Memory"}}]
        mounts = [{"name": "m", "mountPath": "/rowlock-m"}]
        script = "test -e /rowlock-m/x && exit 0; echo > /rowlock-m/x; until test -e go; do sleep 0.02; done; exit 3"
        made = mounting("a", script, volumes, mounts, policy="OnFailure")
        keeper = {"name": "keeper", "image": WAY.image, "volumeMounts": mounts}
        made["spec"]["containers"].append(
            {**keeper, "command": ["sh", "-c", "until test -e over; do sleep 0.02; done"]}
        )
        await node.add(made)
        await node.phase("a", "Running")
        old = node.kubelet.host.hello["pid"]
        os.kill(old, signal.SIGKILL)
        await until(lambda: node.kubelet.host.hello.get("pid", old) != old and node.kubelet.host.is_connected)
        work = tmp_path / "pods" / node.pod("a")["metadata"]["uid"] / ".work"
        (work / "go").touch()
        await until(lambda: node.state("a", "restartCount") == 1 and node.state("a", "state.terminated"))
        assert node.state("a", "state.terminated.exitCode") == 0
        (work / "over").touch()
        await node.phase("a", "Succeeded")

    on_node(tmp_path, body, network=network)


@pytest.mark.parametrize(
    ("source", "target", "sentence"),
    [
        ("/etc", "/proc/rowlock-x", "/proc is a directory of the kernel"),
        ("/etc", "/etc/passwd", "the mount point is a file on this machine, but the volume is a directory"),
        ("/etc/passwd", "/etc", "the mount point is a directory on this machine, but the volume is a file"),
    ],
)
def test_a_mount_point_that_cannot_be_is_one_sentence(tmp_path: Path, source: str, target: str, sentence: str) -> None:
    async def body(node: Node) -> None:
        able(node)
        volumes = [{"name": "h", "hostPath": {"path": source}}]
        await node.add(mounting("a", "true", volumes, [{"name": "h", "mountPath": target}]))
        await node.phase("a", "Failed")
        whole = f'volume "h" cannot be mounted at {target}: {sentence}'
        assert node.state("a", "state.terminated.message") == whole
        await until(lambda: ("Warning", "Failed", f"Error: {whole}") in node.events("a"))

    on_node(tmp_path, body)
