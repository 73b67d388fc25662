"""Pulls: names, credentials and the engine's stream by equality; what a pod does meanwhile, with an engine that is played."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, node, pod, until

from rowlock import kinds
from rowlock.kubelet.images.images import KUBECTL_DELIVERY, Image, Images, normalise
from rowlock.kubelet.pod.facts import ContainerFacts, PodFacts, Pull
from rowlock.kubelet.pod.progress import assess_progress
from rowlock.kubelet.pod.spec import parse_pod_spec
from rowlock.kubelet.pod.sync import PodActions, Publish, compute_pod_actions
from rowlock.kubelet.runtime.engine_images import EngineImages
from rowlock.kubelet.runtime.pulls import Pulls
from rowlock.kubelet.runtime.registry import (
    ANONYMOUS,
    Auths,
    PullAnswer,
    auths_of_config_file,
    auths_of_secret,
    format_duration,
    lookup_credentials,
    missing_secrets_message,
    parse_image_name,
    pull_path,
    pulled_message,
)
from rowlock.kubelet.shim.engine_client import Engine
from rowlock.objects import Object

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("reference", "where", "asked"),
    [
        ("busybox", ("docker.io", "library/busybox"), "busybox&tag=latest"),
        ("docker.io/team/x:1", ("docker.io", "team/x"), "team%2Fx&tag=1"),
        ("ghcr.io/a/b", ("ghcr.io", "a/b"), "ghcr.io%2Fa%2Fb&tag=latest"),
        ("localhost/a:1", ("localhost", "a"), "localhost%2Fa&tag=1"),
        ("host:5000/a/b:T", ("host:5000", "a/b"), "host%3A5000%2Fa%2Fb&tag=T"),
        (f"host:5000/a/b@{DIGEST}", ("host:5000", "a/b"), f"host%3A5000%2Fa%2Fb&tag={DIGEST.replace(':', '%3A')}"),
        (f"a/b:1@{DIGEST}", ("docker.io", "a/b"), f"a%2Fb&tag={DIGEST.replace(':', '%3A')}"),
    ],
)
def test_names(reference: str, where: tuple[str, str], asked: str) -> None:
    assert parse_image_name(normalise(reference)) == where
    assert pull_path(normalise(reference)) == f"/images/create?fromImage={asked}"


def entry(user: str, password: str = "secret") -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def who(name: str, *known: Auths) -> list[str]:
    """The users that would ask, in order; "" for nobody."""
    found = lookup_credentials(normalise(name), known)
    return [json.loads(base64.urlsafe_b64decode(c.header))["username"] if c.header else "" for c in found]


@pytest.mark.parametrize(
    ("name", "known", "users"),
    [
        ("x", [], [""]),
        ("x", [{"ghcr.io": entry("a")}], [""]),
        ("x", [{"https://index.docker.io/v1/": entry("a")}], ["a"]),
        ("team/x", [{"docker.io": entry("a"), "index.docker.io/team": entry("b")}], ["b", "a"]),
        ("teams/x", [{"docker.io/team": entry("a")}], [""]),
        ("host:5000/a/b:1", [{"host:5000": entry("a"), "host": entry("b"), "host:5001": entry("c")}], ["a"]),
        ("host:5000/a/b:1", [{"http://host:5000/v2/": entry("a")}], ["a"]),
        ("eu.my.io/a", [{"*.my.io": entry("a"), "*.io": entry("b")}], ["a"]),
        ("ghcr.io/a", [{"ghcr.io": entry("b")}, {"ghcr.io": entry("a")}], ["b", "a"]),
        ("ghcr.io/a", [{"ghcr.io": entry("a")}, {"ghcr.io": entry("a")}], ["a"]),
        ("ghcr.io/a", [{"ghcr.io": {"username": "a", "password": "b"}}], ["a"]),
        ("ghcr.io/a", [{"ghcr.io": {}}], [""]),
        ("ghcr.io/a", [{"ghcr.io": {"auth": "/"}}], [""]),
    ],
)
def test_who_asks(name: str, known: list[Auths], users: list[str]) -> None:
    assert who(name, *known) == users


def test_what_an_engine_is_told_and_what_is_never_shown() -> None:
    (found,) = lookup_credentials("ghcr.io/a:1", [{"ghcr.io": {**entry("me", "a:b"), "identitytoken": "t"}}])
    said = {"username": "me", "password": "a:b", "serveraddress": "ghcr.io", "identitytoken": "t"}
    assert json.loads(base64.urlsafe_b64decode(found.header)) == said
    assert repr(found) == "Credential()" == str(found)


def secret(name: str, auths: Mapping[str, Any], old: bool = False) -> Object:
    key, kind = (".dockercfg", "dockercfg") if old else (".dockerconfigjson", "dockerconfigjson")
    text = json.dumps(auths if old else {"auths": auths})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"},
        "type": f"kubernetes.io/{kind}",
        "data": {key: base64.b64encode(text.encode()).decode()},
    }


def test_secrets_and_the_users_own_file() -> None:
    known = {"ghcr.io": entry("a")}
    assert auths_of_secret(secret("s", known)) == known == auths_of_secret(secret("s", known, old=True))
    assert auths_of_secret({"type": "Opaque", "data": {}}) is None
    assert auths_of_secret({**secret("s", known), "data": {".dockerconfigjson": "e30="}}) is None
    assert auths_of_config_file(json.dumps({"auths": known, "credsStore": "desktop"})) == known
    assert auths_of_config_file("no") == {} == auths_of_config_file("[]") == auths_of_config_file('{"auths": 3}')
    assert missing_secrets_message(["a", "b"]) == (
        "Unable to retrieve some image pull secrets (a, b); attempting to pull the image may not succeed."
    )


GOOD = b'{"status":"Pulling from x","id":"1"}\r\n{"status":"Downloading","progressDetail":{"current":1}}\r\n'
BAD = b'{"errorDetail":{"message":"manifest unknown: no such tag"},"error":"manifest unknown"}\r\n'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", ""),
        (GOOD, ""),
        (GOOD + BAD, "manifest unknown: no such tag"),
        (BAD.rstrip(), "manifest unknown: no such tag"),
        (b'{"error":"denied"}', "denied"),
        (b"no JSON\n[1]\n", ""),
    ],
)
def test_the_stream_is_read_however_it_is_cut(text: bytes, error: str) -> None:
    for size in (1, 7, 10_000):
        answer = PullAnswer()
        for at in range(0, len(text), size):
            answer.feed(text[at : at + size])
        assert answer.finish() == error


def test_durations_are_a_kubelets() -> None:
    spans = [0, 0.0871, 2.3459, 2.3, 62.5, 3600, 3601.25]
    assert [format_duration(s) for s in spans] == ["0s", "87ms", "2.345s", "2.3s", "1m2.5s", "1h0m0s", "1h0m1.25s"]
    said = 'Successfully pulled image "x" in 2.345s (3s including waiting). Image size: 7 bytes.'
    assert pulled_message("x", 2.3459, 3.0, 7) == said


def test_a_pod_whose_image_is_pulled_waits_for_nothing_else() -> None:
    given = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}
    pulling = PodFacts(containers={"c": ContainerFacts(pull=Pull(under_way=True))})
    assert compute_pod_actions(assess_progress(parse_pod_spec(given), pulling, 9.0)) == PodActions((Publish(),))


# ---------------------------------------------------------------- an engine that is played


class Played:
    """Answers what an engine would, on a unix socket; a pull does what `pull` says."""

    def __init__(self) -> None:
        self.have: set[str] = set()
        self.networks = True
        """Does it make any?"""
        self.asked: list[tuple[str, str]] = []
        """The pulls: what for, and as whom."""
        self.open = 0
        """Pulls under way."""
        self.go = asyncio.Event()
        self.status = "200 OK"
        self.pull: Callable[[asyncio.StreamWriter], Awaitable[None]] = self.held

    async def held(self, writer: asyncio.StreamWriter) -> None:
        writer.write(GOOD)
        await self.go.wait()

    async def refuses(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"message": "pull access denied for team/x"}')

    async def is_silent(self, writer: asyncio.StreamWriter) -> None:
        """The head of an answer, and nothing more."""

    async def breaks_off(self, writer: asyncio.StreamWriter) -> None:
        writer.write(GOOD)

    async def fails(self, writer: asyncio.StreamWriter) -> None:
        writer.write(GOOD + BAD)

    async def comes(self, writer: asyncio.StreamWriter) -> None:
        self.have.add(self.asked[-1][0])
        writer.write(GOOD)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self._answer((await reader.readuntil(b"\r\n\r\n")).decode(), reader, writer)
        writer.close()

    async def _answer(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path, lines = head.split(" ", 2)[1], dict(line.partition(": ")[::2] for line in head.splitlines())
        await reader.readexactly(int(lines["Content-Length"]))
        if path.startswith("/images/create?fromImage="):
            auth = lines.get("X-Registry-Auth")
            user = json.loads(base64.urlsafe_b64decode(auth))["username"] if auth else ""
            self.asked.append((path.partition("=")[2].replace("%2F", "/").replace("&tag=", ":"), user))
            writer.write(f"HTTP/1.0 {self.status}\r\n\r\n".encode())
            await self._pulled(reader, writer)
            return
        name = path.removeprefix("/images/").removesuffix("/json")
        made = {"/_ping": b"OK", "/version": b'{"Arch": "amd64"}', "/networks/create": b"{}" if self.networks else b""}
        found = made.get(path, b"")
        if path.startswith("/images/create"):
            found = b"{}"  # the sandbox's
        if name in self.have:
            found = b'{"Id": "sha256:1", "Size": 7, "Config": {}}'
        status = "200 OK" if found else "404 Not Found"
        writer.write(f"HTTP/1.0 {status}\r\nServer: Docker/99.0 (played)\r\n\r\n".encode())
        writer.write(found or b'{"message": "no such thing"}')
        await writer.drain()

    async def _pulled(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until it is done, or the other side has hung up."""
        self.open += 1
        work, left = asyncio.ensure_future(self.pull(writer)), asyncio.ensure_future(reader.read())
        await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, left):
            task.cancel()
        self.open -= 1


