"""As whom each path is opened: a program of another user reaches by its pod's fields what that user reaches, and nothing else."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import Node, on_node, pod
from tests.kubelet.images.test_spare_roots import build_image, image_pod
from tests.kubelet.streams.test_exec_sessions import said

from rowlock import kinds
from rowlock.kubelet.shim import fact_files
from rowlock.kubelet.volumes.checkpoints import give_to_user
from rowlock.kubelet.warm import eligibility
from rowlock.objects import Object

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else"),
]
NOBODY, OTHER = 65534, 1
AS_NOBODY: dict[str, Any] = {"securityContext": {"runAsUser": NOBODY, "runAsGroup": NOBODY}}
NETWORKS = pytest.mark.parametrize("network", ["rewrite", "auto"])


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory to which every user of the machine may come."""
    with tempfile.TemporaryDirectory(prefix="rowlock-as-whom-") as made:
        os.chmod(made, 0o755)
        yield Path(made)


@pytest.fixture
def home(place: Path) -> Path:
    """Another user's, closed; with a file that is readable for who comes so far."""
    made = place / "home"
    made.mkdir(mode=0o700)
    (made / "notes").write_text("private\n")
    os.chown(made, OTHER, OTHER)
    return made


def as_nobody(name: str, script: str, **container: Any) -> Object:
    return pod(name, script, container={**AS_NOBODY, **container})


@NETWORKS
def test_a_working_directory_is_entered_as_the_programs_user(place: Path, home: Path, network: str) -> None:
    data = place / "data"
    data.mkdir(mode=0o700)

    async def body(node: Node) -> None:
        foreign = data / "checkpoints" / "another-job"
        foreign.mkdir(parents=True)
        foreign.chmod(0o777)
        (place / "link").symlink_to(home)
        closed = {
            "home": str(home),
            "link": str(place / "link"),
            "process": f"/proc/{os.getpid()}/root/etc",
            "descriptors": f"/proc/{os.getpid()}/fd",
            "checkpoints": str(foreign),
            "data": str(data),
        }
        for name, directory in closed.items():
            await node.add(as_nobody(name, "cat notes; echo taken > state", workingDir=directory))
        await node.ended(*closed)
        for name, directory in closed.items():
            ended = node.state(name, "state.terminated")
            assert ended["reason"] == "StartError", (name, ended, await node.log(name))
            wanted = f'the working directory "{directory}" '
            assert ended["message"].startswith(wanted), ended
        assert node.state("home", "state.terminated.message").endswith(
            "cannot be entered by user 65534: Permission denied"
        )
        assert list(foreign.iterdir()) == []

    on_node(data, body, network=network)


@NETWORKS
def test_the_pods_own_directory_needs_no_way_there(place: Path, network: str) -> None:
    """It lies in the data directory, which is closed to the program's user; a program beside it begins there, too."""
    data = place / "data"
    data.mkdir(mode=0o700)

    async def body(node: Node) -> None:
        await node.add(as_nobody("a", "id -u; echo mine > file; cat file; echo done; sleep 600"))
        await node.phase("a", "Running")
        await node.said("a", "done")
        assert await node.log("a") == "65534\nmine\ndone\n"
        assert await said(node, "a", "cat", "file") == (0, "", b"mine\n")

    on_node(data, body, network=network)


@NETWORKS
def test_who_goes_in_enters_as_the_programs_user(place: Path, network: str) -> None:
    """The directory is closed after the program has begun: a probe or `kubectl exec` comes in no more."""
    data, work = place / "data", place / "work"
    data.mkdir(mode=0o700)
    work.mkdir(mode=0o755)
    (work / "notes").write_text("private\n")
    os.chown(work, OTHER, OTHER)

    async def body(node: Node) -> None:
        await node.add(as_nobody("a", "echo begun; sleep 600", workingDir=str(work)))
        await node.phase("a", "Running")
        await node.said("a", "begun")
        assert await said(node, "a", "cat", "notes") == (0, "", b"private\n")
        work.chmod(0o700)
        code, why, output = await said(node, "a", "cat", "notes")
        assert code and not output and "cannot be entered by user 65534: Permission denied" in why

    on_node(data, body, network=network)


