"""Pods that have more on disk than they may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock.kubelet.node.eviction import eviction_message, has_storage_limit
from rowlock.kubelet.pod.spec import PodSpec, parse_pod_spec

MIB = 1 << 20


def asking(*limits: str, **volumes: Any) -> PodSpec:
    made = pod("a", "true")
    made["spec"]["containers"] = [
        {"name": f"c{i}", "resources": {"limits": {"ephemeral-storage": limit} if limit else {}}}
        for i, limit in enumerate(limits or ("",))
    ]
    made["spec"]["volumes"] = [{"name": name, "emptyDir": source} for name, source in volumes.items()]
    return parse_pod_spec(made)


@pytest.mark.parametrize(
    ("given", "sizes", "sentence"),
    [
        (asking(w={}), {".volumes/w": 99 * MIB}, ""),
        (asking(w={"sizeLimit": "1Mi"}), {".volumes/w": MIB}, ""),
        (asking(w={"sizeLimit": "1Mi"}), {".volumes/w": MIB + 1}, 'Usage of EmptyDir volume "w" exceeds the limit "1Mi". '),
        (asking(w={"sizeLimit": "1Mi", "medium": "Memory"}), {".volumes/w": 9 * MIB}, ""),
        (asking("1Mi"), {"c0": 2 * MIB}, 'Container c0 exceeded its local ephemeral storage limit "1Mi". '),
        (asking("1Mi", w={}), {"c0": MIB // 2, ".volumes/w": MIB}, "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. "),
        (asking("1Mi", ""), {".work": 9 * MIB}, ""),
        (asking("1Mi", "1Mi"), {".work": 3 * MIB}, "Pod ephemeral local storage usage exceeds the total limit of containers 2097152. "),
    ],
)  # fmt: skip
def test_who_must_go(given: PodSpec, sizes: dict[str, int], sentence: str) -> None:
    assert eviction_message(given, lambda path: sizes.get(path, 0)) == sentence


def test_who_has_no_limits_is_not_measured() -> None:
    assert (
        not has_storage_limit(asking(w={}))
        and has_storage_limit(asking("1Gi"))
        and has_storage_limit(asking(w={"sizeLimit": "1Gi"}))
    )


def test_a_pod_that_fills_its_volume_is_evicted(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        if node.kubelet.node.mount_problem:
            pytest.skip("containers cannot have mounts of their own here")
        mounts = [{"name": "w", "mountPath": "/rowlock-w"}]
        spec = {"volumes": [{"name": "w", "emptyDir": {"sizeLimit": "1Mi"}}]}
        script = "head -c 3000000 /dev/zero > /rowlock-w/big; sleep 300"
        await node.add(pod("a", script, "Always", container={"volumeMounts": mounts}, spec=spec))
        await node.phase("a", "Failed")
        status, sentence = node.pod("a")["status"], 'Usage of EmptyDir volume "w" exceeds the limit "1Mi". '
        assert (status["reason"], status["message"]) == ("Evicted", sentence)
        await until(lambda: ("Warning", "Evicted", sentence) in node.events("a"))
        await until(lambda: (node.state("a", "state.terminated") or {}).get("exitCode") in (137, 143))
        assert node.state("a", "restartCount") == 0

    on_node(tmp_path, body, measure=0.05)
