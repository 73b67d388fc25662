"""`make verdicts`: runs every program of the corpus on one embedded cluster, asks `why`, and counts right, vague, silent and wrong answers.

    python -m tests.diagnosis.verdicts [NAME…] [--short] [--side-by-side N] [--looks N --within SECONDS]

A healthy program is asked again and again until it ends. A program that hangs is asked some seconds after its last movement, and again for
half a minute where nothing is said yet; what is said falsely counts at once. A program that fails is asked after its end.

`--looks 1000` runs the healthy ones alone, again and again and asked as fast as answers come, until there were so many looks.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.diagnosis.corpus import PATIENCE, PROGRAMS, RIGHT, SILENT, WRONG, Outcome, Program, judge, read_corpus
from tests.end_to_end.cluster import BIN, Cluster, lent

from rowlock import Client, ClientError
from rowlock.sdk.client import JobHandle

TARGET = 0.95
BEGIN = 240.0
"""Seconds within which a program has begun: some import TensorFlow on a busy machine."""
END = 240.0
"""Seconds within which a healthy or a failing program has ended."""
BROKEN = "broken"
"""The outcome of a program that did not do what its header says: neither its answer nor ours is right."""
_POLL, _BETWEEN_LOOKS = 0.5, 1.0
_REASONS = ("JobHangs", "JobStill", "RankFailed")
_REPLICAS = {
    "PyTorchJob": ("pytorchReplicaSpecs", "Master", "Worker", "pytorch"),
    "XGBoostJob": ("xgbReplicaSpecs", "Master", "Worker", "xgboost"),
    "TFJob": ("tfReplicaSpecs", "", "Worker", "tensorflow"),
    "JAXJob": ("jaxReplicaSpecs", "", "Worker", "jax"),
    "MPIJob": ("mpiReplicaSpecs", "Launcher", "Worker", "mpi"),
}
"""By kind: the field of its replicas, the single first replica, the others, the container's name."""
_MPI_ENV = {"PRTE_MCA_plm_ssh_agent": "/etc/mpi/kubexec.sh", "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile"}


@dataclass(frozen=True)
class Result:
    """What came of one program. `looks`: how often it was asked."""

    program: Program
    outcome: Outcome
    said: str = ""
    seconds: float = 0.0
    """From the line after which a hang is asked to the answer that was judged."""
    looks: int = 0