@contextlib.asynccontextmanager
async def played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> AsyncIterator[tuple[Node, Played]]:
    """A node beside an engine that is played."""
    engine = Played()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    server = await asyncio.start_unix_server(engine.serve, f"{tmp_path}/engine")
    try:
        async with node(tmp_path, **settings) as made:
            yield made, engine
    finally:
        server.close()


async def waits(node: Node, name: str, reason: str) -> None:
    await until(lambda: node.state(name, "state.waiting.reason") == reason, f"{name} to wait with {reason}")


async def told(node: Node, name: str, text: str) -> None:
    await until(lambda: any(text in said for *_, said in node.events(name)), f"an event of {name}: {text}")


def wants(name: str, image: str, **more: Any) -> Object:
    return pod(name, "true", container={"image": image, **more.pop("container", {})}, **more)


def test_a_pull_that_fails_is_told_as_on_a_real_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        async with played(tmp_path, monkeypatch, restart_backoff=600.0) as (node, engine):
            engine.pull = engine.fails
            await node.add(wants("a", "team/x:1"))
            await waits(node, "a", "ErrImagePull")
            why = "manifest unknown: no such tag; build it with `rowlock build -t team/x:1 DIR`, or "
            assert node.state("a", "state.waiting.message").startswith(why)
            await node.store.create(kinds.SECRET, secret("s", {}))  # which makes the pod's turn come at once
            await waits(node, "a", "ImagePullBackOff")
            text = f'Back-off pulling image "team/x:1": ErrImagePull: {why}'
            assert node.state("a", "state.waiting.message").startswith(text)
            await told(node, "a", "Error: ImagePullBackOff")
            said = [(kind, reason, text.partition(";")[0]) for kind, reason, text in node.events("a")]
            assert sorted(said) == sorted(
                [
                    ("Normal", "Pulling", 'Pulling image "team/x:1"'),
                    ("Warning", "Failed", 'Failed to pull image "team/x:1": manifest unknown: no such tag'),
                    ("Warning", "Failed", "Error: ErrImagePull"),
                    ("Normal", "BackOff", 'Back-off pulling image "team/x:1"'),
                    ("Warning", "Failed", "Error: ImagePullBackOff"),
                ]
            )
            assert engine.asked == [("team/x:1", "")], "one pull for each back-off"
            engine.have.add("team/x:1")  # by other means
            await node.store.create(kinds.SECRET, secret("t", {}))
            await told(node, "a", "already present on machine")

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("how", "status", "quiet", "error"),
    [
        (Played.breaks_off, "200 OK", 60.0, ""),
        (Played.fails, "200 OK", 60.0, "manifest unknown: no such tag"),
        (Played.refuses, "404 Not Found", 60.0, "pull access denied for team/x"),
        (Played.is_silent, "500 Internal Server Error", 60.0, "the engine answered 500"),
        (Played.held, "200 OK", 0.05, "docker has reported no progress of the pull for 0 s: does the registry answer?"),
    ],
)
def test_how_a_pull_ends(
    tmp_path: Path,
    how: Callable[[Played, asyncio.StreamWriter], Awaitable[None]],
    status: str,
    quiet: float,
    error: str,
) -> None:
    async def whole() -> None:
        engine = Played()
        engine.pull, engine.status = partial(how, engine), status
        async with await asyncio.start_unix_server(engine.serve, f"{tmp_path}/engine"), asyncio.TaskGroup() as tasks:
            ended = await Pulls(quiet).pull_image(tasks, Engine(f"{tmp_path}/engine"), "team/x:1", (ANONYMOUS,))
            assert ended.error == error
            gone = await Pulls().pull_image(tasks, Engine(f"{tmp_path}/nobody"), "team/x:1", (ANONYMOUS,))
            why = f"the container engine at {tmp_path}/nobody does not answer (no such file or directory)"
            assert gone.error == why

    asyncio.run(whole())


