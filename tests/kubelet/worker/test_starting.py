"""A start request, made by the pipeline alone: a back end that is played says what came to it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rowlock.controllers.view.state import State
from rowlock.kubelet.images.images import Image, Images
from rowlock.kubelet.network.pod_network import NetworkChoice
from rowlock.kubelet.node.machine import Gpu, NodePlan
from rowlock.kubelet.node.node_context import NodeContext
from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.facts import ContainerConfigError, Problem
from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.kubelet.pod.volume import Volume
from rowlock.kubelet.runtime.engine_images import EngineImages
from rowlock.kubelet.shim.shim_request import ShimRequest
from rowlock.kubelet.volumes.checkpoints import Checkpoints
from rowlock.kubelet.volumes.volumes import Mount
from rowlock.kubelet.worker.environment import EnvironmentContext
from rowlock.kubelet.worker.pod_context import PodContext
from rowlock.kubelet.worker.security_context import EffectiveSecurityContext
from rowlock.kubelet.worker.starting import ContainerStart, ContainerStarter, Program
from rowlock.objects import Object

CARDS = (Gpu("GPU-a", "H100", 80_000), Gpu("GPU-b", "H100", 80_000))
NODE = NodePlan("n", Decimal(4), 1 << 30, CARDS)


class Played:
    """A back end that runs nothing."""

    def __init__(self, refusal: str = "") -> None:
        self.programs: list[Program] = []
        self._refusal = refusal

    def prepare_program(
        self, start: ContainerStart, image: Image, checkpoints: str
    ) -> tuple[EffectiveSecurityContext, dict[str, str]]:
        if self._refusal:
            raise ContainerConfigError(self._refusal)
        return EffectiveSecurityContext(group=7), {"A": "base", "B": "base", "C": "base"}

    def complete_request(self, request: ShimRequest, start: ContainerStart, program: Program) -> ShimRequest:
        self.programs.append(program)
        return request._replace(argv=list(program.command))


def starter(tmp_path: Path, backend: Played, other: Played) -> ContainerStarter:
    images = Images(tmp_path / "images")
    images.add(Image("mine:latest", env={"B": "image", "C": "image"}, command=("run",)))
    node = NodeContext(
        data_dir=tmp_path,
        nodes={"n": NODE},
        network=NetworkChoice("rewrite", ""),
        limits_mode="watchdog",
        mount_problem="",
        can_mount_memory=True,
        rootfs_problem="",
        server_env={},
        clock=lambda: 0.0,
    )
    return ContainerStarter(
        node, State(), EngineImages("process", images, {}, {}), Checkpoints(tmp_path), processes=backend, engine=other
    )


def start_of(tmp_path: Path, **container: Any) -> ContainerStart:
    pod: Object = {
        "metadata": {"name": "p", "namespace": "team", "uid": "u-1"},
        "spec": {"containers": [{"name": "main", "image": "mine", **container}], "terminationGracePeriodSeconds": 4},
    }
    spec, card = parse_pod_spec(pod), PodCard("team", "p", "u-1", "n", "10.77.1.1", 0.0, ("GPU-a", "GPU-b"))
    place = EnvironmentContext("n", "10.77.1.1", cpus=Decimal(4), data_directory="d")
    context = PodContext(
        spec, card, NODE, has_own_address=True, has_token=False, environment=place, rewrite_hostfile=None
    )
    return ContainerStart(context, spec.main_containers[0], tmp_path / "main", (Volume("v", "empty"),), 3, 2)


def test_a_back_end_gets_the_whole_program(tmp_path: Path) -> None:
    backend, other = Played(), Played()
    container = {
        "env": [{"name": "C", "value": "pod"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v/", "subPathExpr": "$(C)"}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "tty": True,
    }
    answer = starter(tmp_path, backend, other).start_request(start_of(tmp_path, **container))
    assert not isinstance(answer, Problem) and other.programs == []
    request, image = answer
    (program,) = backend.programs
    assert image.name == "mine:latest" and program.command == ["run"] and program.user.group == 7
    assert [program.env[k] for k in "ABC"] == ["base", "image", "pod"]
    assert program.env["ROWLOCK_RESTART_COUNT"] == "3"
    assert program.gpus.devices == ("GPU-a",) and program.env["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert program.mounts == [Mount("v", "/v", "pod")]
    assert program.checkpoints == str(tmp_path / "checkpoints" / "u-1")
    assert request.directory == str(tmp_path / "main") and request.hint == "u-1/main"
    assert (request.number, request.backoff, request.grace, request.console) == (3, 2, 4.0, {"tty": True})


@pytest.mark.parametrize(
    ("container", "refusal", "problem"),
    [
        ({"image": "not-here", "imagePullPolicy": "Never"}, "", 'ErrImageNeverPull: Container image "not-here" is not present with pull policy of Never'),
        ({"image": "host"}, "", "CreateContainerError: no command"),
        ({}, "not this user", "CreateContainerConfigError: not this user"),
        ({"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "k"}}}]}, "", 'CreateContainerConfigError: configmap "gone" not found'),
        ({"volumeMounts": [{"name": "w", "mountPath": "/w"}]}, "", 'CreateContainerConfigError: container main mounts "w"'),
    ],
)  # fmt: skip
def test_whatever_refuses_it_becomes_one_problem(
    tmp_path: Path, container: dict[str, Any], refusal: str, problem: str
) -> None:
    backend = Played(refusal)
    answer = starter(tmp_path, backend, Played()).start_request(start_of(tmp_path, **container))
    assert isinstance(answer, Problem) and backend.programs == []
    assert f"{answer.reason}: {answer.message}".startswith(problem)
