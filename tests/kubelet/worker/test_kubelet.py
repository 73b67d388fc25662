"""Pods as processes, end to end: store, kubelet, pod host, shims, programs."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kubelet.conftest import WAY, Node, on_node, pod, remove_pod, shim_request, until
from tests.processes import running

from rowlock import kinds
from rowlock.api import Change, DeleteOptions, LogOptions
from rowlock.errors import BadRequest, NotFound
from rowlock.kubelet.images.images import Image
from rowlock.kubelet.node.registration import LEASE_NAMESPACE, lease_object
from rowlock.kubelet.pod.directory import PodCard, PodDirectories
from rowlock.kubelet.runtime.pod_host_client import PodHostClient
from rowlock.kubelet.runtime.processes import read_run
from rowlock.kubelet.shim import container_init
from rowlock.objects import Object, is_condition_true, micro_timestamp
from rowlock.scheduling.model import from_objects
from rowlock.scheduling.model import snapshot as scheduling

CHILD = f"300.{os.getpid()}"
GREEDY = f"trap '' TERM; sleep {CHILD} & echo ready; while true; do sleep 300; done"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_healthy_pod_takes_two_status_writes_and_says_all(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        go = tmp_path / "go"
        await node.add(
            pod("a", f"echo out; echo err >&2; until test -e {go}; do sleep 0.02; done; printf 'no newline'")
        )
        await node.phase("a", "Running")
        assert is_condition_true(node.pod("a"), "Ready") and node.state("a", "state.running")
        go.touch()
        await node.ended("a")
        status = node.pod("a")["status"]
        assert status["phase"] == "Succeeded" and node.state("a", "state.terminated.reason") == "Completed"
        assert await node.log("a") == "out\nerr\nno newline"
        await until(lambda: len(node.events("a")) == 3)
        assert [(r, m) for _, r, m in sorted(node.events("a"), key=lambda e: "PulledCreatedStarted".index(e[1]))] == [
            ("Pulled", 'Container image "rowlock.dev/host" already present on machine'),
            ("Created", "Created container: main"),
            ("Started", "Started container main"),
        ]
        assert int(node.pod("a")["metadata"]["resourceVersion"]) > 0

    on_node(tmp_path, body)


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("exit 3", 3, "Error"),
        ("kill -9 $$$$", 137, "Error"),
        ("kill -15 $$$$", 143, "Error"),
        ("exit 0", 0, "Completed"),
    ],
)
def test_exit_codes(tmp_path: Path, script: str, code: int, reason: str) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", script))
        await node.ended("a")
        ended = node.state("a", "state.terminated")
        assert (ended["exitCode"], ended["reason"]) == (code, reason)

    on_node(tmp_path, body)


def test_a_program_that_is_not_there_is_a_start_error(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "", container={"command": ["no-such-program"]}))
        await node.ended("a")
        ended = node.state("a", "state.terminated")
        assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
        assert ended["message"] == 'exec: "no-such-program": executable file not found in $PATH'
        await until(lambda: ("Warning", "Failed", f"Error: {ended['message']}") in node.events("a"))

    on_node(tmp_path, body)


def test_a_crash_is_restarted_at_once_then_backed_off_with_its_previous_log(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        script = (
            "n=$(cat n 2>/dev/null || echo 0); echo attempt $n; echo $((n+1)) > n; test $n -ge 3 || exit 3; sleep 60"
        )
        await node.add(pod("a", script, policy="OnFailure"))
        await until(lambda: node.state("a", "restartCount") == 3 and node.state("a", "state.running"))
        assert node.state("a", "lastState.terminated.exitCode") == 3
        await node.said("a", "attempt 3\n")
        assert await node.log("a", previous=True) == "attempt 2\n"
        kept = os.listdir(tmp_path / "pods" / node.pod("a")["metadata"]["uid"] / "main")
        assert {name.split(".")[1] for name in kept} == {"2", "3"}, kept
        assert node.pod("a")["status"]["phase"] == "Running"
        await node.delete("a", DeleteOptions(grace=0))

    on_node(tmp_path, body)


def test_the_whole_tree_is_killed_when_the_grace_is_over(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", GREEDY))
        await node.phase("a", "Running")
        await until(lambda: running("sleep", CHILD))
        await node.delete("a", DeleteOptions(grace=1))
        await until(lambda: not running("sleep", CHILD))
        await until(lambda: ("Normal", "Killing", "Stopping container main") in node.events("a"))

    on_node(tmp_path, body)


def test_what_a_program_leaves_running_ends_with_it(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", f"setsid sh -c 'echo > left; exec sleep {CHILD}' & while ! test -s left; do :; done"))
        await node.ended("a")
        assert not running("sleep", CHILD)

    on_node(tmp_path, body)


def test_unknown_images_wait_with_the_line_that_helps_and_start_when_it_was_typed(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(
            pod("a", "echo now", container={"image": "team/x:1"}),
            pod("b", "true", container={"image": "UPPER/Case:1"}),
            pod("c", "true", container={"image": "team/x:1", "imagePullPolicy": "Never"}),
        )
        await until(lambda: node.state("a", "state.waiting.reason") in ("ErrImagePull", "ImagePullBackOff"))
        assert "`rowlock image add team/x:1 --host`" in node.state("a", "state.waiting.message")
        await until(lambda: node.state("b", "state.waiting.reason") == "InvalidImageName")
        await until(lambda: node.state("c", "state.waiting.reason") == "ErrImageNeverPull")
        assert 'Container image "team/x:1" is not present with pull policy of Never' == node.state(
            "c", "state.waiting.message"
        )
        assert node.pod("a")["status"]["phase"] == "Pending"
        with pytest.raises(BadRequest, match='container "main" in pod "b" is waiting to start: InvalidImageName'):
            await node.log("b")
        node.kubelet.engine_images.images.add(Image("team/x:1", host=True))
        await node.ended("a")
        assert await node.log("a") == "now\n"

    on_node(tmp_path, body)


def test_missing_config_maps_wait_and_found_ones_are_in_the_environment(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "echo $LR $HOSTNAME", container={"envFrom": [{"configMapRef": {"name": "settings"}}]}))
        await until(lambda: node.state("a", "state.waiting.reason") == "CreateContainerConfigError")
        assert node.state("a", "state.waiting.message") == 'configmap "settings" not found'
        meta = {"name": "settings", "namespace": "default"}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"LR": "0.1"}}
        await node.store.create(kinds.CONFIG_MAP, config)
        await node.ended("a")
        assert await node.log("a") == "0.1 a\n"

    on_node(tmp_path, body)


def test_init_containers_run_one_after_the_other(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        init = [
            {"name": n, "image": WAY.image, "command": ["sh", "-c", f"echo {n} >> order; echo {n} done"]}
            for n in ("first", "second")
        ]
        await node.add(pod("a", "cat order", spec={"initContainers": init}))
        await node.ended("a")
        assert await node.log("a") == "first\nsecond\n" and await node.log("a", container="second") == "second done\n"
        bad = [{"name": "setup", "image": WAY.image, "command": ["sh", "-c", "exit 2"]}]
        await node.add(pod("b", "echo never", spec={"initContainers": bad}))
        await node.phase("b", "Failed")
        with pytest.raises(BadRequest, match="PodInitializing"):
            await node.log("b")

    on_node(tmp_path, body)


def test_the_operators_init_container_waits_for_the_master(tmp_path: Path) -> None:
    lookup = (
        "err=1;for i in $(seq 100); do if nslookup m-0; then err=0 && break; fi;echo waiting; sleep 2; done; exit $err"
    )
    init = [{"name": "init-pytorch", "image": "alpine:3.10", "command": ["sh", "-c", lookup]}]

    async def body(node: Node) -> None:
        await node.add(pod("w-0", "echo worker", spec={"initContainers": init}))
        await until(lambda: node.pod("w-0").get("status", {}).get("initContainerStatuses"))
        assert node.pod("w-0")["status"]["phase"] == "Pending"
        await node.add(pod("m-0", "echo master; sleep 60"))
        await node.ended("w-0")
        done = node.pod("w-0")["status"]["initContainerStatuses"][0]["state"]["terminated"]
        assert done["exitCode"] == 0 and await node.log("w-0") == "worker\n"
        await node.delete("m-0", DeleteOptions(grace=0))

    on_node(tmp_path, body)


def test_a_restart_changes_nothing_of_a_worker_whose_master_was_found(tmp_path: Path) -> None:
    """The end of the operator's init container is in no file: after a restart the status has it."""
    init = [
        {
            "name": "init-pytorch",
            "image": "alpine:3.10",
            "command": ["sh", "-c", "until nslookup m-0; do sleep 2; done"],
        }
    ]

    async def body(node: Node) -> None:
        await node.add(pod("m-0", "sleep 0.2"), pod("w-0", "echo worker", spec={"initContainers": init}))
        await node.ended("m-0", "w-0")
        before = node.pod("w-0")
        await node.stop()
        await asyncio.sleep(1.1)  # times in a status are whole seconds
        await node.start()
        state = node.kubelet.pod_states[before["metadata"]["uid"]]
        await until(lambda: state.finished)
        assert node.pod("w-0")["status"] == before["status"]

    on_node(tmp_path, body)