def test_a_pull_that_breaks_off_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        async with played(tmp_path, monkeypatch, restart_backoff=600.0) as (node, engine):
            engine.pull = engine.breaks_off
            await node.add(wants("a", "team/x:1"))
            await waits(node, "a", "ErrImagePull")
            sentence = "docker ended the pull without an error, but does not have the image; build it with "
            assert node.state("a", "state.waiting.message").startswith(sentence)

    asyncio.run(whole())


def test_a_server_that_goes_leaves_no_pull_and_one_that_comes_pulls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def whole() -> None:
        async with played(tmp_path, monkeypatch) as (node, engine):
            await node.add(wants("a", "team/x:1"))
            await until(lambda: engine.open == 1)
            await node.stop()
            await until(lambda: engine.open == 0)
            await node.start()
            await until(lambda: engine.open == 1)
            engine.have.add("team/x:1")
            engine.go.set()
            await told(node, "a", "Successfully pulled image")
            assert len(engine.asked) == 2

    asyncio.run(whole())


def test_a_pull_is_tried_again_and_its_image_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        async with played(tmp_path, monkeypatch, restart_backoff=0.05) as (node, engine):
            engine.pull = engine.fails
            await node.add(wants("a", "team/x"))
            await until(lambda: len(engine.asked) > 1)
            engine.pull = engine.comes
            await told(node, "a", "Successfully pulled image")
            (said,) = [said for *_, said in node.events("a") if said.startswith("Successfully")]
            assert said.startswith('Successfully pulled image "team/x" in ') and said.endswith("Image size: 7 bytes.")

    asyncio.run(whole())


