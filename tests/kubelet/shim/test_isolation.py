"""A pod has processes, IPC and /dev/shm of its own, and ends as a container does: its first process is asked alone."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import WAY, Node, on_node, pod, until
from tests.processes import running

from rowlock import kinds
from rowlock.api import DeleteOptions
from rowlock.kubelet.mounts import pod_ipc
from rowlock.kubelet.node.node_context import PodHostAbilities
from rowlock.kubelet.worker import kubelet
from rowlock.kubelet.worker.kubelet import connect_pod_host
from rowlock.objects import dig

PROBLEM = pod_ipc.probe_isolation()
pytestmark = pytest.mark.skipif(bool(PROBLEM), reason=f"pods cannot be kept apart here: {PROBLEM}")

SAVES = """
import os, signal, subprocess, sys, time
helper = subprocess.Popen(["sleep", "600"])
def save(*_):
    try:
        helper.wait(0.5)
    except subprocess.TimeoutExpired:
        pass
    open(sys.argv[1] + ".new", "w").write(f"helper alive while saving: {helper.poll() is None}")
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
open(sys.argv[2], "w").close()
while True:
    time.sleep(60)
"""


@pytest.mark.parametrize(
    "through", [(), ("sh", "-c", '"$0" "$@"; echo after'), ("bash", "-c", '(bash -c \'"$0" "$@"; :\' "$0" "$@"); :')]
)
def test_only_the_first_process_is_asked_to_end(tmp_path: Path, through: tuple[str, ...]) -> None:
    """Where that is a shell, or a shell below one, which do not pass the signal on, what they had started is asked."""

    async def body(node: Node) -> None:
        saved, ready = tmp_path / "saved", tmp_path / "ready"
        program = ["python3", "-c", SAVES, str(saved), str(ready)]
        await node.add(pod("a", "", container={"command": [*through, *program]}))
        await until(ready.exists)
        await node.delete("a", DeleteOptions(grace=20))
        assert saved.read_text() == "helper alive while saving: True"

    on_node(tmp_path, body)


def test_what_a_shell_leaves_behind_is_asked_too_and_gets_the_rest_of_the_grace(tmp_path: Path) -> None:
    """On a cluster the shell is process 1 and ignores the signal: nobody asks the program before it is killed."""
    saved, ready = tmp_path / "saved", tmp_path / "ready"
    program = f"trap 'echo saved > {saved}; exit 0' TERM; echo > {ready}; while :; do sleep 0.1; done"

    async def body(node: Node) -> None:
        await node.add(pod("a", f'sh -c "{program}"; echo not reached'))
        await until(ready.exists)
        await node.delete("a", DeleteOptions(grace=20))
        assert saved.read_text() == "saved\n"
        await until(lambda: "SignalNotPassedOn" in [reason for _, reason, _ in node.events("a")])

    on_node(tmp_path, body)


def test_a_container_is_asked_by_the_signal_that_it_names(tmp_path: Path) -> None:
    saved, ready = tmp_path / "saved", tmp_path / "ready"
    program = f"trap 'echo saved > {saved}; exit 0' USR1; echo > {ready}; while :; do sleep 0.1; done"

    async def body(node: Node) -> None:
        named = {"lifecycle": {"stopSignal": "SIGUSR1"}}
        made = pod("a", program, container=named, spec={"os": {"name": "linux"}})
        await node.add(made)
        await until(ready.exists)
        await node.delete("a", DeleteOptions(grace=60))
        assert saved.read_text() == "saved\n"

    on_node(tmp_path, body)


def test_what_a_pipe_leads_to_is_asked_after_the_program_that_saves(tmp_path: Path) -> None:
    """A `tee` that died first would break the pipe that the program writes to while it saves."""
    saved = tmp_path / "saved"
    save = f"trap 'echo saving; sleep 0.3; echo on; echo saved > {saved}; exit 0' TERM"
    program = f"{save}; echo begun; while :; do sleep 0.1; done"

    async def body(node: Node) -> None:
        await node.add(pod("a", f'bash -c "{program}" 2>&1 | tee log; echo not reached'))
        await node.phase("a", "Running")
        await node.said("a", "begun")  # by tee: before it runs, nobody reads the pipe
        await node.delete("a", DeleteOptions(grace=20))
        assert saved.read_text() == "saved\n"

    on_node(tmp_path, body)


def test_a_program_without_a_handler_ends_at_once_and_may_kill_itself(tmp_path: Path) -> None:
    """It is not process 1, which the kernel shields from signals without a handler."""

    async def body(node: Node) -> None:
        await node.add(
            pod("asleep", "", container={"command": ["sleep", "600"]}),
            pod("killed", "kill -9 $$$$"),
            pod("aborted", "", container={"command": ["python3", "-c", "import os; os.abort()"]}),
        )
        await node.phase("asleep", "Running")
        await node.delete("asleep", DeleteOptions(grace=600))
        await node.ended("killed", "aborted")
        assert [node.state(name, "state.terminated.exitCode") for name in ("killed", "aborted")] == [137, 134]

    on_node(tmp_path, body)


LOOK = """
import ctypes, json, os, sys, time
from multiprocessing import shared_memory
commands = [open(f"/proc/{p}/cmdline").read() for p in os.listdir("/proc") if p.isdigit()]
try:
    shared_memory.SharedMemory("one_name", create=True, size=64)
    made = True
