"""Where running ranks of a real cluster stand, as `why` says it: with stacks, without them, and where nobody may look."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast
from urllib.parse import quote_plus

import pytest

from rowlock.api import LogOptions
from rowlock.controllers.read_your_writes import FollowingCache, ReadYourWrites
from rowlock.errors import ApiError, Forbidden, Unavailable
from rowlock.kube.client import Kube
from rowlock.kube.connection import Connection
from rowlock.kube.proxy.container_command import CommandResult
from rowlock.kube_evidence import rank_observer
from rowlock.kube_evidence.rank_observer import LOG_LINES, RankObserver, script_runner
from rowlock.objects import Object, seconds

NOW = "2026-01-02T03:14:05Z"
JOB: Object = {
    "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j", "namespace": "n", "uid": "job"},
    "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}},
}  # fmt: skip
WAITS = [
    {"name": "all_reduce", "filename": "/site-packages/torch/distributed/c10d.py", "line": 7},
    {"name": "step", "filename": "t.py", "line": 3},
]
LOADS = [{"name": "load", "filename": "t.py", "line": 12}]  # fmt: skip


def pod(role: str, state: str = "running", **more: Any) -> Object:
    labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": "0"}
    status = {"name": "pytorch", "state": {state: {"startedAt": "2026-01-02T03:04:05Z"}}}
    return {
        "metadata": {"name": f"j-{role}-0", "namespace": "n", "uid": role, "labels": labels, **more},
        "spec": {"nodeName": "node-1", "containers": [{"name": "pytorch"}, {"name": "sidecar"}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


def rank(number: str, frames: Sequence[Any], **changed: Any) -> dict[str, Any]:
    threads = [{"thread_name": "MainThread", "active": False, "frames": frames}] if frames else []
    usual = {"pid": 7, "number": number, "state": "S", "blind": "", "first": threads, "second": threads}
    return {**usual, **changed}


def used(cpu: float, **more: float) -> dict[str, Any]:
    """Counters of a second in which it used so many CPUs."""
    return {"before": {}, "after": {"cpu": cpu, "own_cpu": cpu, "main_cpu": cpu, **more}, "looks": 5, "watched": 1.0}


class Played(Kube):
    """A cluster whose pods answer so, by name: text, or an error; and whose logs' last lines have these times."""

    def __init__(self, answers: dict[str, Any], stamps: dict[str, str] | None = None) -> None:
        super().__init__(cast(Connection, object()))
        self.answers, self.stamps = answers, stamps or {}
        self.asked: list[tuple[str, str, str]] = []
        self.words = ["a line"]

    async def log(self, namespace: str, pod: str, options: LogOptions = LogOptions()) -> AsyncIterator[bytes]:
        assert options.tail == LOG_LINES and options.timestamps
        for line in self.words:
            if pod in self.stamps:
                yield f"{self.stamps[pod]} {line}\n".encode()

    async def run(
        self, connection: Any, place: tuple[str, str, str], command: Sequence[str], timeout: float, stdin: bytes
    ) -> CommandResult:
        assert connection is self.connection and command[:2] == ("sh", "-c") and timeout == 20.0
        assert stdin and sum(len(quote_plus(word)) for word in command) < 2048, "proxies refuse long addresses"
        self.asked.append(place)
        return play_answer(self.answers[place[1]])


def play_answer(answer: Any) -> CommandResult:
    """An error, what a command wrote, ranks that a probe found, or its whole answer."""
    if isinstance(answer, ApiError):
        raise answer
    if isinstance(answer, CommandResult):
        return answer
    return CommandResult(json.dumps(answer if isinstance(answer, dict) else {"ranks": answer}).encode(), "", "")


NO_IMAGE = "; the server has no --debug-image to look from a debug container"


def observed(kube: Played, *pods: Object) -> dict[str, Any]:
    observer = RankObserver(clock=lambda: seconds(NOW), run=kube.run)
    observer.pods_of = {"job": list(pods)}.__getitem__
    return asyncio.run(
        observer.observe(ReadYourWrites(kube, cast(FollowingCache, kube)), JOB)
    )  # as the REST API gives it


