"""Dockerfiles as people write them: `rowlock build` and a pod do what Docker did (`tests/data/dockerfiles/recorded.json`)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.dockerfiles import cases
from tests.dockerfiles.cases import Case
from tests.kubelet.conftest import Node, on_node

from rowlock.kubelet.images import build, layered_build
from rowlock.kubelet.images.build_context import BuildFailed, BuildRequest
from rowlock.kubelet.images.dockerfile import BadDockerfile
from rowlock.kubelet.images.images import Image, Images
from rowlock.objects import dig

CASES = cases.load()
RECORDED: dict[str, Any] = json.loads(cases.RECORD.read_text())
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may write where these steps do")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    """One data directory: the base of all images is made once."""
    data = tmp_path_factory.mktemp("data")
    if problem := build.rootfs_problem(data / "probe"):
        pytest.skip(f"containers cannot have root file systems of their own here: {problem}")
    return Images(data / "images")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_as_docker(case: Case, images: Images, tmp_path: Path) -> None:
    recorded = RECORDED[case.name]
    case.write(tmp_path)
    said: list[str] = []
    request = BuildRequest(f"case/{case.name}", tmp_path, tmp_path / "Dockerfile", dict(case.args))
    try:
        image = build.build(images, request, said.append, layered=True)
    except (BuildFailed, BadDockerfile) as error:
        assert not recorded["builds"], f"{error}\n" + "\n".join(said)
        return
    assert recorded["builds"], "Docker refuses it"
    assert _settings(image, images) == recorded["settings"]
    assert _runs(case, images) == recorded["runs"]


def _settings(image: Image, images: Images) -> dict[str, Any]:
    base_path = layered_build.base_path(images.directory / ".python")
    return cases.settings(
        image.env, base_path, image.entrypoint, image.command, image.workdir, image.stop_signal
    )  # fmt: skip


def _runs(case: Case, images: Images) -> dict[str, Any]:
    """Each as a pod."""
    seen: dict[str, Any] = {}

    async def body(node: Node) -> None:
        for name, run in case.runs.items():
            words = {"command": [*run.entrypoint, *run.words]} if run.entrypoint else {"args": list(run.words)}
            container = {"name": "main", "image": f"case/{case.name}", **{k: v for k, v in words.items() if v}}
            meta = {"name": name, "namespace": "default"}
            spec = {"restartPolicy": "Never", "containers": [container]}
            await node.add({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
            await node.ended(name)
            exit_code = dig((dig(node.pod(name), "status.containerStatuses") or [{}])[0], "state.terminated.exitCode")
            seen[name] = {"exit": exit_code, "output": run.lines(await node.log(name))}

    if case.runs:
        on_node(images.directory.parent, body)
    return seen