def test_a_pull_is_shared_and_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        async with played(tmp_path, monkeypatch) as (node, engine):
            await node.add(wants("a", "team/x:1"), wants("b", "team/x:1"))
            for name in ("a", "b"):
                await waits(node, name, "ContainerCreating")
                await told(node, name, "Pulling image")
            await node.add(wants("other", "rowlock.dev/host"))
            await node.ended("other")
            await node.delete("a")
            await until(lambda: engine.open == 1)
            assert len(engine.asked) == 1, "b still wants it"
            await node.delete("b")
            await until(lambda: not engine.open, "the engine to be told that nobody wants it")
            engine.pull = engine.comes
            await node.add(wants("c", "team/x:1"))
            await told(node, "c", "Successfully pulled image")

    asyncio.run(whole())


def test_secrets_of_the_pod_ask_and_a_missing_one_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        (tmp_path / "config.json").write_text(json.dumps({"auths": {"ghcr.io": entry("mine")}}))
        async with played(tmp_path, monkeypatch, restart_backoff=600.0) as (node, engine):
            engine.pull = engine.fails
            await node.store.create(kinds.SECRET, secret("here", {"ghcr.io": entry("pods")}))
            refs = [{"name": "here"}, {"name": "gone"}]
            await node.add(wants("a", "ghcr.io/x:1", spec={"imagePullSecrets": refs}), wants("b", "ghcr.io/x:1"))
            for name in ("a", "b"):
                await waits(node, name, "ErrImagePull")
            assert sorted(engine.asked) == [("ghcr.io/x:1", user) for user in ("mine", "mine", "pods")]
            await told(node, "a", missing_secrets_message(["gone"]))
            await until(lambda: "FailedToRetrieveImagePullSecret" in [reason for _, reason, _ in node.events("a")])
            assert "secret" not in "".join(said for *_, said in node.events("a")).replace("image pull secrets", "")

    asyncio.run(whole())