@NETWORKS
def test_a_mount_point_in_the_users_own_closed_directory_keeps_its_owner(place: Path, network: str) -> None:
    data, own = place / "data", place / "own"
    data.mkdir(mode=0o700)
    own.mkdir(mode=0o700)
    (own / "kept").write_text("kept\n")
    os.chown(own, NOBODY, NOBODY)

    async def body(node: Node) -> None:
        if node.kubelet.node.mount_problem:
            pytest.skip(f"containers cannot have mounts of their own here: {node.kubelet.node.mount_problem}")
        made = as_nobody(
            "a",
            f"stat -c '%u %a' {own}; cat {own}/kept; echo written > {own}/new/file; cat {own}/new/file",
            volumeMounts=[{"name": "v", "mountPath": f"{own}/new"}],
        )
        made["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
        made["spec"]["securityContext"] = {"fsGroup": NOBODY}
        await node.add(made)
        await node.ended("a")
        assert await node.log("a") == "65534 700\nkept\nwritten\n", node.pod("a")["status"]
        assert sorted(path.name for path in own.iterdir()) == ["kept"]

    on_node(data, body, network=network)


def test_checkpoints_are_those_of_the_account(place: Path) -> None:
    data = place / "data"
    data.mkdir(mode=0o700)

    async def body(node: Node) -> None:
        if node.kubelet.node.mount_problem:
            pytest.skip(f"containers cannot have mounts of their own here: {node.kubelet.node.mount_problem}")
        await node.add(as_nobody("a", "echo step > $ROWLOCK_CHECKPOINT_DIR/step; cat $ROWLOCK_CHECKPOINT_DIR/step"))
        await node.ended("a")
        assert await node.log("a") == "step\n"
        found = (data / "checkpoints" / node.pod("a")["metadata"]["uid"]).stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (NOBODY, 0o700)

    on_node(data, body)


def test_checkpoints_of_two_users_of_one_job_are_open_to_both(tmp_path: Path) -> None:
    def look() -> tuple[int, int, int]:
        found = tmp_path.stat()
        return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)

    os.chmod(tmp_path, 0o777)  # as an earlier version has left it
    give_to_user(str(tmp_path), NOBODY, None)
    assert look() == (NOBODY, os.getegid(), 0o700)
    give_to_user(str(tmp_path), NOBODY, 4321)
    assert look() == (NOBODY, 4321, 0o2770)
    give_to_user(str(tmp_path), OTHER, None)
    assert look() == (NOBODY, 4321, 0o2777)
    give_to_user(str(tmp_path), NOBODY, None)
    assert look() == (NOBODY, 4321, 0o2777)


def test_in_an_image_a_missing_directory_is_made_in_its_own_root_alone(place: Path) -> None:
    data = place / "data"
    data.mkdir(mode=0o700)
    build_image(data, "ln -s /shown /link; mkdir /open; chmod 777 /open; mkdir -m 700 /shut")

    async def body(node: Node) -> None:
        def made(name: str, directory: str, **more: Any) -> Object:
            container = {
                **AS_NOBODY,
                "workingDir": directory,
                "volumeMounts": [{"name": "v", "mountPath": "/shown"}],
                **more,
            }
            one = image_pod(name, "pwd; id -u", container=container)
            one["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
            return one

        await node.add(
            made("root", "/deep/er"), made("volume", "/shown/deep"), made("link", "/link/deep"), made("closed", "/shut")
        )
        await node.ended("root", "volume", "link", "closed")
        assert await node.log("root") == "/deep/er\n65534\n"
        assert await node.log("volume") == "/shown/deep\n65534\n", "made as its user, who may write in the volume"
        assert "65534" in await node.log("link")
        directory = data / "pods" / node.pod("volume")["metadata"]["uid"] / ".volumes" / "v" / "deep"
        assert directory.stat().st_uid == NOBODY
        assert node.state("closed", "state.terminated.message").endswith(
            "cannot be entered by user 65534: Permission denied"
        )

    on_node(data, body, network="auto")


def test_no_program_of_another_user_starts_warm(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm parent, which is root's, would import what that user's interpreter names."""
    data, planned = place / "data", list[str]()
    data.mkdir(mode=0o700)

    def plan(argv: list[str], env: dict[str, str], cwd: str, readable_path: Any) -> None:
        planned.append(env["ROWLOCK_POD_UID"])

    monkeypatch.setattr(eligibility, "plan_warm_start", plan)

    async def body(node: Node) -> None:
        await node.add(pod("own", "true"), as_nobody("other", "true"))
        await node.ended("own", "other")
        assert planned == [node.pod("own")["metadata"]["uid"]]

    on_node(data, body)


@pytest.mark.parametrize(
    "covered", [os.path.dirname(os.__file__), os.path.dirname(fact_files.__file__)], ids=["python", "rowlock"]
)
def test_a_volume_over_modules_of_ours_is_imported_by_nobody_as_root(place: Path, covered: str) -> None:
    """What enters a container before its user changes has imported all that it needs: also to tell what cannot be done."""
    code = f"import os\nopen({str(place / 'by-root')!r}, 'w').close()  # MARK\n"
    names = [*(name for name in sys.stdlib_module_names if not name.startswith("_")), "fact_files", "netns", "stdio"]

    async def body(node: Node) -> None:
        made = {"metadata": {"name": "planted", "namespace": "default"}, "data": {f"{name}.py": code for name in names}}
        await node.store.create(kinds.CONFIG_MAP, made)
        over = {"volumeMounts": [{"name": "v", "mountPath": covered}]}
        hook = {"exec": {"command": ["true"]}}
        pods = {
            "runs": as_nobody("runs", "sleep 1", **over, lifecycle={"postStart": hook}),
            "missing": as_nobody("missing", "", **over, command=["/no/such/program"]),
            "closed": as_nobody("closed", "", **over, workingDir="/root/closed"),
            "control": pod("control", f"grep -q MARK {covered}/netns.py && touch {place}/by-itself", container=over),
        }  # fmt: skip
        for one in pods.values():
            one["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "planted"}}]
            await node.add(one)
        await node.ended(*pods)
        assert (place / "by-itself").exists(), await node.log("control")
        assert not (place / "by-root").exists()

    on_node(place / "data", body)