@pytest.mark.parametrize("is_renewed", [True, False])
def test_the_end_of_a_pod_is_told_again_unless_the_server_before_lived_on(tmp_path: Path, is_renewed: bool) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "echo done"))
        await node.ended("a")
        await node.stop()
        if is_renewed:
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
            await node.store.create(kinds.NAMESPACE, space)
            node_object = node.store.view.get(kinds.NODE, "", node.name) or {}
            lease = lease_object(node_object, node.name, micro_timestamp(time.time() + 60.0))
            await node.store.create(kinds.LEASE, lease)
        told: list[str] = []
        await node.start()
        node.kubelet.exit_listeners.append(lambda pod_state, container, run: told.append(container))
        state = node.kubelet.pod_states[node.pod("a")["metadata"]["uid"]]
        await until(lambda: state.finished)
        assert told == ([] if is_renewed else ["main"])

    on_node(tmp_path, body)


def test_a_pod_that_is_made_anew_has_the_log_of_the_last_one_of_its_job(tmp_path: Path) -> None:
    def made_by(job: str, script: str) -> Object:
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": job, "controller": True}
        return pod("a", script, ownerReferences=[owner])

    async def body(node: Node) -> None:
        async def read(job: str) -> bytes:
            options = LogOptions(previous=True, owner=job)
            return b"".join([p async for p in node.kubelet.logs.read_log("default", "a", options)])

        for number in (1, 2):
            await node.add(made_by("job-1", f"echo run {number}; sleep {number - 1}0"))
            await node.phase("a", "Running", "Succeeded")
            await until(lambda: node.state("a", "state.running") or node.state("a", "state.terminated"))
            if number == 1:
                await node.ended("a")
                await node.delete("a")
                await until(lambda: not list((tmp_path / "pods").iterdir()))
        assert await read("job-1") == b"run 1\n"
        for stranger in ("job-2", ""):
            with pytest.raises((BadRequest, NotFound)):
                await read(stranger)
        await node.delete("a", DeleteOptions(grace=0))

    on_node(tmp_path, body)


