"""One sentence for one end or one hang, on every face: why, list, status, event, page, SDK, history, the last line of `rowlock run`."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, lent

from rowlock import Client

pytestmark = pytest.mark.timeout(600)
FAILS = """
import os, time
if os.environ["RANK"] != "2": time.sleep(600)
try:
    {}["llama"]
except KeyError as error:
    raise ValueError("unknown model 'llama'") from error
"""
KILLED = (
    "import os, signal, time; os.kill(os.getpid(), signal.SIGKILL) if os.environ['RANK'] == '1' else time.sleep(600)"
)
LEFT = """
import os, socket, sys, time
if os.environ["RANK"] == "0":
    time.sleep(3); sys.exit(0)
time.sleep(6)
raise ConnectionResetError(104, "Connection reset by peer")
"""
NAN = "for step in range(40): print('step', step, 'loss', 1 / (step + 1) if step < 30 else float('nan'))"
AGAIN = """
import os, pathlib, sys
mark = pathlib.Path(os.environ["SCRATCH"]) / "mark"
if not mark.exists():
    mark.touch(); sys.exit("no space left on the scratch disk")
print("fine")
"""
APART = "import time\nfor step in range(60): print('step', step, 'loss', 1 / (step + 1), flush=True); time.sleep(0.5)"
HEALTHY = "print('fine')"
NOISY = """
import os, sys, time, traceback
print("E0000 00:00:1795914918.684913 14379 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error", file=sys.stderr, flush=True)
try:
    open("/no/such/cache")
except OSError:
    traceback.print_exc()
for step in range(3):
    print("step", step, "loss", 1 / (step + 1), flush=True)
    end = time.monotonic() + 4
    while time.monotonic() < end: sum(range(9999))
"""
HANGS = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
print("up", flush=True)
if dist.get_rank() == 1: time.sleep(600)
dist.all_reduce(torch.ones(1))
"""
GONE = """
import os, torch.distributed as dist
print("up", flush=True)
if os.environ["RANK"] == "0": dist.init_process_group("gloo")
"""
ENDS = {
    "fails": (FAILS, ["--nnodes", "4"], "RankFailed", "all 3 others were then stopped"),
    "killed": (KILLED, ["--nnodes", "2"], "RankFailed", "was killed with SIGKILL"),
    "left": (LEFT, ["--nnodes", "2"], "RankFailed", "had ended with exit code 0 while others still needed it"),
    "nan": (NAN, [], "LossNotFinite", "It completed, but loss of rank 0 is nan from step 30 on."),
    "again": (AGAIN, ["--backoff-limit", "2"], "RankFailed", "It completed, but before that: rank 0"),
    "apart": (APART, ["--nnodes", "2"], "RanksNeverMet", "It completed, but rank 0 and rank 1 never connected to each other"),
    "noisy": (NOISY, [], "", "It completed; no rank failed."),
    "healthy": (HEALTHY, ["--nnodes", "2"], "", "It completed; no rank failed."),
}  # fmt: skip
"""Name → program, flags, the event that tells it, words of the sentence."""


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faces]:
    with lent(tmp_path_factory.mktemp("faces")) as cluster:
        cluster.up("--nodes", "2")
        yield Faces(cluster)


