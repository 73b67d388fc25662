"""What a Dockerfile says holds in pods, whether this machine builds and runs the image or a container engine does."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import WAY, Node, on_node, pod

from rowlock.api import DeleteOptions
from rowlock.kubelet.images import build, engine_build
from rowlock.kubelet.images.build_context import BuildRequest
from rowlock.kubelet.images.images import Images
from rowlock.objects import Object

NOBODY = pwd.getpwnam("nobody").pw_uid


@pytest.fixture(autouse=True)
def can_mount(tmp_path: Path) -> None:
    if problem := build.rootfs_problem(tmp_path):
        pytest.skip(f"containers cannot have root file systems of their own here: {problem}")


def built(tmp_path: Path, text: str, name: str = "made", dockerfile: str = "context/Dockerfile") -> None:
    """Builds an image of the directory `context`, where the pods of these tests run."""
    file = tmp_path / dockerfile
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"FROM {WAY.image}\n{text}")
    request, images = BuildRequest(name, tmp_path / "context", file), Images(tmp_path / "images")
    if engine := engine_build.choose_engine(WAY.settings.get("runtime", "process"), os.environ):
        engine_build.build(engine, images, request)
    else:
        build.build(images, request, print, layered=True)


def of_image(name: str, container: dict[str, Any] | None = None, **spec: Any) -> Object:
    """A pod of an image whose own command it runs."""
    made = pod(name, "", container={"image": "made", **(container or {})}, spec=spec)
    for each in made["spec"]["containers"]:
        if not (container or {}).get("command"):
            del each["command"]
    return made


def test_command_user_directory_and_variables_are_the_images_unless_the_pod_says_others(tmp_path: Path) -> None:
    built(
        tmp_path,
        "ENV GREETING=hello\nWORKDIR /tmp\nUSER nobody\n"
        'ENTRYPOINT ["sh", "-c", "echo $0 $1 $GREETING $(id -u) $(pwd)"]\nCMD ["image", "words"]\n',
    )

    async def body(node: Node) -> None:
        pods: dict[str, tuple[dict[str, Any], str]] = {
            "as-built": ({}, f"image words hello {NOBODY} /tmp"),
            "args": ({"args": ["pods"]}, f"pods hello {NOBODY} /tmp"),
            "command": ({"command": ["sh", "-c", "echo alone $0"]}, "alone sh"),
            "directory": ({"workingDir": "/"}, f"image words hello {NOBODY} /"),
            "user": ({"securityContext": {"runAsUser": 0}}, "image words hello 0 /tmp"),
            "env": ({"env": [{"name": "GREETING", "value": "hi"}]}, f"image words hi {NOBODY} /tmp"),
        }
        await node.add(*(of_image(name, container) for name, (container, _) in pods.items()))
        for name, (_, said) in pods.items():
            await node.ended(name)
            assert " ".join((await node.log(name)).split()) == said

    on_node(tmp_path, body)


@pytest.mark.parametrize("named", ["SIGUSR1", "SIGRTMIN+3"])
def test_the_images_stop_signal_asks_its_program_to_end(tmp_path: Path, named: str) -> None:
    number = {"SIGUSR1": 10, "SIGRTMIN+3": 37}[named]
    script = f"trap 'exit 3' TERM; trap 'exit 4' {number}; echo ready; while :; do sleep 0.05; done"
    built(tmp_path, f'STOPSIGNAL {named}\nCMD ["bash", "-c", "{script}"]\n')

    async def body(node: Node) -> None:
        await node.add(of_image("a"), of_image("b", {"lifecycle": {"stopSignal": "SIGTERM"}}, os={"name": "linux"}))
        for name, code in (("a", 4), ("b", 3)):
            await node.phase(name, "Running")
            await node.said(name, "ready")
            await node.delete(name, DeleteOptions(grace=60))
            await node.told(name, f" s of grace, with exit code {code}")

    on_node(tmp_path, body)


@pytest.mark.parametrize("dockerfile", ["context/train.Dockerfile", "docker/train.Dockerfile", "context/Dockerfile"])
def test_an_ignore_file_named_after_the_dockerfile_holds_alone(tmp_path: Path, dockerfile: str) -> None:
    context = tmp_path / "context"
    (context / "data").mkdir(parents=True)
    for name in ("secret", "code.py", "data/big", "data/keep"):
        (context / name).write_text(name)
    (context / "link").symlink_to("code.py")
    (context / ".dockerignore").write_text("code.py\n")
    own = tmp_path / f"{dockerfile}.dockerignore"
    own.parent.mkdir(exist_ok=True)
    own.write_text("# not in the image\nsecret\ndata\n!data/keep\n*ockerfile*\n**/*ockerfile*\n")
    built(
        tmp_path, 'COPY . /app\nCMD ["sh", "-c", "cd /app; find . -type f -o -type l | sort"]\n', dockerfile=dockerfile
    )

    async def body(node: Node) -> None:
        await node.add(of_image("a"))
        await node.ended("a")
        files = (await node.log("a")).split()
        assert [file for file in files if file != "./.dockerignore"] == ["./code.py", "./data/keep", "./link"]

    on_node(tmp_path, body)
