"""Shares of a GPU: what a program is told, what is announced, and who is told to hold too much. Without a GPU."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal

import pytest

from rowlock.kubelet.node import gpu_watch, gpus
from rowlock.kubelet.node.gpus import (
    CUDA_CONTEXT_MIB,
    ContainerGpus,
    GpuFraction,
    OveruseTracker,
    container_gpus,
    fraction_environment,
    gpu_environment,
    pod_fraction,
    remarks,
)
from rowlock.kubelet.node.machine import Gpu, NodePlan
from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.facts import POD_UID_VARIABLE
from rowlock.kubelet.pod.spec import PodSpec, parse_pod_spec
from rowlock.objects import Object

CARDS = (Gpu("GPU-a", "H100", 80_000), Gpu("GPU-b", "A10", 24_000))


def plan(*, simulated: bool = False) -> NodePlan:
    return NodePlan(name="n", cpus=Decimal(8), memory=1 << 34, gpus=CARDS, simulated=simulated)


def pod(**notes: str) -> PodSpec:
    annotations = {k.replace("_", "-"): v for k, v in notes.items()}
    made: Object = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": annotations},
        "spec": {"containers": []},
    }
    return parse_pod_spec(made)


@pytest.mark.parametrize(
    ("notes", "device", "wanted"),
    [
        ({}, "GPU-a", None),
        ({"gpu_fraction": "0.1"}, "GPU-a", GpuFraction(10, 8_000)),
        ({"gpu_fraction": "0.1"}, "GPU-b", GpuFraction(10, 2_400)),
        ({"gpu_memory": "6000"}, "GPU-b", GpuFraction(25, 6_000)),
        ({"gpu_memory": "20001"}, "GPU-a", GpuFraction(25.0012, 20_001)),
        ({"gpu_fraction": "1"}, "GPU-a", None),
        ({"gpu_fraction": "NaN"}, "GPU-a", None),
        ({"gpu_fraction": "inf"}, "GPU-a", None),
        ({"gpu_fraction": "half"}, "GPU-a", None),
        ({"gpu_memory": "90000"}, "GPU-a", None),
    ],
)
def test_the_share_of_the_card_that_it_got(notes: dict[str, str], device: str, wanted: GpuFraction | None) -> None:
    assert pod_fraction(pod(**notes), plan(), (device,)) == wanted


def test_what_a_program_is_told() -> None:
    told = fraction_environment(GpuFraction(10, 8_000), {})
    assert told["GPU_PORTION"] == told["RUNAI_NUM_OF_GPUS"] == "0.1" and told["ROWLOCK_GPU_MEMORY_MIB"] == "8000"
    assert told["PYTORCH_ALLOC_CONF"] == told["PYTORCH_CUDA_ALLOC_CONF"] == "per_process_memory_fraction:0.1"
    assert told["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert told["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.1"


@pytest.mark.parametrize("name", gpus.JAX_VARIABLES)
def test_jax_is_told_once(name: str) -> None:
    """A JAX that finds both names ends with an error."""
    told = fraction_environment(GpuFraction(10, 8_000), {name: "0.05"})
    assert not [variable for variable in gpus.JAX_VARIABLES if variable in told]


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
         "expandable_segments:True,per_process_memory_fraction:0.5"),
        ({"PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.2"}, "per_process_memory_fraction:0.2"),
    ],
)  # fmt: skip
def test_what_the_user_says_about_the_allocator_stays(given: dict[str, str], limit: str) -> None:
    told = fraction_environment(GpuFraction(50, 40_000), {**given, "TF_FORCE_GPU_ALLOW_GROWTH": "false"})
    assert told["PYTORCH_ALLOC_CONF"] == told["PYTORCH_CUDA_ALLOC_CONF"] == limit
    assert "TF_FORCE_GPU_ALLOW_GROWTH" not in told


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (NodePlan("n", Decimal(8), 1 << 34), {}),
        (plan(simulated=True), {"ROWLOCK_SIMULATED_GPU": ""}),
        (plan(), {"CUDA_VISIBLE_DEVICES": ""}),
        (
            replace(plan(simulated=True), has_hidden_gpus=True),
            {"CUDA_VISIBLE_DEVICES": "", "ROWLOCK_SIMULATED_GPU": ""},
        ),
    ],
    ids=["no GPUs", "simulated ones", "real ones", "simulated ones beside real ones"],
)
def test_real_gpus_are_hidden_from_a_container_without_one_and_where_there_are_none_nothing_is_set(
    node: NodePlan, wanted: dict[str, str]
) -> None:
    """Paddle's launcher takes an empty value for a GPU, so a CPU job on a machine without a driver must see none."""
    made: Object = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"containers": [{"name": "main"}]}}
    spec, card = parse_pod_spec(made), PodCard("n", "p", "u", "node", "10.77.1.1", 0.0)
    told = gpu_environment(container_gpus(spec, spec.main_containers[0], card, node, has_own_address=True), {})
    assert {k: v for k, v in told.items() if k in ("CUDA_VISIBLE_DEVICES", "ROWLOCK_SIMULATED_GPU")} == wanted