class Faces:
    """What a cluster says of a job, by face."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def run(self, name: str, program: str, *flags: str) -> str:
        """The last line of `rowlock run`."""
        lines = self.cluster.run(*self._command(name, program, *flags), code=None, cwd=self.cluster.data.parent / name)
        return next((line.partition(": ")[2] for line in lines.splitlines() if line.startswith(f"Job {name} is ")), "")

    def _command(self, name: str, program: str, *flags: str) -> list[str]:
        scratch = self.cluster.data.parent / name
        scratch.mkdir()
        argv = ["rowlock", "run", "--clean-env", "--name", name, "-e", f"SCRATCH={scratch}", *flags]
        return [*argv, "--", "python", "-c", program]

    @contextmanager
    def followed(self, name: str, program: str) -> Iterator[Callable[[str], str]]:
        """Two ranks under `rowlock run`, which follows them; what it has said of them beside their log, by its first words (on a busy machine
        it may say before that a rank is slow). The job is deleted at the end."""
        command, path = self._command(name, program, "--nnodes", "2"), self.cluster.data.parent / f"{name}.out"

        def said(words: str) -> str:
            start = f"Job {name}: {words}"
            self.cluster.until(lambda: f"\n{start}" in path.read_text(), "`rowlock run` tells it")
            line = next(line for line in path.read_text().splitlines() if line.startswith(start))
            return line.partition(": ")[2]

        with (
            path.open("w") as out,
            subprocess.Popen(
                command, env=self.cluster.env, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=path.parent / name
            ) as program_that_follows,
        ):
            try:
                yield said
            finally:
                self.cluster.run("rowlock", "delete", "-y", name)
                program_that_follows.wait(200)

    def workload(self, name: str) -> dict[str, Any]:
        found = self.cluster.api("GET", f"/api/v1/workloads?filterBy=name=={name}&deleted=false")["workloads"]
        return dict(next(one for one in found if one["name"] == name))

    def now(self, name: str) -> dict[str, str]:
        """Of a job that is there."""
        listed = self.cluster.run("rowlock", "list").splitlines()
        with Client(data_dir=self.cluster.data) as client:
            job = client.job(name)
            return {
                "why": self.cluster.run("rowlock", "why", name).splitlines()[0],
                "list": next(line for line in listed if line.split()[0] == name),
                "status": self.workload(name)["phaseMessage"],
                "page": self.rows()[name],
                "SDK": job.why(),
                "SDK's message": job.refresh().message,
            }

    def rows(self) -> dict[str, str]:
        """Name → sentence, as a page of the web UI has it."""
        url = self.cluster.api("POST", "/api/v1/ui/codes")["url"]
        place, _, code = url.partition("#code=")
        origin = place.rstrip("/")
        headers = {"origin": origin, "content-type": "application/json"}
        asked = urllib.request.Request(f"{origin}/api/v1/ui/session", json.dumps({"code": code}).encode(), headers)
        with urllib.request.urlopen(asked, timeout=200) as answer:
            cookie, key = answer.headers["set-cookie"].partition(";")[0], json.load(answer)["key"]
        feed = urllib.request.Request(f"{origin}/api/v1/ui/workloads", headers={"cookie": cookie, "x-rowlock-key": key})
        found: dict[str, str] = {}
        with urllib.request.urlopen(feed, timeout=200) as events:
            for line in events:
                if line.startswith(b"data: [{"):
                    found |= {row["name"]: row["why"] for row in json.loads(line[6:])}
                if line.startswith(b"event: ready"):
                    return found
        return found

    def events(self, name: str, reason: str) -> list[str]:
        found = self.cluster.api("GET", f"/api/v1/workloads/{self.workload(name)['id']}/events")["events"]
        return [event["message"] for event in found if event["reason"] == reason]

    def has(self, name: str, reason: str) -> bool:
        """Whether the job is there and has such an event."""
        found = self.cluster.api("GET", "/api/v1/workloads?deleted=false")["workloads"]
        return any(one["name"] == name for one in found) and bool(self.events(name, reason))

    def recorded(self, name: str) -> dict[str, str]:
        """Of a job that was deleted."""
        run = next(one for one in self.cluster.json("rowlock", "history", "--json") if one["name"] == name)
        return {
            "history": run["verdict"],
            "archived why": self.cluster.api("GET", f"/api/v1/workloads/{run['id']}/why")["sentence"],
            "archived status": self.cluster.api("GET", f"/api/v1/workloads/{run['id']}")["phaseMessage"],
        }


def same(sentence: str) -> str:
    """Without what two looks at ranks that stand still differ in: seconds, and how many looks."""
    return re.sub(r"\d+(?:\.\d+)? (?:s|min)\b|\d+ looks|\d+% of a CPU", "#", sentence)


@pytest.fixture(scope="module")
def last_lines(faces: Faces) -> dict[str, str]:
    """Name → the last line of `rowlock run`, of all jobs that end."""
    with ThreadPoolExecutor(len(ENDS)) as pool:
        said = pool.map(lambda one: faces.run(one[0], one[1][0], *one[1][1]), ENDS.items())
        return dict(zip(ENDS, said, strict=True))


@pytest.mark.parametrize("name", ENDS)
def test_an_end_is_told_in_one_sentence(faces: Faces, last_lines: dict[str, str], name: str) -> None:
    _, _, reason, words = ENDS[name]
    told = faces.now(name)
    sentence = told["why"]
    assert words in sentence
    assert told.pop("list").endswith(sentence if reason else "")
    if not reason:  # of a job without trouble a status says what the operator says
        told = {face: said for face, said in told.items() if face in ("why", "SDK")}
    told["run"] = last_lines[name] or "It completed; no rank failed."
    if reason:
        (event,) = faces.events(name, reason)
        assert event.rstrip(".").lower() in sentence.lower()
    faces.cluster.run("rowlock", "delete", "-y", name)
    told |= faces.recorded(name)
    assert told == dict.fromkeys(told, sentence)


@pytest.mark.parametrize(
    ("name", "program", "words"),
    [
        ("hangs", HANGS, "rank 1 (pod hangs-worker-0, "),
        ("gone", GONE, "rank 1 (pod gone-worker-0, "),
    ],
)
def test_a_hang_is_told_in_one_sentence(faces: Faces, name: str, program: str, words: str) -> None:
    with faces.followed(name, program) as said:
        faces.cluster.until(lambda: faces.has(name, "JobHangs"), "the hang is an event", seconds=180, every=1)
        told = faces.now(name)
        told |= {"event": faces.events(name, "JobHangs")[-1], "run": said(words)}
    sentence = same(told["why"])
    assert sentence.startswith(words), told
    assert same(told.pop("list")).endswith(sentence)
    assert {face: same(said) for face, said in told.items()} == dict.fromkeys(told, sentence)


def test_ranks_that_never_met_are_told_in_one_sentence_while_they_run(faces: Faces) -> None:
    """Behind what `why` says of a job that moves; the other faces have nothing else to say."""
    name = "strangers"
    program = APART.replace("range(60)", "range(6000)")
    with faces.followed(name, program) as said:
        faces.cluster.until(lambda: faces.has(name, "RanksNeverMet"), "the event", seconds=180, every=1)
        told = faces.now(name)
        (told["event"],) = faces.events(name, "RanksNeverMet")
        told["run"] = said("Rank 0 and rank 1 never")
    sentence = told["event"]
    assert sentence.startswith("Rank 0 and rank 1 never connected to each other (")
    assert told["why"].startswith("Nothing hangs: ") and told.pop("why").endswith(sentence)
    assert told.pop("SDK").endswith(sentence) and told.pop("list").endswith(sentence)
    assert told == dict.fromkeys(told, sentence)


def test_of_a_job_that_only_looks_ill_no_face_says_anything(faces: Faces) -> None:
    """It runs, has logged a library's error and one that it handled, and writes only now and then."""
    name = "looks-ill"
    faces.run(name, NOISY.replace("range(3)", "range(300)"), "-d")
    faces.cluster.until(lambda: "step 2" in faces.cluster.run("rowlock", "logs", name), "its third step")
    told = faces.now(name)
    assert told["why"].startswith("Nothing hangs: 1 rank") and told["SDK"].startswith("Nothing hangs: 1 rank")
    assert {told["status"], told["page"], told["SDK's message"]} <= {"", "Its pod runs."}
    assert not re.search(r"rror|cuInit|hang", told["list"])
    events = faces.cluster.api("GET", f"/api/v1/workloads/{faces.workload(name)['id']}/events")["events"]
    assert not [event for event in events if event["type"] == "Warning"]
    faces.cluster.run("rowlock", "delete", "-y", name)


def test_a_helper_that_outlives_the_program_is_told_in_one_sentence(faces: Faces) -> None:
    """The helper comes first in the pod: the operator, and so the sentence, goes by the container's name."""
    name = "outlived"
    containers = [
        {"name": called, "image": "rowlock.dev/host", "command": ["sh", "-c", script]}
        for called, script in (("logger", "sleep 600"), ("pytorch", "echo done"))
    ]
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": containers}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Master": replica}},
    }
    faces.cluster.api("POST", "/apis/kubeflow.org/v1/namespaces/runai-default/pytorchjobs", job)
    ended = f"Container pytorch of pod {name}-master-0 ended with exit code 0 at "
    faces.cluster.until(
        lambda: faces.workload(name)["phaseMessage"].startswith(ended), lambda: str(faces.workload(name))
    )
    faces.cluster.run("rowlock", "wait", name, "--for", "running", "--timeout", "200s")
    told = faces.now(name)
    sentence = told["why"]
    assert sentence.startswith(ended)
    assert ", but logger still runs in that pod: the pod stays Running until that one ends." in sentence
    assert told.pop("list").endswith(sentence)
    assert told == dict.fromkeys(told, sentence)
    faces.cluster.run("rowlock", "delete", "-y", name)