def test_who_keeps_the_others_waiting_is_named() -> None:
    kube = Played(
        {"j-master-0": [rank("0", WAITS)], "j-worker-0": [rank("1", LOADS)]},
        {"j-worker-0": "2026-01-02T03:13:35.123456789Z"},
    )
    answer = observed(kube, pod("master"), pod("worker"))
    assert answer["verdict"]["kind"] == "behind" and answer["verdict"]["culprits"] == ["rank 1"]
    assert answer["verdict"]["sentence"] == (
        "rank 1 (pod j-worker-0, node node-1) keeps the others waiting: it is at load (t.py:12), asleep or waiting for something else"
        " (0% of a CPU), silent for 30 s; rank 0 waits in all_reduce at step (t.py:3)."
    )
    assert [(one["rank"], one["waits"], one["silent"]) for one in answer["ranks"]] == [
        ("rank 0", "all_reduce", 600.0), ("rank 1", "", 30.0),
    ]  # fmt: skip
    assert kube.asked == [("n", "j-master-0", "pytorch"), ("n", "j-worker-0", "pytorch")]


def test_the_error_with_which_a_log_ended_is_told_once_its_rank_is_silent() -> None:
    """As on one machine: the thread that loaded the batches has died, and the main thread waits for the next one."""

    def sentence(stamp: str) -> str:
        kube = Played({"j-master-0": [rank("0", WAITS)], "j-worker-0": [rank("1", LOADS)]}, {"j-worker-0": stamp})
        kube.words = [
            "step 3",
            "Traceback (most recent call last):",
            '  File "/w/t.py", line 3, in load',
            "KeyError: 'tokens'",
        ]
        return str(observed(kube, pod("master"), pod("worker"))["verdict"]["sentence"])

    told = "rank 1 (pod j-worker-0, node node-1) keeps the others waiting: "
    said = sentence("2026-01-02T03:13:35.123456789Z")
    assert (
        said.startswith(told)
        and "after its log had ended with KeyError: 'tokens' (t.py:3 in load); rank 0 waits" in said
    )
    assert "KeyError" not in sentence("2026-01-02T03:14:04.123456789Z"), "it may go on"


def test_what_is_missing_where_ranks_wait_for_each_other_to_come() -> None:
    joins = [{"name": "init_process_group", "filename": "/site-packages/torch/distributed/c10d.py", "line": 1}, *LOADS]
    agent = [
        {"name": "Handler.next_rendezvous", "filename": "/site-packages/torch/distributed/elastic/a.py", "line": 1}
    ]
    stamps = {f"j-{role}-0": "2026-01-02T03:13:35.123456789Z" for role in ("master", "worker")}

    def told(size: str) -> dict[str, Any]:
        variables = [{"name": "rank", "repr": "0"}, {"name": "world_size", "repr": size}]
        return {"meeting": [{"frames": [{"name": "_create_c10d_store", "locals": variables}]}], "world_size": "2"}

    def sentence(frames: Any, first: dict[str, Any], second: dict[str, Any]) -> str:
        kube = Played({"j-master-0": [rank("0", frames, **first)], "j-worker-0": [rank("1", frames, **second)]}, stamps)
        return str(observed(kube, pod("master"), pod("worker"))["verdict"]["sentence"])

    start = "The rendezvous is not complete: "
    assert sentence(joins, told("3"), {}).startswith(
        f"{start}2 ranks run, they expect 3; they are in init_process_group"
    )
    assert sentence(joins, told("3"), told("4")).startswith(f"{start}the ranks expect different numbers: ")
    assert sentence(joins, {"world_size": "5"}, {"world_size": "5"}).startswith(f"{start}2 ranks run, they expect 5; ")
    runs = {"words": ["/usr/bin/python", "/usr/bin/torchrun", "--standalone", "t.py"], "nnodes": "2"}
    assert sentence(agent, runs, runs).startswith(f"{start}torchrun waits for 2 nodes (PET_NNODES=2) in each of 2 pods")


