"""Pulls from a real registry into a real engine: open and private, by tag and by digest, and what a pod says of failures."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.containers.conftest import listed
from tests.containers.registry import HOST, docker_config, program, publish, serving, unpublish
from tests.kubelet.conftest import WAY, Node, on_node, pod, until
from tests.kubelet.runtime.test_pulls import waits

from rowlock import kinds
from rowlock.objects import Object

pytestmark = pytest.mark.timeout(300, func_only=True)  # set-up has limits of its own: it may build the registry
NAME = f"{HOST}/crew/boat:1"


@pytest.fixture(scope="session")
def registry() -> Path:
    """The registry's program, which is built once, whatever becomes of it."""
    return program()


@pytest.fixture
def engine_pid(docker: str) -> int:
    """The process of an engine that these tests have started."""
    pid = Path(docker).parent / "pid"
    if not pid.exists():
        pytest.skip("a registry is reached through the network of an engine of ours: unset ROWLOCK_TEST_ENGINE")
    return int(pid.read_text())


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a `docker login`; his directory."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "nobody"))
    monkeypatch.setitem(WAY.settings, "runtime", "auto")
    return tmp_path / "nobody"


@pytest.fixture
def open_registry(tmp_path: Path, registry: Path, engine_pid: int, nobody: Path) -> Iterator[str]:
    """One that everybody may ask, with NAME in it; the image's digest."""
    (tmp_path / "registry").mkdir()
    with serving(registry, tmp_path / "registry", engine_pid):
        yield publish(NAME, nobody)
        unpublish(NAME)


@pytest.fixture
def private_registry(tmp_path: Path, registry: Path, engine_pid: int, nobody: Path) -> Iterator[dict[str, object]]:
    """One that asks who it is, with NAME in it; the credentials it takes."""
    (tmp_path / "registry").mkdir()
    with serving(registry, tmp_path / "registry", engine_pid, private=True):
        found = docker_config(tmp_path / "somebody")
        publish(NAME, tmp_path / "somebody")
        yield found
        unpublish(NAME)


def sails(name: str, image: str = NAME, **spec: object) -> Object:
    made = pod(name, "echo sails", container={"image": image}, spec=dict(spec))
    return made


def secret(name: str, content: dict[str, object]) -> Object:
    data = {".dockerconfigjson": base64.b64encode(json.dumps(content).encode()).decode()}
    meta = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "kubernetes.io/dockerconfigjson", "data": data
    }  # fmt: skip


def test_an_absent_image_is_pulled_once_and_used(tmp_path: Path, open_registry: str) -> None:
    async def body(node: Node) -> None:
        await node.add(sails("a"), sails("b"))
        await node.ended("a", "b")
        assert [await node.log(name) for name in ("a", "b")] == ["sails\n", "sails\n"]
        await until(lambda: len([1 for _, reason, _ in node.events("a") if reason == "Pulled"]) == 1)
        (said,) = [text for _, reason, text in node.events("a") if reason == "Pulled"]
        wanted = rf'Successfully pulled image "{NAME}" in \S+s \(\S+s including waiting\)\. Image size: \d\d+ bytes\.'
        assert re.fullmatch(wanted, said)
        assert ("Normal", "Pulling", f'Pulling image "{NAME}"') in node.events("a")
        await node.add(sails("later"))
        await node.ended("later")
        await until(lambda: any("already present on machine" in text for *_, text in node.events("later")))
        assert "Pulling" not in [reason for _, reason, _ in node.events("later")]

    on_node(tmp_path, body)
    log = (tmp_path / "registry" / "log").read_text()
    assert len(re.findall(r'"GET /v2/crew/boat/blobs/\S+ HTTP', log)) == 2, "its configuration and its layer, once"


def test_a_digest_is_pulled_and_a_tag_that_is_not_there_is_said(tmp_path: Path, open_registry: str) -> None:
    async def body(node: Node) -> None:
        by_digest = f"{HOST}/crew/boat@{open_registry}"
        await node.add(sails("a", by_digest), sails("b", f"{HOST}/crew/boat:2"))
        await node.ended("a")
        assert await node.log("a") == "sails\n" and node.state("a", "image") == by_digest
        await until(lambda: node.state("b", "state.waiting.reason") in ("ErrImagePull", "ImagePullBackOff"))
        message = node.state("b", "state.waiting.message")
        assert "manifest" in message and "`rowlock build -t 127.0.0.1:5000/crew/boat:2 DIR`" in message
        await node.delete("b")
        unpublish(by_digest)

    on_node(tmp_path, body, restart_backoff=600.0)


def test_a_private_registry_lets_in_who_has_the_secret(tmp_path: Path, private_registry: dict[str, object]) -> None:
    async def body(node: Node) -> None:
        wrong = docker_config(tmp_path / "wrong", password="close sesame")
        await node.store.create(kinds.SECRET, secret("key", private_registry))
        await node.store.create(kinds.SECRET, secret("wrong", wrong))
        await node.add(sails("nobody"), sails("wrong", imagePullSecrets=[{"name": "wrong"}, {"name": "gone"}]))
        for name in ("nobody", "wrong"):
            await waits(node, name, "ErrImagePull")
            assert re.search("no basic auth credentials|unauthorized", node.state(name, "state.waiting.message"))
        reasons = [reason for _, reason, _ in node.events("wrong")]
        assert "FailedToRetrieveImagePullSecret" in reasons and not listed("images", "-q", NAME)
        await node.add(sails("crew", imagePullSecrets=[{"name": "wrong"}, {"name": "key"}]))
        await node.ended("crew")
        assert await node.log("crew") == "sails\n"
        said = "".join(text for name in ("nobody", "wrong", "crew") for *_, text in node.events(name))
        assert "sesame" not in said

    on_node(tmp_path, body, restart_backoff=600.0)


def test_a_private_registry_lets_in_who_has_logged_in(
    tmp_path: Path, private_registry: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "somebody"))

    async def body(node: Node) -> None:
        await node.add(sails("a"))
        await node.ended("a")
        assert await node.log("a") == "sails\n"

    on_node(tmp_path, body)
