"""Writes down how ranks died, as soon as it is known: pods are deleted and logs rotate, what happened must not.

One file per job, `deaths/<uid of the job>.jsonl`, a death a line; read again after a restart of the server, so that no
death is written twice. Kept for the newest jobs only.
"""

import contextlib
import json
import os
from pathlib import Path

from rowlock.cluster.node.pod_facts import Run
from rowlock.objects import Object, controller_of, dig, name
from rowlock.verdicts.failure import Death, death
from rowlock.verdicts.traces import Trouble, last_line, trouble
from rowlock.workloads import pods as ranks

KEPT = 1000
"""Jobs whose deaths are remembered."""
_MOST = 2000
"""Deaths per job that are written down: a job that crashes for ever says the same."""
_TAIL = 64 * 1024


class Deaths:
    """The `deaths` directory."""

    def __init__(self, data: Path) -> None:
        self._directory = data / "deaths"
        self._known: dict[str, list[Death]] = {}

    def of(self, job: str) -> list[Death]:
        """Every death of a job's ranks, by the job's uid, in the order they were noticed."""
        if job not in self._known:
            found = []
            with contextlib.suppress(OSError):
                for line in self._file(job).read_text().splitlines():
                    with contextlib.suppress(ValueError, TypeError):  # the last line of a crash
                        found.append(death(json.loads(line)))
            self._known[job] = found
        return self._known[job]

    def add(self, job: str, found: Death) -> bool:
        """False when it was known already, or the job has died too often to be interesting."""
        known = self.of(job)
        if len(known) >= _MOST or any(
            (d.pod, d.run, d.started) == (found.pod, found.run, found.started) for d in known
        ):
            return False
        known.append(found)
        self._directory.mkdir(exist_ok=True, mode=0o700)
        with self._file(job).open("a") as file:
            file.write(json.dumps(found.plain()) + "\n")
        return True

    def forget_old(self) -> None:
        """Keeps the files of the newest jobs."""
        with contextlib.suppress(FileNotFoundError):
            files = sorted(os.scandir(self._directory), key=lambda e: e.stat().st_mtime, reverse=True)
            for entry in files[KEPT:]:
                os.unlink(entry.path)
                self._known.pop(entry.name.removesuffix(".jsonl"), None)

    def _file(self, job: str) -> Path:
        return self._directory / f"{job}.jsonl"


def of_run(job: Object, pod: Object, run: Run, directory: Path) -> Death | None:
    """The death of one run, from its facts and its log; None when it ended well."""
    if run.exit is None or run.exit.code == 0:
        return None
    stopped = False
    with contextlib.suppress(OSError, ValueError):
        stopped = bool(json.loads((directory / f"exit.{run.number}").read_bytes()).get("stopped"))
    said = None if run.exit.reason == "StartError" else last_words(directory, run.number)
    return Death(
        rank=_who(job, pod, directory.name),
        pod=name(pod),
        node=str(dig(pod, "spec.nodeName", "")),
        code=run.exit.code,
        started=run.exit.started,
        finished=run.exit.finished,
        run=run.number,
        signal=run.exit.signal,
        stopped=stopped,
        reason=run.exit.reason,
        message=run.exit.message if run.exit.reason in ("OOMKilled", "StartError") else "",
        trouble=said,
        said="" if said or run.exit.reason == "StartError" else last_line(_end(directory / f"log.{run.number}")),
    )


def _who(job: Object, pod: Object, container: str) -> str:
    """The rank; a container beside it is named."""
    rank = ranks.tag(job, pod)
    return rank if pod["spec"]["containers"][0]["name"] == container else f"container {container} of {rank}"


def last_words(directory: Path, number: int) -> Trouble | None:
    """What torch's error file says (programs under `@record` and torchrun write one), else what the log says."""
    return of_error_file(directory / f"error.{number}.json") or trouble(_end(directory / f"log.{number}"))


def of_error_file(path: Path) -> Trouble | None:
    """`{"message": {"message": "ValueError: no", "extraInfo": {"py_callstack": …, "timestamp": "1700000000"}}}`."""
    try:
        found = json.loads(path.read_bytes())["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if isinstance(found, str):
        return Trouble(found.partition(":")[0], found.partition(":")[2].strip())
    told = trouble(str((found.get("extraInfo") or {}).get("py_callstack") or ""))
    kind, _, text = str(found.get("message") or "").partition(": ")
    when = str((found.get("extraInfo") or {}).get("timestamp") or "0")
    best = told or Trouble(kind, text.partition("\n")[0])
    at = float(when) if when.isdigit() else 0.0
    return Trouble(best.kind, best.text, at, best.place, best.rank, best.secondary)


def _end(path: Path) -> str:
    """The end of a log; nothing when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def job_uid(pod: Object) -> str:
    """The uid of the kubeflow job that controls a pod; "" for other pods."""
    owner = controller_of(pod) or {}
    return str(owner.get("uid", "")) if str(owner.get("apiVersion", "")).startswith("kubeflow.org/") else ""
