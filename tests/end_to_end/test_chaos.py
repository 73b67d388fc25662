"""Ranks are killed, stopped, starved of CPU and memory and made to fail at random; each time the verdict must name what was done.

One of each in `make test`; `make chaos` goes on for ten minutes (CHAOS_SECONDS, CHAOS_SEED). Jobs whose rank was hurt must
end well nevertheless: the rank is restarted and goes on where it was, and nothing is left running.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster
from tests.operator_cases.playing import slowness
from tests.processes import pid_on_machine

from rowlock.diagnostics import stack_dumps
from rowlock.kubelet.shim import cgroups

SECONDS = float(os.environ.get("CHAOS_SECONDS", "0"))
SEED = int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 100_000)))
RANKS, SIDE_BY_SIDE = 3, 2
PROMPT = 10.0
"""Seconds to find a hang, on a machine that has a processor for each that wants to run."""
MEMORY = "96Mi"

FAKE = """
import os, time
def all_reduce(here, step, ranks):
    while not all(os.path.exists(f"{here}/{step}.{r}") for r in range(ranks)):
        time.sleep(0.003)
"""
RANK = f"""
import itertools, os, sys, time
here, rank = os.environ["HERE"], int(os.environ["RANK"])
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/torch/distributed")
import fake
with open("/proc/self/stat", "rb") as file:
    began = file.read().rpartition(b")")[2].split()[19].decode()
with open(f"{{here}}/new.{{rank}}", "w") as file:
    file.write(f"{{os.getpid()}} {{began}} {{os.readlink('/proc/self/ns/pid')}}")
os.rename(f"{{here}}/new.{{rank}}", f"{{here}}/pid.{{rank}}.{{began}}")
def hurt():
    for what in ("raise", "eat"):
        try:
            os.unlink(f"{{here}}/{{what}}.{{rank}}")
        except FileNotFoundError:
            continue
        if what == "raise":
            raise ValueError(f"made to fail as rank {{rank}}")
        full = []
        while True:
            full.append(bytearray(1 << 20))
def work():
    end = time.process_time() + float(os.environ["WORK"])
    while time.process_time() < end:
        pass
def last():
    try:
        return int(open(f"{{here}}/last").read())
    except FileNotFoundError:
        return sys.maxsize
for step in itertools.count():
    hurt()
    if not os.path.exists(f"{{here}}/{{step}}.{{rank}}"):
        time.sleep(0.03)
        work()
        if rank == 0 and os.path.exists(f"{{here}}/enough") and not os.path.exists(f"{{here}}/last"):
            with open(f"{{here}}/last.new", "w") as file:
                file.write(str(step))
            os.rename(f"{{here}}/last.new", f"{{here}}/last")
        open(f"{{here}}/{{step}}.{{rank}}", "w").close()
    fake.all_reduce(here, step, {RANKS})
    print("step", step, flush=True)
    if step >= last():
        break