def test_ranks_that_have_all_come_are_given_time_to_meet_from_question_to_question() -> None:
    """A look cannot tell a rendezvous that goes well from one that does not; what earlier questions saw is remembered."""
    joins = [{"name": "init_process_group", "filename": "/site-packages/torch/distributed/c10d.py", "line": 1}, *LOADS]
    now = [seconds(NOW)]

    def said(first: dict[str, Any], pid: int = 7) -> str:
        kube.answers = {"j-master-0": [rank("0", joins, **first)], "j-worker-0": [rank("1", joins, pid=pid)]}
        return str(asyncio.run(observer.observe(kube, JOB))["verdict"]["sentence"])

    stamps = {f"j-{role}-0": "2026-01-02T03:13:35.123456789Z" for role in ("master", "worker")}
    kube = Played({}, stamps)
    observer = RankObserver(clock=lambda: now[0], run=kube.run)
    observer.pods_of = {"job": [pod("master"), pod("worker")]}.__getitem__
    known = {"world_size": "x", "meeting": [7, {"frames": 1}]}
    assert said(known) == (
        "Nothing hangs: all 2 ranks have been in init_process_group at load (t.py:12) for 0.0 s, and find each other."
        " They were seen there for the first time: ask again in half a minute."
    )
    now[0] += 10
    assert said(known).endswith(" for 10 s, and find each other.")
    now[0] += 10
    assert said(known).startswith("The rendezvous is not complete: all 2 ranks that run wait for others to come")
    assert "rank 0 has no connection to another rank yet" in said({**known, "alone": True}), "it may try again"
    now[0] += 90
    assert "rank 0 has no connection to another rank; " in said({**known, "alone": True})
    assert said(known, pid=8).startswith("Nothing hangs"), "another process has come"
    now[0] += 20
    assert said(known, pid=8).startswith("The rendezvous is not complete")


def test_on_how_many_looks_it_rests_is_said_and_who_does_anything_moves() -> None:
    stamps = {"j-worker-0": "2026-01-02T03:13:35.123456789Z"}

    def sentence(host_network: bool = False, **moved: Any) -> str:
        master, worker = pod("master"), pod("worker")
        worker["spec"]["hostNetwork"] = host_network
        counted = {"before": {}, "after": moved, "looks": 5, "watched": 3.8}
        kube = Played({"j-master-0": [rank("0", LOADS)], "j-worker-0": [rank("1", LOADS, **counted)]}, stamps)
        return str(observed(kube, master, worker)["verdict"]["sentence"])

    assert sentence().startswith(
        "No rank moves, silent for 30 s: rank 0 is at load (t.py:12) and rank 1 is at load (t.py:12)."
    )
    assert sentence().endswith("Seen in 5 looks over 3.8 s: no stack changed, no line was written, no data moved.")
    assert sentence(network=90_000).startswith("Nothing hangs") and sentence(moved=90_000).startswith("Nothing hangs")
    assert sentence(host_network=True, network=90_000).startswith("No rank moves"), (
        "the machine's bytes are everybody's"
    )
    assert sentence(host_network=True, sockets=90_000).startswith("Nothing hangs"), (
        "those of its connections are its own"
    )
    assert sentence(cpu=1.9, queued=1.9).startswith("Nothing hangs"), "it would compute, had it a CPU"


def test_a_rank_that_has_not_begun_and_one_that_has_ended_keep_the_others_waiting() -> None:
    no_python = CommandResult(b"sleep 300 ", "", "command terminated with exit code 44")
    kube = Played({"j-master-0": [rank("0", WAITS)], "j-worker-0": no_python})
    found = observed(kube, pod("master"), pod("worker"))["verdict"]
    assert (found["kind"], found["culprits"]) == ("absent", ["rank 1"])
    assert found["sentence"].startswith(
        "rank 1 (pod j-worker-0, node node-1) has not begun: its pod runs `sleep 300`, no Python yet;"
    )
    ended = pod("worker", "terminated")
    ended["status"]["phase"] = "Succeeded"
    found = observed(kube, pod("master"), ended)["verdict"]
    assert (found["kind"], found["culprits"]) == ("ended", ["rank 1"])


def test_several_ranks_of_one_pod_have_names_of_their_own() -> None:
    kube = Played({"j-master-0": [rank("4", WAITS), rank("5", WAITS), rank("", LOADS, pid=8), rank("", LOADS, pid=9)]})
    names = [one["rank"] for one in observed(kube, pod("master"))["ranks"]]
    assert names == ["rank 4", "rank 5", "rank 0 (pid 8)", "rank 0 (pid 9)"]


def test_a_stopped_rank_is_continued_in_its_pod() -> None:
    answer = observed(Played({"j-master-0": [rank("0", LOADS, state="T")]}), pod("master"))
    assert answer["verdict"]["kind"] == "stopped"
    assert answer["verdict"]["sentence"].endswith("`kubectl exec -n n j-master-0 -- kill -CONT 7` continues it.")


