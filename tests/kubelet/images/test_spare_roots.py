"""Root file systems that are assembled ahead: the second start of an image takes one, which looks as if made for it."""

import os
import re
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubelet.conftest import Node, on_node, until

from rowlock.kubelet.images import build
from rowlock.kubelet.images.build_context import BuildRequest
from rowlock.kubelet.images.images import Images
from rowlock.kubelet.mounts import calls, machine_files, rootfs, spare_roots
from rowlock.kubelet.mounts.rootfs import RootfsSpec
from rowlock.kubelet.mounts.spare_roots import SPARES_PER_IMAGE, SpareRoot, SpareRoots
from rowlock.kubelet.shim.pod_host import close_other_fds
from rowlock.objects import Object

NETWORKS = ("auto", "rewrite")


@pytest.fixture(scope="module", autouse=True)
def can_mount(tmp_path_factory: pytest.TempPathFactory) -> None:
    if problem := build.rootfs_problem(tmp_path_factory.mktemp("probe")):
        pytest.skip(f"containers cannot have root file systems of their own here: {problem}")
    if os.geteuid() != 0:
        pytest.skip("only root may write where these steps do")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with the image `made`."""
    (tmp_path / "data").mkdir(mode=0o700)
    build_image(tmp_path / "data", "echo first > /srv/text")
    return tmp_path / "data"


def build_image(data: Path, step: str) -> None:
    context = data.parent / "context"
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text(f"FROM x\nWORKDIR /srv\nRUN echo x > /tmp/of-image; {step}\n")
    request = BuildRequest("made", context, context / "Dockerfile")
    build.build(Images(data / "images"), request, lambda line: None, layered=True)


def image_pod(name: str, script: str, **spec: object) -> Object:
    container = {"name": "main", "image": "made", "command": ["sh", "-c", script], **spec.pop("container", {})}  # type: ignore[dict-item]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def spares(data: Path) -> list[Path]:
    """Their directories, the oldest first; those that are not ready yet, too."""
    return sorted(data.glob(".roots/*/*"), key=lambda path: int(path.name))


async def ready_spare(data: Path) -> int:
    """The inode of the first one: it is ready when the second one is begun."""
    await until(lambda: len(spares(data)) == SPARES_PER_IMAGE, "spare roots")
    return spares(data)[0].stat().st_ino


def root_of(node: Node, name: str) -> int:
    uid = str(node.pod(name)["metadata"]["uid"])
    return (node.data / "pods" / uid / "main" / "rootfs").stat().st_ino


@pytest.mark.parametrize("network", NETWORKS)
def test_the_second_start_takes_what_was_made_ahead_and_sees_the_same(data: Path, network: str) -> None:
    volumes = [
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = [
        {"name": "disk", "mountPath": "/disk"},
        {"name": "disk", "mountPath": "/srv/part", "subPath": "a/b"},
        {"name": "memory", "mountPath": "/memory/deep", "readOnly": True},
    ]
    look = (
        "cat /srv/text; ls /tmp /var/tmp /srv; grep -c localhost /etc/hosts; pwd; id -u; umask;"
        " stat -c '%A %u %g %n' / /tmp /var/tmp /srv /disk /dev /dev/shm;"
        " cut -d' ' -f5- /proc/self/mountinfo | sed 's,/fd/[0-9]*,/fd/N,g' | sort;"
        " echo x > /etc/hosts; echo y > /sys/y; echo mine > /srv/mine; echo mine > /tmp/mine; touch /disk/z"
    )
    logs = {}

    async def body(node: Node) -> None:
        for name in ("alpha", "bravo", "charlie"):
            expected = 0 if name == "alpha" else await ready_spare(data)
            await node.add(image_pod(name, look, container={"volumeMounts": mounts}, volumes=volumes))
            await node.ended(name)
            uid = node.pod(name)["metadata"]["uid"]
            logs[name] = re.sub(
                r"10\.77\.\d+\.\d+", "IP", (await node.log(name)).replace(uid, "UID").replace(name, "NAME")
            )
            assert not expected or root_of(node, name) == expected

    on_node(data, body, network=network)
    assert logs["alpha"].startswith("first\n/srv:") and "of-image" in logs["alpha"] and "/memory/deep" in logs["alpha"]
    assert logs["alpha"] == logs["bravo"] == logs["charlie"]


def test_programs_get_pseudo_terminals(data: Path) -> None:
    """As `script`, `pexpect` and apt want them."""
    text = (
        "import os; a, b = os.openpty(); os.write(b, b'through');"
        " print(os.read(a, 9), os.ttyname(b)[:9], oct(os.stat('/dev/ptmx').st_mode))"
    )

    async def body(node: Node) -> None:
        await node.add(image_pod("a", "", container={"command": [sys.executable, "-c", text]}))
        await node.ended("a")
        assert await node.log("a") == "b'through' /dev/pts/ 0o20666\n"

    on_node(data, body)


def test_no_two_containers_share_one_and_a_restart_gets_a_new_one(data: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(image_pod("first", "true"))
        await ready_spare(data)
        script = "test ! -e /was-here && touch /was-here && echo alone; sleep 600"
        names = [f"p{n}" for n in range(SPARES_PER_IMAGE + 1)]
        await node.add(*(image_pod(name, script) for name in names))
        for name in names:
            await node.phase(name, "Running")
            await node.said(name, "alone")
        assert len({root_of(node, name) for name in names}) == len(names)
        again = "test ! -e /was-here && touch /was-here && echo alone; exit 1"
        await node.add(image_pod("again", again, restartPolicy="OnFailure"))
        await until(lambda: (node.state("again", "restartCount") or 0) >= 3, "three restarts")
        for number in range(3):
            log = data / "pods" / node.pod("again")["metadata"]["uid"] / "main" / f"log.{number}"
            assert not log.exists() or log.read_bytes().endswith(b"alone\n")

    on_node(data, body)


def test_another_user_gets_one_too(data: Path) -> None:
    context = {"runAsUser": 65534, "runAsGroup": 65534}

    async def body(node: Node) -> None:
        for name in ("one", "two"):
            expected = 0 if name == "one" else await ready_spare(data)
            await node.add(
                image_pod(name, "id -u; touch /tmp/x /root/x; cat /srv/text", container={"securityContext": context})
            )
            await node.ended(name)
            assert not expected or root_of(node, name) == expected
        one, two = await node.log("one"), await node.log("two")
        assert one == two and one.startswith("65534\n") and one.endswith("first\n") and "/root/x" in one

    on_node(data, body, network="auto")


def test_an_image_that_was_built_again_gets_none_of_the_old_ones(data: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(image_pod("one", "cat /srv/text"))
        await ready_spare(data)
        old = spares(data)
        build_image(data, "echo second > /srv/text")
        await node.add(image_pod("two", "cat /srv/text"))
        await node.ended("one", "two")
        assert (await node.log("one"), await node.log("two")) == ("first\n", "second\n")
        await until(lambda: not any(path.exists() for path in old), "the end of the old ones")

    on_node(data, body)


def test_an_image_that_has_a_link_for_the_hosts_file_leads_nowhere(data: Path) -> None:
    build_image(data, "echo first > /srv/text; ln -sf /srv/text /etc/hosts")

    async def body(node: Node) -> None:
        for name in ("one", "two"):
            if name == "two":
                await ready_spare(data)
            await node.add(image_pod(name, "cat /etc/hosts"))
            await node.ended(name)
            assert await node.log(name) == "first\n"

    on_node(data, body, network="auto")


def test_one_whose_files_have_gone_is_no_obstacle(data: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(image_pod("one", "true"))
        await ready_spare(data)
        for path in spares(data):
            path.rename(data / path.name)
        await node.add(image_pod("two", "cat /srv/text && touch /x && echo fine"))
        await node.ended("two")
        assert await node.log("two") == "first\nfine\n"

    on_node(data, body)


def test_whoever_dies_nothing_is_left(data: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(image_pod("one", "true"))
        await ready_spare(data)
        old = spares(data)
        host = int(node.kubelet.host.hello["pid"])
        os.kill(host, signal.SIGKILL)
        await until(lambda: node.kubelet.host.hello.get("pid", host) != host, "another pod host")
        await until(lambda: not any(path.parent.exists() for path in old), "the end of what it left")
        await node.add(image_pod("two", "cat /srv/text"))
        await ready_spare(data)
        await node.ended("one", "two")
        assert await node.log("two") == "first\n"
        await node.stop()
        assert not (data / ".roots").exists(), "the pod host has ended, too"

    on_node(data, body)


# ---------------------------------------------------------------- without a node


@pytest.fixture
def spec(tmp_path: Path) -> RootfsSpec:
    pod, layer = tmp_path / "pod", tmp_path / "layer"
    pod.mkdir()
    layer.mkdir()
    (layer / "text").write_text("of the image")
    (tmp_path / "image.json").write_text("{}")
    (tmp_path / "hidden").mkdir()
    return RootfsSpec(
        layers=[str(layer)],
        upper=str(pod / "rootfs" / "upper"),
        scratch=str(pod / "rootfs"),
        hidden=[str(tmp_path / "hidden")],
        overlaid=(),
        shared=(),
        own=(),
        entry=str(tmp_path / "image.json"),
        is_kept=False,
    )


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[SpareRoots]:
    made = SpareRoots(close_other_fds)
    made.settle(str(tmp_path))
    yield made
    made.close()
    assert not (tmp_path / ".roots").exists()


def fill(roots: SpareRoots) -> None:
    """Does what the pod host does while nothing else comes, until all are made."""
    end = time.monotonic() + 60
    while roots.wait_seconds() is not None:
        roots.advance()
        assert time.monotonic() < end, "no spare was made"
        select.select([], [], [], 0.002)


def taken(roots: SpareRoots, spec: RootfsSpec) -> SpareRoot | None:
    """One, whose namespace is closed again."""
    found = roots.take(spec)
    if found:
        os.close(found.namespace)
    return found


def test_there_are_few_and_each_is_taken_once(roots: SpareRoots, spec: RootfsSpec) -> None:
    assert taken(roots, spec) is None, "nobody has asked before"
    fill(roots)
    found = [taken(roots, spec) for _ in range(SPARES_PER_IMAGE + 1)]
    assert found[-1] is None and len({one.directory for one in found[:-1] if one}) == SPARES_PER_IMAGE
    assert taken(roots, {**spec, "is_kept": True}) is None and roots.wait_seconds() is not None


@pytest.mark.parametrize("change", ["image", "layer", "mode", "device"])
def test_what_has_changed_makes_them_useless(
    roots: SpareRoots, spec: RootfsSpec, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken(roots, spec)
    fill(roots)
    layer = Path(spec["layers"][0])
    if change == "image":
        os.utime(spec["entry"], (1, 1))
    elif change == "layer":
        layer.rename(f"{layer}.old")
        layer.mkdir()
    elif change == "mode":
        os.chmod(spec["hidden"][0], 0o711)
    else:
        names = machine_files.device_names()
        monkeypatch.setattr(machine_files, "device_names", lambda: names[1:])
    assert taken(roots, spec) is None
    fill(roots)
    assert taken(roots, spec) is not None, "they are made anew"


def test_those_that_are_not_used_go(
    roots: SpareRoots, spec: RootfsSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken(roots, spec)
    fill(roots)
    roots.advance()
    assert len(spares(tmp_path)) == SPARES_PER_IMAGE
    now = time.monotonic()
    monkeypatch.setattr("rowlock.kubelet.mounts.spare_roots.time.monotonic", lambda: now + spare_roots.IDLE_TIMEOUT + 1)
    roots.advance()
    assert roots.wait_seconds() is None and taken(roots, spec) is None
    end = time.perf_counter() + 60
    while spares(tmp_path):
        assert time.perf_counter() < end, "their directories stay"
        select.select([], [], [], 0.002)


def test_one_that_cannot_be_made_is_not_tried_all_the_time(
    roots: SpareRoots, spec: RootfsSpec, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(kind: int) -> None:
        raise PermissionError(1, "the kernel says no")

    monkeypatch.setattr(calls, "unshare", refuse)
    taken(roots, spec)
    fill(roots)
    assert taken(roots, spec) is None
    fill(roots)
    assert capfd.readouterr().err.count("the kernel says no") == 1


def test_where_it_cannot_be_entered_a_new_one_is_made(spec: RootfsSpec) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        text = "nothing"
        try:
            calls.unshare_mounts()
            rootfs.enter(spec, (), "", writing)  # no mount namespace
            text = Path("/text").read_text()
        finally:
            os.write(writing, text.encode())
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"of the image"
    os.close(reading)
    os.close(writing)