"""
"""Goes on until there is a file `enough`; all end with the same step. A rank that begins again catches up."""
LAUNCHER = f"""
import os, subprocess, sys
rank = os.path.dirname(os.path.abspath(__file__)) + "/rank.py"
envs = [{{**os.environ, "RANK": str(n), "LOCAL_RANK": str(n)}} for n in range({RANKS})]
made = [subprocess.Popen([sys.executable, rank], env=env) for env in envs]
sys.exit(max(child.wait() for child in made))
"""
"""All ranks in one pod."""


def cpu_quota(pid: int) -> Path:
    """The file that limits the CPU of a process, in the control group that the node made for its container."""
    for row in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, group = row.split(":", 2)
        if "/rowlock/" in group and (not controllers or "cpu" in controllers.split(",")):
            return Path("/sys/fs/cgroup" + ("/cpu" if controllers else "")) / group.lstrip("/") / (
                "cpu.cfs_quota_us" if controllers else "cpu.max")  # fmt: skip
    raise LookupError(f"process {pid} is in no control group of ours")


class Chaos:
    """One cluster, and what is done to its jobs."""

    def __init__(self, cluster: Cluster, place: Path) -> None:
        self.cluster, self.place = cluster, place
        (place / "torch" / "distributed").mkdir(parents=True)
        (place / "torch" / "distributed" / "fake.py").write_text(FAKE)
        (place / "rank.py").write_text(RANK)
        (place / "launcher.py").write_text(LAUNCHER)
        self._lock = threading.Lock()
        self.done: list[str] = []
        self.found: list[float] = []
        """Seconds until a stopped rank was named."""

    def hurt(self, name: str, way: str, rank: int) -> None:
        """A job, what is done to one rank of it, the verdict, the end."""
        here = self.place / name
        here.mkdir()
        self.submit(name, here, together=way == "stop-one-of-a-pod", hungry=way == "starve")
        self.until(lambda: all((here / f"3.{r}").exists() for r in range(RANKS)), f"{name} to be at work")
        ways = {"kill": self.kill, "stop": self.stop, "stop-one-of-a-pod": self.stop, "starve": self.starve}
        ways |= {"raise": self.tell, "eat": self.tell}
        ways[way](name, way, rank)
        (here / "enough").touch()
        self.cluster.run("rowlock", "wait", name, "--for=completed", "--timeout", "200s")
        self.cluster.run("rowlock", "delete", name)
        with self._lock:
            self.done.append(way)

    def submit(self, name: str, here: Path, *, together: bool, hungry: bool) -> None:
        """Three pods of one rank each, or (`together`) one pod of three; `hungry` ranks need a CPU for their steps."""
        container = {
            "name": "pytorch",
            "image": "host",
            "command": ["python", str(self.place / ("launcher.py" if together else "rank.py"))],
            "env": [{"name": "HERE", "value": str(here)}, {"name": "WORK", "value": "0.005" if hungry else "0"}],
            "resources": {"limits": {"memory": MEMORY}},
        }
        one = {"restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
        specs = {"Master": {"replicas": 1, **one}}
        if not together:
            specs["Worker"] = {"replicas": RANKS - 1, **one}
        job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
               "spec": {"pytorchReplicaSpecs": specs}}  # fmt: skip
        with self._lock:
            self.cluster.api("POST", "/apis/kubeflow.org/v1/namespaces/runai-default/pytorchjobs", job)

    def kill(self, name: str, way: str, rank: int) -> None:
        os.kill(self.pid(name, rank), signal.SIGKILL)
        death = self.death(name, rank)
        assert (death["signal"], death["reason"], death["trouble"]) == (9, "", None), death
        assert "was killed with SIGKILL (exit code 137)" in self.why(name)["incidents"][0]["sentence"]

    def tell(self, name: str, way: str, rank: int) -> None:
        (self.place / name / f"{way}.{rank}").touch()
        death = self.death(name, rank)
        if way == "eat":
            assert death["reason"] == "OOMKilled", death
            assert "was killed for using too much memory" in self.why(name)["incidents"][0]["sentence"]
        else:
            assert death["trouble"]["text"] == f"made to fail as rank {rank}", death
            assert death["trouble"]["place"].endswith("in hurt")

    def stop(self, name: str, way: str, rank: int) -> None:
        pid = self.pid(name, rank)
        os.kill(pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            self.until(lambda: self.told(name, "JobHangs"), f"the hang of {name} to be found")
            with self._lock:
                self.found.append(time.monotonic() - began)
            (said,) = self.told(name, "JobHangs")
            assert said.startswith(f"rank {rank} is stopped by a signal") and f"pid {pid}" in said
        finally:
            os.kill(pid, signal.SIGCONT)

    def starve(self, name: str, way: str, rank: int) -> None:
        """Its control group gets a hundredth of a CPU, as a neighbour that takes the rest would leave it."""
        quota = cpu_quota(self.pid(name, rank))
        quota.write_text("1000" if quota.name == "cpu.cfs_quota_us" else "1000 100000")
        try:
            self.until(lambda: self.told(name, "RankSlow"), f"the slow rank of {name} to be named")
            (said,) = self.told(name, "RankSlow")
            assert said.startswith((f"rank {rank} is slower than its peers: it waits ", f"rank {rank} (pod ")), said
            assert "work (rank.py:" in said
        finally:
            quota.write_text("-1" if quota.name == "cpu.cfs_quota_us" else "max 100000")

    def death(self, name: str, rank: int) -> dict[str, Any]:
        """The first death of the job; it must be this rank's."""
        self.until(lambda: self.why(name)["incidents"], f"the death of rank {rank} of {name} to be known")
        found: dict[str, Any] = self.why(name)["incidents"][0]["deaths"][0]
        assert found["rank"] == f"rank {rank}"
        return found

    def why(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.cluster.run("rowlock", "why", name, "--json"))
        return found

    def told(self, name: str, reason: str) -> list[str]:
        with self._lock:
            page = self.cluster.api("GET", "/api/v1/namespaces/runai-default/events")
        return [e["message"] for e in page["items"] if e["reason"] == reason and e["involvedObject"]["name"] == name]

    def pid(self, name: str, rank: int) -> int:
        found = self.alive(f"{name}/pid.{rank}.*")
        assert len(found) == 1, f"one process is to be rank {rank} of {name}, not {found}; {self.why(name)}"
        return found[0]

    def alive(self, which: str = "*/pid.*") -> list[int]:
        """Every rank that runs, by what it wrote down itself: one that was started warm has its parent's command line."""
        told = (file.read_text().split() for file in self.place.glob(which))
        found = [pid_on_machine(int(pid), int(began), namespace) for pid, began, namespace in told]
        return [pid for pid in found if pid is not None]

    def until(self, true: Any, what: str) -> None:
        self.cluster.until(true, what)


@pytest.mark.timeout(SECONDS + 400)
@pytest.mark.skipif(not stack_dumps.find_py_spy(), reason="py-spy is not installed: a stopped rank could not be named")
def test_every_hurt_is_named_and_healed(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up()
    chaos, dice = Chaos(cluster, tmp_path / "ranks"), random.Random(SEED)
    ways = ["kill", "stop", "stop-one-of-a-pod", "raise", "eat"]
    ways += (
        ["starve"] if cgroups.detect_backend() != "watchdog" else []
    )  # without control groups nothing can hold a rank back
    end, number = time.monotonic() + SECONDS, 0
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        while not number or time.monotonic() < end:
            dice.shuffle(ways)
            list(pool.map(lambda job: chaos.hurt(*job), [(f"c{number}-{w}", w, dice.randrange(RANKS)) for w in ways]))
            number += 1
    assert len(chaos.done) == number * len(ways)
    cluster.until(lambda: not chaos.alive(), "no process left of any job")
    found = f"a stopped one within {statistics.median(chaos.found):.1f} s (median; {max(chaos.found):.1f} s at most)"
    print(f"{len(chaos.done)} ranks were hurt and named (seed {SEED}), {found}")
    assert statistics.median(chaos.found) < PROMPT * slowness()