def test_logs_follow_to_the_end_and_survive_the_pod(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "for i in 1 2 3; do echo tick $i; sleep 0.1; done; exit 7"))
        await node.phase("a", "Running", "Failed")
        assert await node.log("a", follow=True) == "tick 1\ntick 2\ntick 3\n"
        await node.ended("a")
        await node.delete("a")
        await until(lambda: not list((tmp_path / "pods").iterdir()))
        kept = [p async for p in node.kubelet.logs.read_log("default", "a")]
        assert b"".join(kept) == b"tick 1\ntick 2\ntick 3\n"
        with pytest.raises(NotFound):
            [p async for p in node.kubelet.logs.read_log("default", "nobody")]

    on_node(tmp_path, body)


SPEAKS = "echo line 1; until test -e {go}; do sleep 0.02; done; for i in 2 3 4 5; do echo line $i; sleep 0.05; done"


def test_a_server_that_goes_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        go = tmp_path / "go"
        await node.add(
            pod("ends", SPEAKS.format(go=go) + "; exit 5"),
            pod("lives", "while true; do echo tick; sleep 0.05; done"),
            pod("deleted", GREEDY),
        )
        for name in ("ends", "lives", "deleted"):
            await node.phase(name, "Running")
        shim = _start(tmp_path, node, "lives")["shim"]
        await node.store.delete(kinds.POD, "default", "deleted", options=DeleteOptions(grace=1))
        await node.stop()
        go.touch()
        await until(lambda: list(tmp_path.glob(f"pods/{node.pod('ends')['metadata']['uid']}/main/exit.0")))
        await node.start()
        await node.ended("ends")
        assert node.state("ends", "state.terminated.exitCode") == 5
        assert await node.log("ends") == "".join(f"line {i}\n" for i in range(1, 6))
        assert _start(tmp_path, node, "lives")["shim"] == shim and node.state("lives", "restartCount") == 0
        await until(lambda: not node.pod("deleted"))
        await node.delete("lives", DeleteOptions(grace=0))

    on_node(tmp_path, body)