class Corpus:
    """One cluster on which programs run, each in a directory of its own that its ranks share (`SCRATCH`)."""

    def __init__(self, cluster: Cluster, client: Client, place: Path, between: float = _BETWEEN_LOOKS) -> None:
        """`between`: seconds between two looks at a healthy program."""
        self._cluster, self._client, self._place, self._between = cluster, client, place, between
        self._lock, self._count = threading.Lock(), 0

    def try_program(self, program: Program) -> Result:
        """Run it, ask, judge, delete it. Nothing that goes wrong is raised: it is the outcome."""
        with self._lock:
            self._count += 1
            name = f"{program.name.replace('_', '-')}-{self._count}"
        job = None
        try:
            self._submit(program, name)
            job = self._client.job(name)
            return self._ask(program, job)
        except (ClientError, TimeoutError, RuntimeError, pytest.fail.Exception) as error:
            tail = " | ".join(self._log(job)[-4:]) if job is not None else ""
            return Result(program, Outcome(BROKEN, f"{error} {tail}"))
        finally:
            if job is not None:
                job.delete()

    def _submit(self, program: Program, name: str) -> None:
        scratch = self._place / name
        scratch.mkdir()
        words = [word.replace("{program}", str(program.path)) for word in shlex.split(program.command)]
        env = {"SCRATCH": str(scratch), **program.env}
        if program.start == "run":
            flags = ["--nnodes", str(program.ranks), "--nproc-per-node", str(program.nproc)]
            variables = [word for key, value in env.items() for word in ("-e", f"{key}={value}")]
            command = ["rowlock", "run", "-d", "--clean-env", "--name", name, *flags, *variables, "--", *words]
            self._cluster.run(*command, cwd=scratch)
        else:
            path = f"/apis/kubeflow.org/v1/namespaces/runai-default/{program.start.lower()}s"
            self._cluster.api("POST", path, manifest(program, name, words, env))

    def _ask(self, program: Program, job: JobHandle) -> Result:
        if program.kind == "failures":
            return self._ask_after_end(program, job)
        self._until(lambda: self._has_begun(program, job), f"it did not come to {program.after!r}", BEGIN)
        began = time.monotonic()
        if program.kind == "healthy":
            return self._ask_until_end(program, job, began)
        time.sleep(program.seconds)
        result = Result(program, Outcome(SILENT))
        while True:
            answer = self._why(job)
            outcome = judge(program, answer, self._events(job))
            seconds = time.monotonic() - began
            result = Result(program, outcome, answer["sentence"], seconds, result.looks + 1)
            if outcome.word in (RIGHT, WRONG) or seconds > PATIENCE + program.seconds:
                return result
            time.sleep(_BETWEEN_LOOKS)

    def _ask_until_end(self, program: Program, job: JobHandle, began: float) -> Result:
        looks = 0
        while not job.refresh().is_finished:
            answer = self._why(job)
            events = self._events(job) if self._between else ()  # else at the end: an answer shall not wait for them
            outcome, looks = judge(program, answer, events), looks + 1
            if outcome.word != RIGHT:
                return Result(program, outcome, answer["sentence"], time.monotonic() - began, looks)
            if time.monotonic() - began > END:
                raise TimeoutError(f"it has not ended within {END:g} s; {answer['sentence']}")
            time.sleep(self._between)
        answer = self._why(job)
        outcome = judge(program, answer, self._events(job))
        if job.workload.phase != "Completed":
            raise RuntimeError(f"it is {job.workload.phase}: {answer['sentence']}")
        return Result(program, outcome, answer["sentence"], time.monotonic() - began, looks + 1)

    def _ask_after_end(self, program: Program, job: JobHandle) -> Result:
        job.wait(timeout=BEGIN + END)
        began = time.monotonic()
        while True:  # the ranks that fail as a consequence fail a moment later
            time.sleep(_BETWEEN_LOOKS)
            answer = self._why(job)
            outcome = judge(program, answer, self._events(job))
            if outcome.word == RIGHT or time.monotonic() - began > 6:
                return Result(program, outcome, answer["sentence"], looks=1)

    def _has_begun(self, program: Program, job: JobHandle) -> bool:
        if not program.after:
            return job.refresh().phase == "Running"
        if sum(program.after in line for line in self._log(job)) >= (program.ranks if program.everyone else 1):
            return True
        if job.refresh().is_finished:
            raise RuntimeError(
                f"it is {job.workload.phase} and never said {program.after!r}: {self._why(job)['sentence']}"
            )
        return False

    def _why(self, job: JobHandle) -> dict[str, Any]:
        answer: dict[str, Any] = self._client.request("GET", f"/api/v1/workloads/{job.id}/why")
        return answer

    def _events(self, job: JobHandle) -> list[str]:
        return [str(event.get("message")) for event in job.events() if event.get("reason") in _REASONS]

    def _log(self, job: JobHandle) -> list[str]:
        try:
            return [line.text for line in job.logs(tail=200)]
        except ClientError:  # none of its pods has a log yet
            return []

    def _until(self, true: Any, what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} within {seconds:g} s")
            time.sleep(_POLL)


def manifest(program: Program, name: str, words: Sequence[str], env: dict[str, str]) -> dict[str, Any]:
    """The job as somebody would give it to `kubectl create`."""
    specs, first, others, container_name = _REPLICAS[program.start]
    env = {**env, **(_MPI_ENV if program.start == "MPIJob" else {})}
    container = {
        "name": container_name,
        "image": "rowlock.dev/host",
        "env": [{"name": key, "value": value} for key, value in env.items()],
        **program.container,
    }
    template = {"spec": {"containers": [{**container, "command": list(words)}], **program.pod}}
    replica = {"replicas": 1, "restartPolicy": program.policy, "template": template}
    number = program.ranks if not first or program.start == "MPIJob" else program.ranks - 1
    replicas = {first: replica} if first else {}
    if program.start == "MPIJob":
        replicas |= {others: {"replicas": number, "template": {"spec": {"containers": [container]}}}}
    elif number:
        replicas |= {others: {**replica, "replicas": number}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": program.start,
        "metadata": {"name": name},
        "spec": {specs: replicas, **({"slotsPerWorker": 1} if program.start == "MPIJob" else {})},
    }


def is_installed(program: Program) -> bool:
    """Whether what it needs is there: modules, or a command."""
    found = (importlib.util.find_spec(each) or shutil.which(each, path=str(BIN)) for each in program.needs)
    return all(found)


def try_programs(cluster: Cluster, programs: Sequence[Program], side_by_side: int) -> Iterator[Result]:
    """The results in the order of the programs; the cluster must be up."""
    place = Path(tempfile.mkdtemp(prefix="scratch-", dir=cluster.data.parent))
    with Client(data_dir=cluster.data) as client, ThreadPoolExecutor(side_by_side) as pool:
        yield from pool.map(Corpus(cluster, client, place).try_program, programs)


