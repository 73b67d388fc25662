"""`make verdicts-real`: the part of the corpus that can run on a real node: real kube-apiserver, training operator, kubelet and containerd.

    python -m tests.diagnosis.real_verdicts [NAME…] [--side-by-side N]

Left out are healthy programs, for nothing watches there; programs of other kinds of jobs than PyTorchJob, or with fields of a pod; and
those whose ranks share a directory. What `why` says of the others must be as right as on one machine: it looks when it is asked.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.diagnosis.corpus import PROGRAMS, RIGHT, Program, read_corpus
from tests.diagnosis.verdicts import Corpus, Result, figures, format_result, is_good_enough, is_installed, target
from tests.end_to_end.cluster import BIN, Cluster, lent
from tests.kube_evidence.test_real_node import real_node

from rowlock import Client

PROJECT, IMAGE = "team-a", "localhost/host:1"
_SIGNALS = ("os.kill(", "abort", "signal.alarm(", "setrlimit(", "terminate", "raise_signal(", "SIGSEGV")


class RealCorpus(Corpus):
    """A corpus whose programs run in containers of this machine's files."""

    def _submit(self, program: Program, name: str) -> None:
        words = [word.replace("{program}", str(program.path)) for word in shlex.split(program.command)]
        if any(
            word in program.path.read_text() for word in _SIGNALS
        ):  # the first process of a container cannot kill itself
            words = ["sh", "-c", '"$@"; exit $?', "sh", *words]
        variables = {
            "PATH": f"{BIN}:/usr/bin:/bin",
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "SCRATCH": "/tmp",
            **program.env,
        }
        env = [word for key, value in variables.items() for word in ("-e", f"{key}={value}")]
        flags = ["--name", name, "--image", IMAGE, "-p", PROJECT, "--nnodes", str(program.ranks), "--clean-env", *env]
        self._cluster.run("rowlock", "run", "-d", *flags, "--", *words)


def can_run(program: Program) -> bool:
    is_plain = program.start in ("run", "PyTorchJob") and program.nproc == 1 and not (program.pod or program.container)
    is_ended = program.path.parent.name == "completed"  # what is said there after success comes from watching
    return (
        program.kind != "healthy"
        and is_plain
        and not is_ended
        and (program.ranks == 1 or "SCRATCH" not in program.path.read_text())
    )


def try_programs(cluster: Cluster, programs: Sequence[Program], side_by_side: int) -> Iterator[Result]:
    place = Path(tempfile.mkdtemp(prefix="scratch-", dir=cluster.data.parent))
    client = Client(data_dir=cluster.data, project=PROJECT)
    with client, ThreadPoolExecutor(side_by_side) as pool:
        yield from pool.map(RealCorpus(cluster, client, place).try_program, programs)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="words of the programs' names (default: all)")
    parser.add_argument("--side-by-side", type=int, default=2, metavar="N")
    chosen = parser.parse_args()
    programs = [p for p in read_corpus() if can_run(p) and is_installed(p)]
    if chosen.names:
        programs = [p for p in programs if any(word in str(p.path.relative_to(PROGRAMS)) for word in chosen.names)]
    results, began = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verdicts-") as home:
        directory = Path(home) / "real"
        directory.mkdir()
        with real_node(directory, "--operator") as kubeconfig, lent(Path(home)) as cluster:
            cluster.up("--kubeconfig", str(kubeconfig), "--scheduler", "own", "--install-crds")
            cluster.run("rowlock", "project", "create", PROJECT)
            for result in try_programs(cluster, programs, chosen.side_by_side):
                results.append(result)
                print(format_result(result), flush=True)
                if result.outcome.word == RIGHT:
                    print(f"        said: {result.said}", flush=True)
    print(f"{figures(results)}; {time.monotonic() - began:.0f} s\n{target(results)}")
    return 0 if is_good_enough(results) else 1


if __name__ == "__main__":
    sys.exit(main())