def test_never_means_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        async with played(tmp_path, monkeypatch) as (node, engine):
            await node.add(wants("a", "team/x:1", container={"imagePullPolicy": "Never"}))
            await waits(node, "a", "ErrImageNeverPull")
            assert engine.asked == []

    asyncio.run(whole())


def test_what_the_engine_cannot_make_is_in_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        async with played(tmp_path, monkeypatch, restart_backoff=600.0) as (node, engine):
            engine.networks = False
            await node.add(wants("a", "team/x:1"))
            await waits(node, "a", "CreateContainerError")
            assert node.state("a", "state.waiting.message") == "no such thing"

    asyncio.run(whole())


def test_the_launcher_of_an_mpijob_gets_its_kubectl_with_its_own_image(tmp_path: Path) -> None:
    images = Images(tmp_path)
    images.engine_images["team/mpi:1"] = Image("team/mpi:1", engine="docker://x", entrypoint=("run",), command=("me",))
    first = {"name": "kubectl-delivery", "image": f"{KUBECTL_DELIVERY}:latest"}
    made = parse_pod_spec(wants("a", "team/mpi:1", spec={"initContainers": [first]}))
    found = EngineImages("auto", images, {}, {}).find_image(made, made.init_containers[0], contained=True)
    assert (found.engine, found.command, found.entrypoint[:2]) == ("docker://x", (), ("python3", "-c"))
    exec(compile(found.entrypoint[3], "kubectl", "exec"), {"__name__": "kubectl"})  # it is a program by itself


def test_who_asks_without_credentials_is_nobody() -> None:
    assert lookup_credentials("x:1", []) == (ANONYMOUS,)