def look_often(
    cluster: Cluster, programs: Sequence[Program], looks: int, within: float, side_by_side: int
) -> Iterator[Result]:
    """Results of programs that are run again and again, until there were so many looks or so many seconds are over."""
    place = Path(tempfile.mkdtemp(prefix="scratch-", dir=cluster.data.parent))
    began, done, under_way = time.monotonic(), 0, set[Future[Result]]()
    turns = itertools.cycle(programs)
    with Client(data_dir=cluster.data) as client, ThreadPoolExecutor(side_by_side) as pool:
        corpus = Corpus(cluster, client, place, between=0.0)
        while under_way or (done < looks and time.monotonic() - began < within):
            while len(under_way) < side_by_side and done < looks and time.monotonic() - began < within:
                under_way.add(pool.submit(corpus.try_program, next(turns)))
            finished, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for result in (each.result() for each in finished):
                done += result.looks
                yield result


def start_cluster(cluster: Cluster, *flags: str) -> None:
    cluster.env |= {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "1"}
    cluster.up("--nodes", "2", *flags)


def format_result(result: Result) -> str:
    """One line; of anything but a right answer, what was said."""
    took = f" after {result.seconds:.0f} s" if result.program.kind == "hangs" and result.looks else ""
    took = f" in {result.looks} looks" if result.program.kind == "healthy" else took
    text = f"{result.outcome.word:7} {result.program.kind}/{result.program.name}{took}"
    return text if result.outcome.word == RIGHT else f"{text}: {result.outcome.why}\n        said: {result.said}"


def figures(results: Sequence[Result]) -> str:
    counts = Counter((result.program.kind, result.outcome.word) for result in results)
    kinds = [kind for kind in ("healthy", "hangs", "failures") if any(each == kind for each, _ in counts)]
    rows = [", ".join(f"{n} {word}" for (k, word), n in sorted(counts.items()) if k == kind) for kind in kinds]
    looks = sum(result.looks for result in results if result.program.kind == "healthy")
    right = sum(result.outcome.word == RIGHT for result in results)
    lines = [f"{kind}: {row}" for kind, row in zip(kinds, rows, strict=True)]
    return "\n".join([*lines, f"{right} of {len(results)} right; {looks} looks at healthy programs"])


def is_good_enough(results: Sequence[Result]) -> bool:
    right = sum(result.outcome.word == RIGHT for result in results)
    return right >= TARGET * len(results) and not any(result.outcome.word == WRONG for result in results)


def target(results: Sequence[Result]) -> str:
    """What is aimed at, and whether it is met."""
    return f"≥ {TARGET:.0%} right, none wrong: {'met' if is_good_enough(results) else 'missed'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="programs of the corpus, or words of their names (default: all)"
    )
    parser.add_argument("--short", action="store_true", help="the part that runs in CI")
    parser.add_argument("--said", action="store_true", help="print right answers, too")
    parser.add_argument(
        "--side-by-side", type=int, metavar="N", help="how many run at a time (default 4; with --looks 8)"
    )
    parser.add_argument("--looks", type=int, default=0, metavar="N", help="so many looks at the healthy programs alone")
    parser.add_argument(
        "--within", type=float, default=1800.0, metavar="SECONDS", help="begin none later (with --looks)"
    )
    parser.add_argument(
        "--network", default="auto", help="`--network` of `rowlock up`: `rewrite` gives pods no network of their own"
    )
    chosen = parser.parse_args()
    programs = [p for p in read_corpus() if p.short or not chosen.short]
    programs = [p for p in programs if p.kind == "healthy"] if chosen.looks else programs
    if chosen.names:
        programs = [p for p in programs if any(word in str(p.path.relative_to(PROGRAMS)) for word in chosen.names)]
    if absent := [p.name for p in programs if not is_installed(p)]:
        print(f"not tried, for `make test-examples` installs what they need: {', '.join(absent)}", flush=True)
        programs = [p for p in programs if p.name not in absent]
    if not programs:
        print(f"no program has {chosen.names} in its name", file=sys.stderr)
        return 2
    results, began = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verdicts-") as home, lent(Path(home)) as cluster:
        start_cluster(cluster, "--network", chosen.network)
        side = chosen.side_by_side or (8 if chosen.looks else 4)
        often = look_often(cluster, programs, chosen.looks, chosen.within, side) if chosen.looks else None
        for result in often or try_programs(cluster, programs, side):
            results.append(result)
            print(format_result(result), flush=True)
            if chosen.said and result.outcome.word == RIGHT:
                print(f"        said: {result.said}", flush=True)
    print(f"{figures(results)}; {time.monotonic() - began:.0f} s\n{target(results)}")
    return 0 if is_good_enough(results) else 1


if __name__ == "__main__":
    sys.exit(main())