def _start(data: Path, node: Node, name: str) -> dict[str, int]:
    uid = node.pod(name)["metadata"]["uid"]
    return dict(json.loads((data / "pods" / uid / "main" / "start.0").read_text()))


def test_pods_outlive_the_pod_host_and_get_a_new_one(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        go = tmp_path / "go"
        await node.add(pod("a", f"until test -e {go}; do sleep 0.02; done; echo alive; exit 4"))
        await node.phase("a", "Running")
        old = node.kubelet.host.hello["pid"]
        os.kill(old, signal.SIGKILL)
        await node.add(pod("b", "echo new"))
        await node.ended("b")
        go.touch()
        await node.ended("a")
        assert node.state("a", "state.terminated.exitCode") == 4 and await node.log("b") == "new\n"
        assert node.kubelet.host.hello["pid"] != old

    on_node(tmp_path, body)


def test_a_killed_shim_takes_its_program_along_and_is_reported(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", f"sleep {CHILD} & sleep 300"))
        await node.phase("a", "Running")
        facts = _start(tmp_path, node, "a")
        await until(lambda: running("sleep", CHILD))
        os.kill(facts["shim"], signal.SIGKILL)
        await node.ended("a")
        assert node.state("a", "state.terminated.exitCode") == 137
        assert node.state("a", "state.terminated.reason") == "ContainerStatusUnknown"
        await until(lambda: not alive(facts["pid"]) and not running("sleep", CHILD))

    on_node(tmp_path, body)


def test_a_shim_that_dies_before_it_claims_its_start_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, dead = PodHostClient.ask, subprocess.Popen(["true"])
    dead.wait()
    starts: list[int] = []

    async def first_time_dead(host: PodHostClient, op: str, **fields: Any) -> dict[str, Any]:
        if op == "start":
            starts.append(fields["request"]["number"])
            if len(starts) == 1:
                return {"shim": dead.pid, "cold": ""}
        return await ask(host, op, **fields)

    async def body(node: Node) -> None:
        monkeypatch.setattr(PodHostClient, "ask", first_time_dead)
        await node.add(pod("a", "echo hello"))
        await node.ended("a")
        assert (starts, await node.log("a")) == ([0, 0], "hello\n")

    on_node(tmp_path, body, sweep=0.05)


def test_a_claim_comes_to_be_with_the_shims_name_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet looks at any moment; a claim of nobody it would take for a lost shim's, and kill the program."""
    made = container_init.ContainerInit(shim_request(tmp_path, ["true"]), -1, lambda request: "")
    seen: list[Any] = []

    def ticks(pid: int) -> int:
        seen.append(read_run(tmp_path, 0))
        return 7

    monkeypatch.setattr(container_init, "ticks", ticks)
    assert made._claim_run()
    assert seen == [None], "nothing is there while the name is made"
    run = read_run(tmp_path, 0)
    assert run is not None and (run.shim, run.shim_ticks) == (os.getpid(), 7), "the shim made it"
    assert not made._claim_run(), "the second is told so"
    assert sorted(os.listdir(tmp_path)) == ["claim.0", "start.0"]


def test_what_a_program_put_in_the_place_of_a_later_claim_goes(tmp_path: Path) -> None:
    (tmp_path / "claim.0" / "full").mkdir(parents=True)
    assert container_init.ContainerInit(shim_request(tmp_path, ["true"]), -1, lambda request: "")._claim_run()
    assert (tmp_path / "claim.0").is_file()


def test_pods_that_vanished_from_the_store_are_killed(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "sleep 300"))
        await node.phase("a", "Running")
        facts = _start(tmp_path, node, "a")
        await node.stop()
        await node.store.delete(kinds.POD, "default", "a", options=DeleteOptions(grace=0))
        await node.start()
        await until(lambda: not alive(facts["pid"]), "the program to be killed")
        left = [directory for directory, *_ in os.walk(tmp_path / "pods")]  # rglob fails where one goes meanwhile
        await until(lambda: not list((tmp_path / "pods").iterdir()), f"the directory to go: {left}")

    on_node(tmp_path, body)


def test_a_shim_noticed_while_its_directory_goes_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half removed, a run looks like one whose shim died without a word: its end must not be written once more."""
    retire, seen = PodDirectories.retire, []

    async def body(node: Node) -> None:
        loop = asyncio.get_running_loop()

        async def notice(uid: str) -> None:
            node.kubelet.pod_workers.refresh_container(uid, "main")

        def slowly(self: PodDirectories, card: PodCard) -> bool:
            end = self.container_directory(card.uid, "main") / "exit.0"
            shim = json.loads((end.parent / "start.0").read_bytes())["shim"]
            while alive(shim):
                os.sched_yield()
            end.unlink()
            asyncio.run_coroutine_threadsafe(notice(card.uid), loop).result()
            seen.append(end.exists())
            return retire(self, card)

        monkeypatch.setattr(PodDirectories, "retire", slowly)
        await node.add(pod("a", "true"))
        await node.ended("a")
        await node.delete("a")
        await until(lambda: seen == [False], f"the directory to go without a new end: {seen}")
        await until(lambda: not list((tmp_path / "pods").iterdir()), "the directory to go")

    on_node(tmp_path, body)


def test_a_change_from_before_a_pods_end_that_comes_late_brings_nothing_back(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "true"))
        await node.ended("a")
        before = node.pod("a")
        await node.delete("a")
        await until(lambda: not list((tmp_path / "pods").iterdir()), "the directory to go")
        node.kubelet.pod_workers.handle_change(Change("Modified", 0, kinds.POD, before))
        assert not list((tmp_path / "pods").iterdir())
        assert before["metadata"]["uid"] not in node.kubelet.pod_states

    on_node(tmp_path, body)


def test_active_deadline(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "sleep 300", spec={"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1}))
        await node.phase("a", "Failed")
        assert node.pod("a")["status"]["reason"] == "DeadlineExceeded"

    on_node(tmp_path, body)


def test_devices_are_the_schedulers_choice_or_free_ones(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        script = "echo [$CUDA_VISIBLE_DEVICES] [$ROWLOCK_SIMULATED_GPU]"
        chosen = pod("a", script, container=gpu, annotations={"rowlock.dev/devices": "1"})
        await node.add(chosen, pod("b", script, container=gpu), pod("c", script))
        await node.ended("a", "b", "c")
        assert (
            await node.log("a") == "[] [1]\n" and await node.log("b") == "[] [0]\n" and await node.log("c") == "[] []\n"
        )
        found = node.store.view.get(kinds.NODE, "", node.name) or {}
        assert found["status"]["capacity"]["nvidia.com/gpu"] == "2"
        assert found["metadata"]["annotations"]["rowlock.dev/simulated-gpus"] == "true"

    on_node(tmp_path, body, simulated_gpus=2)


def test_two_hundred_pods(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(*(pod(f"p{i}", f"echo {i}") for i in range(200)))
        await node.ended(*(f"p{i}" for i in range(200)))
        assert await node.log("p199") == "199\n"
        assert all(node.pod(f"p{i}")["status"]["phase"] == "Succeeded" for i in range(200))

    on_node(tmp_path, body)


def test_a_hundred_followers_see_every_line(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        go = tmp_path / "go"
        await node.add(pod("a", SPEAKS.format(go=go)))
        await node.phase("a", "Running")
        following = [asyncio.create_task(node.log("a", follow=True)) for _ in range(100)]
        await node.said("a", "line 1")
        go.touch()
        texts = await asyncio.gather(*following)
        assert set(texts) == {"".join(f"line {i}\n" for i in range(1, 6))}

    on_node(tmp_path, body)


def test_nodes_that_are_not_wanted_any_more_go(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        first = node.name
        await node.add(pod("a", "sleep 300"))
        await node.phase("a", "Running")
        await node.stop()
        node.settings = replace(node.settings, nodes=1, node_name="one")
        await node.start()
        assert (node.store.view.get(kinds.NODE, "", f"{first}") or {})["spec"]["unschedulable"]
        assert node.store.view.get(kinds.NODE, "", first[:-1] + "1") is None
        assert node.store.view.get(kinds.NODE, "", "one")
        await node.delete("a", DeleteOptions(grace=0))

    on_node(tmp_path, body, nodes=2)


@pytest.mark.parametrize("cordoned", [False, True])
def test_a_node_that_is_wanted_again_is_open_as_it_was(tmp_path: Path, cordoned: bool) -> None:
    async def body(node: Node) -> None:
        def found() -> scheduling.Node:
            return from_objects.parse_node(node.store.view.get(kinds.NODE, "", first) or {})

        first, settings = node.name, node.settings
        await node.add(pod("a", "true"))
        await node.ended("a")
        if cordoned:
            await node.store.patch(kinds.NODE, "", first, {"spec": {"unschedulable": True}})
        for _ in range(2):
            await node.stop()
            node.settings = replace(settings, nodes=1, node_name="one")
            await node.start()
            assert found().unschedulable and found().retired
        await node.stop()
        node.settings = settings
        await node.start()
        assert found().unschedulable is cordoned and not found().retired
        assert node.store.view.get(kinds.NODE, "", "one") is None

    on_node(tmp_path, body, nodes=2)


def test_a_noisy_pod_keeps_the_newest_of_its_log_and_says_its_last_line(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        noise = "yes 'a line of output as programs write them, some words' | head -c 12000000; echo; echo last"
        await node.add(pod("a", noise), pod("b", "echo quiet"))
        await node.ended("a", "b")
        log = tmp_path / "pods" / node.pod("a")["metadata"]["uid"] / "main" / "log.0"
        assert log.stat().st_blocks * 512 <= (2 << 20) + (128 << 10)
        assert (await node.log("a", tail=1)) == "last\n" and await node.log("b") == "quiet\n"

    on_node(tmp_path, body, log_limit=2 << 20)


def test_a_directory_goes_even_while_something_writes_into_it(tmp_path: Path) -> None:
    directories = PodDirectories(tmp_path)
    card = PodCard("default", "a", "u", "n", "", 0.0)
    directories.write_card(card)
    writing = threading.Event()

    def write() -> None:
        for number in range(200):
            with contextlib.suppress(OSError):
                (directories.pod_directory("u") / f"file-{number}").touch()
            writing.set()

    writer = threading.Thread(target=write)
    writer.start()
    writing.wait()
    remove_pod(directories, card)
    writer.join()
    assert not directories.pod_directory("u").exists()
