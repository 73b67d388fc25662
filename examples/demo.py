"""What `make demo` runs: a distributed PyTorch job, from nothing to Succeeded, with a rank killed on the way.

Every step is a command you can type yourself; it is printed before it runs. The cluster lives in a directory of its
own and is gone afterwards (`--keep` leaves it running).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
JOB = "distributed-training-pytorch"
IMAGE = "YOUR-USER-NAME/distributed_training_pytorch"
KILL_AFTER_EPOCH = 8
BORING = re.compile(r"^(?:Requirement already satisfied: .*\(from .*|Looking in .*)\n", re.M)
"""pip's lines about what torch itself needs, and about its settings."""
COLOUR = "NO_COLOR" not in os.environ and (sys.stdout.isatty() or "FORCE_COLOR" in os.environ)


def paint(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def say(text: str) -> None:
    print(paint(f"\n# {text}", "1"), flush=True)


class Demo:
    def __init__(self, data: Path) -> None:
        here = Path(sys.executable).parent
        self.env = {**os.environ, "ROWLOCK_DATA_DIR": str(data), "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
        self.env.setdefault("KUBECONFIG", str(data / "kubeconfig"))
        self.env["KUBECONFIG"] = str(data / "kubeconfig")

    def run(self, *argv: str, quiet: bool = False) -> str:
        """Run a command, show it and its output; stop the demo with its own words when it fails."""
        if not quiet:
            print(paint("$ " + " ".join(argv), "36"), flush=True)
        done = subprocess.run(argv, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if not quiet or done.returncode:
            print(BORING.sub("", done.stdout), end="", flush=True)
        if done.returncode:
            raise SystemExit(f"demo: `{' '.join(argv)}` failed with exit code {done.returncode}")
        return done.stdout

    def logs(self) -> Iterator[str]:
        """The job's merged log, line by line, until the job is over."""
        argv = ["rowlock", "logs", "-f", JOB]
        print(paint("$ " + " ".join(argv), "36"), flush=True)
        with subprocess.Popen(argv, env=self.env, text=True, stdout=subprocess.PIPE) as follower:
            assert follower.stdout is not None
            yield from follower.stdout

    def rank_process(self, pod: str) -> psutil.Process | None:
        """The training process (not its launcher) that runs in `pod` of this demo's cluster."""
        for process in psutil.process_iter():
            try:
                line, env = process.cmdline(), process.environ()
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
            if env.get("HOSTNAME") == pod and "LOCAL_RANK" in env and any(a.endswith("distributed.py") for a in line):
                return process
        return None

    def kill_a_rank(self) -> float:
        victim = self.rank_process(f"{JOB}-worker-0")
        if victim is None:
            raise SystemExit("demo: the worker's training process is not there; nothing to kill")
        print(paint(f"$ kill -9 {victim.pid}    # the worker's rank dies in the middle of an epoch", "31"), flush=True)
        victim.kill()
        return time.monotonic()

    def train(self) -> dict[str, str]:
        """Follow the job, kill one rank after a snapshot, watch it resume. Returns what the summary says."""
        facts: dict[str, str] = {}
        killed = 0.0
        for line in self.logs():
            print(line, end="", flush=True)
            saved = re.search(r"Epoch (\d+) \| Training snapshot saved", line)
            if saved and not killed and int(saved[1]) >= KILL_AFTER_EPOCH:
                killed = self.kill_a_rank()
            resumed = re.search(r"Resuming training from snapshot at Epoch (\d+)", line)
            if resumed and killed and "resumed" not in facts:
                facts["resumed"] = (
                    f"from the snapshot of epoch {resumed[1]}, {time.monotonic() - killed:.1f} s after the kill"
                )
            loss = re.search(r"Epoch (\d+)/\d+ .*loss ([0-9.]+)", line)
            if loss:
                facts.setdefault("first", loss[2])
                facts["last"], facts["epochs"] = loss[2], loss[1]
        if not killed or "resumed" not in facts:
            raise SystemExit("demo: the job ended without having been interrupted and resumed")
        return facts


def steps(demo: Demo) -> None:
    started = time.monotonic()
    say("A cluster: two nodes with one (simulated) GPU each, in one process")
    demo.run("rowlock", "up", "-d", "--nodes", "2", "--simulated-gpus", "1")
    say("The example's Dockerfile becomes an image; no Docker needed")
    demo.run("rowlock", "build", "-t", IMAGE, os.path.relpath(HERE / "distributed_training_pytorch"))
    say("Submit: one master and one worker with one GPU each; both start together, or none")
    demo.run("runai", "submit-pytorch", "--name", JOB, "--workers=1", "-g", "1", "-i", f"docker.io/{IMAGE}")
    facts = demo.train()
    say("What happened")
    demo.run("rowlock", "wait", JOB, "--for=completed", "--timeout", "60s")
    demo.run("runai", "list", "jobs")
    demo.run("runai", "describe", "job", JOB)
    if shutil.which("kubectl"):
        demo.run("kubectl", "get", "pytorchjobs,pods,podgroups", "-n", "runai-default")
    else:
        print("(kubectl is not installed; with it, the same objects answer to `kubectl get pytorchjobs,pods`)")
    job = json.loads(demo.run("rowlock", "describe", JOB, "--json", quiet=True))
    phase = job.get("phase") or job.get("actualPhase")
    if phase != "Completed":
        raise SystemExit(f"demo: the job is {phase}, not Completed")
    print(
        f"\n{paint('Succeeded', '32')}: {facts['epochs']} epochs on 2 ranks, loss {facts['first']} → {facts['last']}; "
        f"a rank was killed with -9 and training went on {facts['resumed']}; "
        f"{time.monotonic() - started:.1f} s in all (the GPUs were simulated: torch ran on the CPU with gloo)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="A PyTorch DDP job on an embedded cluster, with a rank killed.")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running and say where it is")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("demo: stopped"))  # so that the cluster is stopped, too
    data = Path(tempfile.mkdtemp(prefix="rowlock-demo-"))
    demo = Demo(data)
    try:
        steps(demo)
    finally:
        if args.keep:
            print(f"\nThe cluster keeps running: export ROWLOCK_DATA_DIR={data} KUBECONFIG={data}/kubeconfig")
        else:
            subprocess.run(["rowlock", "down", "--yes"], env=demo.env, stdout=subprocess.DEVNULL)
            shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    main()
