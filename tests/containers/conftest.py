"""A container engine for these tests: Debian's dockerd, started here with everything of its own, its network included.

`make test-containers` runs them (`ROWLOCK_TEST_ENGINE=SOCKET` in another engine: Podman's, say). The pods of `tests/kubelet` then run in containers of an image made of this machine's
Python (`base.py`), with the same assertions.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.containers import base
from tests.kubelet.conftest import WAY

IMAGE = "rowlock-test:1"
_PATIENCE = 30.0
_INSTALL = "dockerd is not installed: `apt-get install docker.io iptables` (as root) is all these tests need"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without being asked for, they do not run: each of them starts containers."""
    here = [item for item in items if "tests/containers" in str(item.path)]
    for item in here:
        item.add_marker(pytest.mark.containers)
    if here and "containers" not in (config.option.markexpr or ""):
        first, *others = here  # one skip that speaks for all
        text = f"{len(here)} tests of pods in real containers: `make test-containers` runs them"
        first.add_marker(pytest.mark.skip(reason=text))
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The socket of an engine of ours (or, on request, of one that is there), with the base image in it."""
    if given := os.environ.get("ROWLOCK_TEST_ENGINE"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"unix://{given}")
            base.load(IMAGE)
        yield given
        return
    if shutil.which("dockerd") is None:
        pytest.skip(_INSTALL)
    if os.geteuid() != 0:
        pytest.skip("dockerd needs root here")
    with Engine(tmp_path_factory.mktemp("engine")) as engine:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"unix://{engine.socket}")
            base.load(IMAGE)
        yield engine.socket


class Engine:
    """dockerd in a network namespace of its own: no bridge, no rule and no setting of the machine is touched."""

    def __init__(self, home: Path) -> None:
        self.home, self.socket = home, str(home / "sock")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Engine:
        self.start()
        return self

    def start(self) -> None:
        words = ["dockerd", "--data-root", "root", "--exec-root", "exec", "-p", "pid", "-H", f"unix://{self.socket}"]
        words = ["unshare", "--net", *words, "--iptables=false", "--ip6tables=false", "--bridge=none"]
        words = [str(self.home / word) if word in ("root", "exec", "pid") else word for word in words]
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < deadline, (self.home / "log").read_text()[-2000:]
            time.sleep(0.05)

    def _answers(self) -> bool:
        said = subprocess.run(["docker", "-H", f"unix://{self.socket}", "info"], capture_output=True, check=False)
        return said.returncode == 0

    def send(self, number: int) -> None:
        """A signal to the engine itself: SIGSTOP makes it one that hangs."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ends it as an administrator would: its containers end with it. With SIGKILL they go on."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(_PATIENCE)

    def __exit__(self, *_: object) -> None:
        self.stop()
        with contextlib.suppress(OSError, ValueError):  # left behind by an engine that was killed
            os.kill(int((self.home / "exec" / "containerd" / "containerd.pid").read_text()), signal.SIGTERM)
        for place in (self.home / "exec").rglob("netns/*"):
            subprocess.run(["umount", str(place)], capture_output=True, check=False)
        for group in Path("/sys/fs/cgroup").glob("*/docker"):
            with contextlib.suppress(OSError):  # another engine's containers are in it
                group.rmdir()
        shutil.rmtree(self.home, ignore_errors=True)


@pytest.fixture(autouse=True)
def in_containers(docker: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pods of the node tests run in containers; when a test ends, none of them is left."""
    if "podman" in docker and "memory_is_shared" in request.node.name:
        pytest.skip("Podman's memory volumes have no size, which an event says")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker}")
    monkeypatch.setattr(WAY, "image", IMAGE)
    if "tmp_path" in request.fixturenames:
        monkeypatch.setattr(WAY, "shared", str(request.getfixturevalue("tmp_path")))
    monkeypatch.setitem(WAY.settings, "runtime", "container")
    yield
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker}")  # a test may have had another
    left = listed("ps", "-aq")
    for each in left:
        subprocess.run(["docker", "rm", "-f", each], capture_output=True, check=False)
    subprocess.run(["docker", "network", "prune", "-f"], capture_output=True, check=False)


def listed(*words: str) -> list[str]:
    """What the engine lists."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout.split()