except FileExistsError:
    made = False
queue = ctypes.CDLL(None).msgget(4711, 0o3600)  # IPC_CREAT | IPC_EXCL
disk = os.statvfs("/dev/shm")
look = {"parent": os.getppid(), "sleeping": sum("sleep\\0" in c for c in commands), "made": made, "queue": queue >= 0}
with open(sys.argv[1] + ".new", "w") as file:
    json.dump(look | {"mebibytes": disk.f_blocks * disk.f_frsize >> 20, "pid": os.getpid()}, file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""


def test_two_pods_never_meet(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        looks = [tmp_path / "look-a", tmp_path / "look-b"]
        await node.add(pod("other", "sleep 602"))
        await node.phase("other", "Running")
        await node.add(*(pod(p.name, "", container={"command": ["python3", "-c", LOOK, str(p)]}) for p in looks))
        pids = set()
        for look in looks:
            await until(look.exists)
            seen = json.loads(look.read_text())
            pids.add(seen.pop("pid"))
            assert seen == {"parent": 1, "sleeping": 0, "made": True, "queue": True, "mebibytes": 64}
        assert len(pids) == 2, "two daemons of mpirun would share /tmp/prted.PID"

    on_node(tmp_path, body)


def test_containers_of_a_pod_share_ipc_and_memory(tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    async def body(node: Node) -> None:
        wanted = pod("a", "ipcmk -Q; echo here > /dev/shm/word; sleep 600")
        look = f"until test -s /dev/shm/word; do sleep 0.05; done; cat /dev/shm/word > {seen}; ipcs -q >> {seen}"
        first = wanted["spec"]["containers"][0]
        wanted["spec"]["containers"].append(first | {"name": "side", "command": ["sh", "-c", look]})
        await node.add(wanted)
        await until(lambda: seen.exists() and "0x" in seen.read_text(), "the queue of the other container")
        assert seen.read_text().startswith("here")

    on_node(tmp_path, body)


@pytest.mark.skipif(
    os.geteuid() != 0, reason="pod hosts of other users than root cannot give the machine's IPC namespace"
)
def test_pods_that_ask_for_the_machines_namespaces_have_them(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        wanted = pod("a", "readlink /proc/self/ns/pid /proc/self/ns/ipc")
        wanted["spec"] |= {"hostPID": True, "hostIPC": True}
        await node.add(wanted)
        await node.ended("a")
        assert (await node.log("a")).split() == [os.readlink(f"/proc/self/ns/{name}") for name in ("pid", "ipc")]

    on_node(tmp_path, body)


def test_a_pod_that_kills_everything_kills_itself_alone(tmp_path: Path) -> None:
    mark = f"603.{os.getpid()}"

    async def body(node: Node) -> None:
        await node.add(pod("stays", "", container={"command": ["sleep", mark]}))
        await until(lambda: running("sleep", mark))
        await node.add(
            pod("rages", "", container={"command": ["python3", "-c", "import os; os.kill(-1, 9); os.kill(1, 9)"]})
        )
        await node.ended("rages")
        assert running("sleep", mark) and node.state("stays", "state.running")

    on_node(tmp_path, body)


def test_kill_1_ends_the_container(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "kill 1; sleep 600"))
        await node.ended("a")
        assert node.state("a", "state.terminated.exitCode") == 143

    on_node(tmp_path, body)


ORPHANS = """
import os
for _ in range(20):
    child = os.fork()
    if child == 0:
        if os.fork():
            os._exit(0)  # what it has started is nobody's now
        os._exit(0)
    os.waitpid(child, 0)
print("all begun", flush=True)
while [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in (1, os.getpid())]:
    pass
"""


def test_what_has_lost_its_parent_is_reaped(tmp_path: Path) -> None:
    """Process 1 of a container does that; else such processes would stay as zombies for as long as the pod runs."""

    async def body(node: Node) -> None:
        await node.add(pod("a", "", container={"command": ["python3", "-c", ORPHANS]}))
        await node.ended("a")
        assert await node.log("a") == "all begun\n"
        assert node.state("a", "state.terminated.exitCode") == 0

    on_node(tmp_path, body)


REFUSAL = "a PID namespace cannot be made: Operation not permitted"


def test_what_the_kernel_refuses_is_said_by_the_node_and_to_each_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(*told: Any) -> PodHostAbilities:
        return replace(await connect_pod_host(*told), process_problem=REFUSAL)

    async def body(node: Node) -> None:
        (stored,) = node.store.view.all(kinds.NODE)
        said = stored["metadata"]["annotations"]["rowlock.dev/processes"]
        assert said == f"shared: pods see each other's processes, IPC and /dev/shm ({REFUSAL})"
        await node.add(pod("a", "readlink /proc/self/ns/pid"))
        await node.ended("a")
        assert (await node.log("a")).strip() == os.readlink("/proc/self/ns/pid")
        sentence = f"the pod sees processes, IPC and /dev/shm of others: {REFUSAL}"
        await until(lambda: ("Normal", "NotIsolated", sentence) in node.events("a"), lambda: str(node.events("a")))

    monkeypatch.setattr(kubelet, "connect_pod_host", connect)
    on_node(tmp_path, body)


LIST_PROCESSES = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $$p/cmdline; echo; done"


async def debug(node: Node, name: str, **more: Any) -> None:
    """Adds the ephemeral container `look`, which lists the processes that it sees, as `kubectl debug` does."""
    container = {"name": "look", "image": WAY.image, "command": ["sh", "-c", LIST_PROCESSES], **more}
    await node.store.patch(
        kinds.POD, "default", name, {"spec": {"ephemeralContainers": [container]}}, subresource="ephemeralcontainers"
    )


@pytest.mark.parametrize(
    ("spec", "more"),
    [({}, {"targetContainerName": "main"}), ({"shareProcessNamespace": True}, {})],
    ids=["its target's", "those of a pod that shares them"],
)
def test_an_ephemeral_container_sees_the_processes_of_its_pod_alone(
    tmp_path: Path, spec: dict[str, Any], more: dict[str, str]
) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("other", "sleep 4713; true"), pod("a", "sleep 4712; true", spec=spec))
        await node.phase("a", "Running")
        await node.phase("other", "Running")
        await debug(node, "a", **more)
        await until(lambda: dig(node.pod("a"), "status.ephemeralContainerStatuses") is not None)

        def ended() -> Any:
            return dig(node.pod("a"), "status.ephemeralContainerStatuses")[0]["state"].get("terminated")

        await until(ended, "the ephemeral container to end")
        assert ended()["exitCode"] == 0
        said = await node.log("a", container="look")
        assert "sleep 4712" in said and "sleep 4713" not in said
        assert node.state("a", "state.running") and node.state("a", "restartCount") == 0
        await node.delete("a", DeleteOptions(grace=0))

    on_node(tmp_path, body)


def test_a_pod_that_shares_processes_and_has_one_container_sees_its_own_alone(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("other", "sleep 4714; true"))
        await node.phase("other", "Running")
        await node.add(pod("a", LIST_PROCESSES, spec={"shareProcessNamespace": True}))
        await node.ended("a")
        assert "4714" not in await node.log("a") and "/proc/[0-9]" in await node.log("a")
        assert "shareProcessNamespace" not in str(node.events("a"))

    on_node(tmp_path, body)


def test_containers_that_share_processes_see_those_of_their_pod_alone(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("other", "sleep 4715; true"))
        await node.phase("other", "Running")
        kill = "until pkill -xf 'sleep 4716'; do sleep 0.05; done; "
        look = {"name": "look", "image": WAY.image, "command": ["sh", "-c", kill + LIST_PROCESSES]}
        made = pod("a", "(sleep 4717 &) ; sleep 4716 || echo ended by $?", spec={"shareProcessNamespace": True})
        made["spec"]["containers"].append(look)
        await node.add(made)
        await node.ended("a")
        said = await node.log("a", container="look")
        assert "sleep 4717" in said and "4715" not in said
        assert "ended by 143" in await node.log("a", container="main")
        assert "shareProcessNamespace" not in str(node.events("a"))
        await node.delete("a", DeleteOptions(grace=0))
        await until(lambda: not running("sleep", "4717"), "what it left behind to be killed with the pod")

    on_node(tmp_path, body)


def test_containers_share_processes_after_a_restart_of_one_and_of_the_server(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        once = "until pgrep -xf 'sleep 4718'; do sleep 0.05; done; echo seen; test -e $D/again || { touch $D/again; exit 3; }; sleep 600"
        again = {"name": "again", "image": WAY.image, "command": ["sh", "-c", once.replace("$D", str(tmp_path))]}
        made = pod("a", "sleep 4718; true", spec={"shareProcessNamespace": True, "restartPolicy": "OnFailure"})
        made["spec"]["containers"].append(again)
        await node.add(made)
        await until(lambda: [s.get("restartCount") for s in node.pod("a")["status"].get("containerStatuses", ()) if s["name"] == "again"] == [1])  # fmt: skip
        await until_async_log(node, "a", "again", "seen")
        await node.stop()
        await node.start()
        await debug(node, "a")
        await until(lambda: dig(node.pod("a"), "status.ephemeralContainerStatuses") is not None)
        await until(lambda: dig(node.pod("a"), "status.ephemeralContainerStatuses")[0]["state"].get("terminated"))
        assert "sleep 4718" in await node.log("a", container="look")
        await node.delete("a", DeleteOptions(grace=0))

    on_node(tmp_path, body)


async def until_async_log(node: Node, name: str, container: str, wanted: str) -> None:
    async with asyncio.timeout(200):
        while wanted not in await node.log(name, container=container):
            await asyncio.sleep(0.05)