def test_a_rank_that_failed_and_does_not_end_is_named_also_without_stacks() -> None:
    """By torch's error file, of which the end is enough; what a program makes up there is no error."""
    report = r"""File \"t.py\", line 9, in step\nValueError: no data\n", "timestamp": "1767323000"}}}"""
    blind: dict[str, Any] = {"blind": "py-spy is not in the image"}
    kube = Played({
        "j-master-0": [rank("0", (), **blind, error="7")],
        "j-worker-0": [rank("1", (), **blind, error=rf"half an escape\n  {report}")],
    })  # fmt: skip
    answer = observed(kube, pod("master"), pod("worker"))
    assert answer["verdict"] == {
        "kind": "failed",
        "culprits": ["rank 1"],
        "sentence": "rank 1 (pod j-worker-0, node node-1) has failed and does not end: ValueError: no data (t.py:9 in step).",
    }
    assert [one["error"] for one in answer["ranks"]] == ["", "ValueError: no data (t.py:9 in step)"]


def test_what_failed_before_torchrun_started_the_ranks_again() -> None:
    report = json.dumps({"message": "ValueError: no data"})
    first = rank("0", WAITS, restarts=2, earlier=report, earlier_rank=1)
    answer = observed(Played({"j-master-0": [first, rank("1", LOADS, restarts=2)]}), pod("master"))
    assert answer["verdict"]["kind"] == "behind"
    assert answer["verdict"]["sentence"].endswith(
        " torchrun has started its ranks again 2 times, the last time after local rank 1 of pod j-master-0 had failed: ValueError: no data."
    )
    assert [(one["restarts"], one["earlierError"]) for one in answer["ranks"]] == [(2, "ValueError: no data"), (2, "")]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([rank("0", (), blind="py-spy is not in the image", **used(0.5))], f"py-spy is not in the image{NO_IMAGE}"),
        ([], f"it has no Python process{NO_IMAGE}"),
        (Forbidden('pods "j" is forbidden'), 'exec in the pod was refused: pods "j" is forbidden'),
        (Unavailable("no answer from j within 20 s"), "no answer from j within 20 s"),
        (CommandResult(b"", "", "command terminated with exit code 44"), f"they are not Python programs{NO_IMAGE}"),
        (CommandResult(b"", "sh: not found", "exit code 127"), f"the container cannot be looked into: sh: not found{NO_IMAGE}"),
        (CommandResult(b"", "", "it wrote more than 4 MiB"), f"the container cannot be looked into: it wrote more than 4 MiB{NO_IMAGE}"),
        (CommandResult(b'{"ranks": [{"pid": "x"}]}', "", ""), f"what the container answered cannot be read{NO_IMAGE}"),
    ],
)  # fmt: skip
def test_where_nobody_can_look_silence_is_told_and_why(answer: Any, reason: str) -> None:
    kube = Played({"j-master-0": answer}, {"j-master-0": "no time"})
    verdict = observed(kube, pod("master"))["verdict"]
    used = ", and 0.5 CPUs are in use" if isinstance(answer, list) and answer else ""
    assert verdict["kind"] == "blind" and verdict["sentence"] == (
        f"No rank has written a line for 10 min{used}. The ranks' stacks cannot be read: {reason}."
    )


def test_only_running_pods_are_asked() -> None:
    kube = Played({"j-master-0": []})
    gone, ended = pod("worker", deletionTimestamp=NOW), pod("worker", state="terminated")
    assert observed(kube, gone, ended) == {"verdict": None, "ranks": []} and not kube.asked


def test_of_a_large_job_the_first_pods_are_asked_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_observer, "MAX_PODS", 1)
    kube = Played({"j-master-0": [rank("0", LOADS, **used(1.0))]})
    answer = observed(kube, pod("master"), pod("worker"))
    assert len(kube.asked) == 1 and answer["verdict"]["sentence"].endswith("Of 2 pods the first 1 were looked at.")


def test_a_script_runs_from_an_input_that_stays_open() -> None:
    script = "import sys\nif __name__ == '__main__': print('ä', sys.argv)\n".encode()
    command = [sys.executable, "-I", "-S", "-c", script_runner(script), "more"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write(script)
        program.stdin.flush()
        assert program.stdout.read().decode() == "ä ['-c', 'more']\n"