def test_a_container_without_a_share_hears_nothing_of_it() -> None:
    plain = gpu_environment(ContainerGpus(devices=()), {})
    shared = gpu_environment(ContainerGpus(devices=("GPU-a",), fraction=GpuFraction(10, 8_000)), {})
    assert not [k for k in plain if "PORTION" in k or "ALLOC" in k]
    assert shared["GPU_PORTION"] == "0.1" and shared["CUDA_VISIBLE_DEVICES"] == "GPU-a"


def test_torch_here_reads_the_limit_from_the_environment() -> None:
    """Without a GPU only this can be seen: the library knows the word, and refuses what is no fraction."""
    torch = pytest.importorskip("torch", reason="torch is not installed: `make test` installs it")
    libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
    found = [n for n in os.listdir(libraries) if n.startswith("libc10_cuda")]
    if not found:
        pytest.skip("this torch was built without CUDA")
    with open(os.path.join(libraries, found[0]), "rb") as file:
        assert gpus.FRACTION_OPTION.encode() in file.read()


def test_how_far_the_share_is_kept_is_said_once_and_only_of_real_cards() -> None:
    (said,) = remarks(pod(gpu_fraction="0.1"), plan())
    assert said.startswith("its 10 % of a GPU (8000 MiB) is accounted for, not isolated")
    assert remarks(pod(gpu_fraction="0.1"), plan(simulated=True)) == []
    assert remarks(pod(), plan()) == [] and remarks(pod(gpu_fraction="0.1"), None) == []


def test_three_looks_in_a_row_then_one_warning_until_it_was_within_its_share() -> None:
    overuse, key = OveruseTracker(), ("u", "GPU-a")
    most = {key: 8_000}
    over, within = {key: 9_001}, {key: 8_900}
    assert over[key] > 8_000 * 1.05 + CUDA_CONTEXT_MIB > within[key]
    looks = [over, over, within, over, over, over, over, within, over, over, over]
    told = [overuse.find_overusers(used, most) for used in looks]
    assert [bool(t) for t in told] == [False] * 5 + [True] + [False] * 4 + [True]
    assert told[5] == [("u", "GPU-a", 9_001, 8_000)]
    assert overuse.find_overusers({}, {}) == [] and overuse.over_counts == {}


def test_a_process_belongs_to_the_pod_whose_mark_it_carries() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env={POD_UID_VARIABLE: "uid-7"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout and process.stdout.readline() == b"\n"
        cards = {"GPU-a": [(process.pid, 100), (process.pid, 50), (os.getpid(), 7), (2**22 + 1, 9)]}
        assert gpu_watch.memory_by_pod(cards) == {("uid-7", "GPU-a"): 150}
        process.stdin.close()


def test_the_watch_tells_who_holds_too_much() -> None:
    told: list[tuple[str, str]] = []

    async def look(uid: str, measure: gpu_watch.Measure) -> None:
        done = asyncio.Event()

        def tell(uid: str, sentence: str) -> None:
            told.append((uid, sentence))
            done.set()

        task = asyncio.create_task(gpu_watch.warn_overusers(lambda: {(uid, "GPU-a"): 8_000}, tell, measure, 0.001))
        await asyncio.wait_for(done.wait(), 200)
        task.cancel()

    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env={POD_UID_VARIABLE: "greedy"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout and process.stdout.readline() == b"\n"
        asyncio.run(look("greedy", lambda: {"GPU-a": [(process.pid, 20_000)]}))
        process.stdin.close()
    sentence = "it uses 20000 MiB of GPU-a, but its share is 8000 MiB: other pods on this GPU may run out of memory"
    assert told == [("greedy", sentence)]
