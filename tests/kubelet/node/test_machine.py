"""What the machine has, and the nodes that are made of it."""

from decimal import Decimal

import pytest

from rowlock.kubelet.node import machine
from rowlock.kubelet.node.machine import Gpu, Inventory, NodeOptions, node_object, plan_nodes

FOUND = Inventory(8, 64 << 30, tuple(Gpu(f"GPU-{i}", "NVIDIA-H200", 143771) for i in range(4)))


def test_one_node_is_the_machine() -> None:
    (node,) = plan_nodes(FOUND, NodeOptions(name="Lab_1"))
    assert (node.name, node.cpus, node.memory, len(node.gpus)) == ("Lab-1", Decimal(8), 64 << 30, 4)


def test_several_nodes_share_it() -> None:
    nodes = plan_nodes(FOUND, NodeOptions(nodes=2, name="n"))
    assert [n.name for n in nodes] == ["n-0", "n-1"] and [n.cpus for n in nodes] == [4, 4]
    assert [[g.uuid for g in n.gpus] for n in nodes] == [["GPU-0", "GPU-1"], ["GPU-2", "GPU-3"]]


def test_wishes() -> None:
    nodes = plan_nodes(
        FOUND, NodeOptions(nodes=2, simulated_gpus=8, cpus_per_node=16, memory_per_node=1 << 30, name="n")
    )
    assert all(len(n.gpus) == 8 and n.simulated and n.cpus == 16 and n.memory == 1 << 30 for n in nodes)
    assert all(n.has_hidden_gpus for n in nodes)
    none = Inventory(8, 64 << 30, ())
    assert not any(n.has_hidden_gpus for n in plan_nodes(none, NodeOptions(simulated_gpus=8)))
    assert not any(n.has_hidden_gpus for n in plan_nodes(FOUND, NodeOptions()))
    with pytest.raises(ValueError, match=r"2 nodes of 3 GPUs need 6, this machine has 4; .*--simulated-gpus 3"):
        plan_nodes(FOUND, NodeOptions(nodes=2, gpus_per_node=3))


def test_a_node_object() -> None:
    (plain,) = plan_nodes(FOUND, NodeOptions(simulated_gpus=2, name="n"))
    node = node_object(plain, ("rewrite", "why"), 0.0)
    assert node["status"]["capacity"] == {"cpu": "8", "memory": "67108864Ki", "pods": "1000", "nvidia.com/gpu": "2"}
    notes = node["metadata"]["annotations"]
    assert notes["rowlock.dev/simulated-gpus"] == "true" and notes["rowlock.dev/network"] == "rewrite"
    assert node["metadata"]["labels"]["nvidia.com/gpu.count"] == "2"
    assert [(c["type"], c["status"]) for c in node["status"]["conditions"]] == [
        ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False"), ("Ready", "True"),
    ]  # fmt: skip


def test_this_machine() -> None:
    found = machine.inventory()
    assert found.cpus >= 1 and found.memory > 1 << 28
