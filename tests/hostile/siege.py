"""Odd pods against a live server: it must go on, answer, run the next ordinary pod, and start again after `kill -9`."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from random import Random
from typing import Any

import psutil
from tests.end_to_end.cluster import Cluster
from tests.hostile.odd_pods import draw_job, draw_looks, draw_pod, draw_set

MARK = "ROWLOCK_SIEGE"
BATCH = 12  # odd pods side by side
PATIENCE = 60.0  # seconds for an ordinary pod to run and end, on a machine that has much else to do
LONGEST_ANSWER = 10.0  # seconds; a server that hangs takes longer, a busy machine does not
BATCHES_PER_KILL = 5
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
SETS = {
    "TrainJob": "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs",
    "CronJob": "/apis/batch/v1/namespaces/default/cronjobs",
    "Job": "/apis/batch/v1/namespaces/default/jobs",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
}
COLLECTIONS = (JOBS, *(SETS[kind] for kind in ("TrainJob", "JobSet", "CronJob", "Job")), PODS)
"""Those that make others first."""


class Siege:
    """A cluster under attack; `complaints` is what was found."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.complaints: list[str] = []
        self.answers: Counter[int] = Counter()
        self.canaries = itertools.count(1)
        self.mark = {MARK: uuid.uuid4().hex}
        cluster.up()
        self._pid = cluster.pid
        self.ask("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "odd"}, "data": {"key": "v"}})

    def play(self, seed: str, seconds: float, batches: int | None = None) -> None:
        """Batches until the time is over (or so many of them), or until the server does not go on."""
        end = time.monotonic() + seconds
        for number in itertools.count():
            if number == batches or time.monotonic() > end or self.complaints:
                break
            self.play_batch([f"{seed}:{number * BATCH + n}" for n in range(BATCH)])
            if number % BATCHES_PER_KILL == BATCHES_PER_KILL - 1:
                self.kill_server()
        self.check_processes()

    def play_only(self, seed: str) -> None:
        print(json.dumps(self.draw(seed)[1], indent=1))
        self.play_batch([seed])
        self.kill_server()

    def draw(self, seed: str) -> tuple[str, dict[str, Any]]:
        dice = Random(seed)
        name = "odd-" + seed.rpartition(":")[2]
        sort = dice.random()
        if sort < 0.5:
            return PODS, draw_pod(dice, name, self.mark)
        if sort < 0.65:
            return JOBS, draw_job(dice, name, self.mark)
        made = draw_set(dice, name, self.mark)
        return SETS[made["kind"]], made

    def play_batch(self, seeds: list[str]) -> None:
        """Odd pods at once; an ordinary one beside them must run; all of them must be gone when they are deleted."""
        for seed in seeds:
            path, made = self.draw(seed)
            code = self.ask("POST", path, made)
            self.answers[code] += 1
            if path == PODS and code == 201:
                self.look_into(made["metadata"]["name"], Random(f"{seed}:look"))
            if not code:
                self.complain(f"{seed} was not answered")
            elif code == 500:
                self.complain(f"{seed} was answered with 500\n{self.cluster.last_words()}")
        said = f"after {seeds[0]} … {seeds[-1]}"
        self.check_canary(said)
        for path in COLLECTIONS:
            self.ask("DELETE", f"{path}?propagationPolicy=Background")
        if not self.wait_for(lambda: not any(map(self.items, COLLECTIONS))):
            left = [one["metadata"]["name"] for path in COLLECTIONS for one in self.items(path)]
            self.complain(f"{said}: {', '.join(left)} cannot be deleted\n{self.cluster.last_words()}")
        if self.cluster.pid != self._pid or not psutil.pid_exists(self._pid):
            self.complain(f"{said}: the server ended\n{self.cluster.last_words()}")

    def look_into(self, pod: str, dice: Random) -> None:
        """Adds odd ephemeral containers to a pod, at once or when it runs, or not."""
        when = dice.choice(("never", "at once", "running"))
        if when == "running":
            deadline = time.monotonic() + 2.0
            while self.phase(pod) == "Pending" and time.monotonic() < deadline:
                time.sleep(0.05)
        if when != "never":
            self.answers[self.ask("PATCH", f"{PODS}/{pod}/ephemeralcontainers", draw_looks(dice, self.mark))] += 1

    def check_canary(self, said: str) -> None:
        name = f"canary-{next(self.canaries)}"
        container = {"name": "main", "image": "host", "command": ["sh", "-c", "echo sings"]}
        pod = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}}
        self.ask("POST", PODS, pod)
        if not self.wait_for(lambda: self.phase(name) == "Succeeded"):
            self.complain(f"{said}: an ordinary pod is {self.phase(name) or 'lost'}\n{self.cluster.last_words()}")

    def kill_server(self) -> None:
        """`kill -9`, and it must come back whatever the pods have left on the disk."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self.cluster.up()
        self._pid = self.cluster.pid
        self.check_canary("after a start")

    def check_processes(self) -> None:
        if not self.wait_for(lambda: not self.processes()):
            self.complain(
                "left running: " + ", ".join(f"{p.pid} {' '.join(p.cmdline())[:200]}" for p in self.processes())
            )

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and process.environ().get(MARK) == self.mark[MARK]:
                    found.append(process)
        return found

    # ------------------------------------------------------------ asking

    def ask(self, verb: str, path: str, body: Any = None) -> int:
        """The code of the answer; 0 and a complaint when there is none in time."""
        return self._exchange(verb, path, body)[0]

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._exchange("GET", path)[1].get("items", [])
        return found

    def phase(self, name: str) -> str:
        return str(self._exchange("GET", f"{PODS}/{name}")[1].get("status", {}).get("phase", ""))

    def _exchange(self, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = self.cluster.data
        url = json.loads((data / "server.json").read_text())["url"]
        token = (data / "token").read_text().strip()
        payload = None if body is None else json.dumps(body).encode()
        content = "application/strategic-merge-patch+json" if verb == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": content}
        request = urllib.request.Request(url + path, data=payload, method=verb, headers=headers)
        tls = ssl.create_default_context(cafile=str(data / "ca.crt"))
        try:
            with urllib.request.urlopen(request, context=tls, timeout=LONGEST_ANSWER) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            if error.code == 500:
                self.complain(f"{verb} {path}: 500 {text[:300]}")
            return error.code, {}
        except OSError as error:
            self.complain(f"{verb} {path}: {type(error).__name__}: {error}")
            return 0, {}

    def wait_for(self, condition: Any) -> bool:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline or len(self.complaints) > 20:
                return False
            time.sleep(0.1)
        return True

    def complain(self, text: str) -> None:
        self.complaints.append(text)

    def summary(self) -> str:
        codes = ", ".join(f"{count} × {code}" for code, count in sorted(self.answers.items()))
        return f"{sum(self.answers.values())} odd pods: {codes}\n" + ("\n".join(self.complaints) or "nothing found")
