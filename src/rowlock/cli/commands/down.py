"""`down`: stop the jobs, then the server; jobs that are submitted meanwhile are stopped or refused."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import signal
import stat
import sys
import time
from typing import Any

from rowlock.cli import client
from rowlock.cli.context import data_dir, data_dir_flag, project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import suspend_job
from rowlock.cli.output import ask, parse_duration, show, show_result, tell
from rowlock.cli.server_json import describe_copy, is_alive, read_server_json, running_server
from rowlock.cli.start.settings import restart_command

_STOP_TIMEOUT = 40.0
"""Seconds that `down` waits for jobs to stop, all together."""
_ENDED_PHASES = ("Stopped", "Completed", "Failed", "Deleting")
_POLL_INTERVAL = 0.02
_ENDING_INTERVAL = 0.1
"""Seconds between two questions for the pods that end; each looks at all pods."""
_ANNOUNCED_WAIT = 2.0
"""Seconds of a wait after which it is reported: most pods end sooner."""
_MAX_START = 1 << 20
"""The most bytes that are read of a start file of the kubelet."""


def down(line: CommandLine) -> None:
    directory = data_dir(line)
    server_json = running_server(directory)
    if server_json is None:
        count = _count_surviving_pods(directory)
        _show_down(line, "not running", [], count, f"No server is running for {directory}{describe_copy(directory)}.")
        if count:
            again = restart_command(read_server_json(directory))
            tell(
                f"The programs of {count} {'pod' if count == 1 else 'pods'} run on: the server ended without stopping them. "
                f"`{again}`, then `rowlock down`, stops them"
            )
        return
    if line.keep_jobs and line.stop_jobs:
        raise CommandError("--keep-jobs and --stop-jobs exclude each other", 2)
    limit = parse_duration(line.timeout, "--timeout")
    is_real_cluster = (server_json.get("flags") or {}).get("kubeconfig") is not None
    if is_real_cluster and line.stop_jobs:
        raise CommandError("the jobs of a real cluster are not stopped with this server: leave --stop-jobs out", 2)
    busy, is_told, have_all_ended = ([], True, True) if is_real_cluster else _stop_pods(line, limit)
    _end_server(line, server_json, limit, waits=have_all_ended)
    stopped_note = f"; {len(busy)} unfinished {'jobs were' if len(busy) != 1 else 'job was'} stopped" if busy else ""
    kept_note = "; running pods go on, the next `rowlock up` finds them" if line.keep_jobs else ""
    if is_real_cluster:
        _show_down(line, "down", [], 0, "The server is down; the cluster and its jobs go on.")
        return
    count = 0 if is_told and not line.json else _count_surviving_pods(directory)
    if not is_told and count:
        whose = f"{count} pods run" if count != 1 else "1 pod run"
        tell(f"The programs of {whose} on, though no job of rowlock has them. The next `rowlock up` finds them")
    _show_down(line, "down", busy, count, f"The cluster is down{stopped_note}{kept_note}.")
    if busy:
        project_flag = "" if busy[0]["projectName"] == project(line) else f" -p {busy[0]['projectName']}"
        resume = f"rowlock resume {busy[0]['name']}{project_flag}{data_dir_flag(directory)}"
        (tell if line.json else show)(f"To go on with a stopped job: `{restart_command(server_json)}`, then `{resume}`")


def _show_down(line: CommandLine, result: str, stopped: list[dict[str, Any]], pods: int, sentence: str) -> None:
    """Print the result; `pods`: how many run on, of those whose programs are on this machine."""
    jobs = [{"id": job["id"], "name": job["name"], "project": job["projectName"]} for job in stopped]
    show_result(line, {"result": result, "stoppedJobs": jobs, "runningPods": pods}, sentence)


def _stop_pods(line: CommandLine, limit: float) -> tuple[list[dict[str, Any]], bool, bool]:
    """Stop the jobs, unless they are to be kept, and wait for pods that end. Returns the stopped jobs, whether pods that run on are
    accounted for (kept, or reported), and whether all have ended that were to."""
    if line.keep_jobs:
        return [], True, _await_ending_pods(line, limit)
    busy, unstopped = _drain(line, limit)
    _delete_leftover_pods(line, limit)
    have_all_ended = _await_ending_pods(
        line, limit if not unstopped else 0.0
    )  # the pods of such jobs have had their time
    is_bare_told = _warn_about_bare_pods(line)
    have_all_ended = have_all_ended and not unstopped
    return busy, not have_all_ended or is_bare_told, have_all_ended


def _end_server(line: CommandLine, server_json: dict[str, Any], limit: float, *, waits: bool) -> None:
    """Ask the server to end and wait for it. `waits`: whether it may wait for pods that end. Raises CommandError when it is still there
    after `limit` seconds."""
    if line.server is not None:
        line.server.close()  # a server waits for its connections before it ends
    pid = int(server_json["pid"])
    os.kill(pid, signal.SIGTERM)
    if not waits:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)  # a second SIGTERM could be merged with the first one
    deadline = time.monotonic() + limit
    while is_alive(server_json):
        if time.monotonic() > deadline:
            raise CommandError(f"the server (pid {pid}) did not end within {line.timeout}; `kill -9 {pid}` ends it")
        _reap_child(pid)
        time.sleep(_POLL_INTERVAL)


def _count_surviving_pods(directory: str) -> int:
    """The number of pods of a killed server whose programs still run, by the pid and start time that the kubelet recorded."""
    pods = set[str]()
    for path in glob.glob(f"{glob.escape(directory)}/pods/*/*/start.*"):
        try:
            start = json.loads(_read_start(path))
            with open(f"/proc/{int(start['pid'])}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue  # the program has ended or not begun, or the pod has replaced the file
        if fields[0] not in (b"Z", b"X") and fields[19] == str(start.get("ticks")).encode():
            pods.add(path.split(os.sep)[-3])
    return len(pods)


def _read_start(path: str) -> bytes:
    """Read a file of the kubelet, which a pod may have replaced by a pipe, a link or an endless file. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is no file")
        return os.read(fd, _MAX_START)
    finally:
        os.close(fd)


def _drain(line: CommandLine, limit: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Stop every unfinished job, also those that are submitted meanwhile. Returns the stopped jobs, and those that did not stop in time."""
    busy = _unfinished_jobs(line)
    if busy or (leftover := _leftover_pods(line)):
        _confirm_stop(line, _describe_jobs(busy) if busy else _describe_leftover(leftover))
    deadline = time.monotonic() + min(limit, _STOP_TIMEOUT)
    if _refuse_new_jobs(line, limit + 3 * _STOP_TIMEOUT):
        busy = _unfinished_jobs(line)
    stopped, unstopped, seen = list[dict[str, Any]](), list[dict[str, Any]](), set[str]()
    while busy:
        ended, late = _stop_jobs(line, busy, deadline)
        stopped += ended
        unstopped += late
        if late:
            tell(f"{_describe_jobs(late)} did not stop in time, and their pods go on. The next `rowlock up` finds them")
        seen |= {w["id"] for w in busy}
        busy = [w for w in _unfinished_jobs(line) if w["id"] not in seen]  # accepted earlier, listed only now
    return stopped, unstopped


def _refuse_new_jobs(line: CommandLine, seconds: float) -> bool:
    """Ask the server to refuse new jobs. False when it cannot, because it is too old or does not answer (which has been
    reported already)."""
    try:
        client.connect(line).post("/api/v1/drain", seconds=min(int(seconds) + 1, 3600))
    except CommandError:
        return False
    return True


def _reap_child(pid: int) -> None:
    """Reap the server if this process is its parent (in tests), so that it does not stay a zombie."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _unfinished_jobs(line: CommandLine) -> list[dict[str, Any]]:
    """Jobs that have or will have pods; an empty list when the server does not answer."""
    try:
        workloads = _workloads(line)
    except CommandError as refusal:
        tell(f"The server did not answer when asked for its jobs: {refusal.message}")
        return []
    return [w for w in workloads if w["phase"] not in _ENDED_PHASES]


def _workloads(line: CommandLine) -> list[dict[str, Any]]:
    return client.list_all(client.connect(line), "/api/v1/workloads", "workloads")


def _running_pods(line: CommandLine) -> list[dict[str, Any]]:
    """Pods that are bound and have not ended; an empty list when the server does not answer."""
    try:
        pods = client.connect(line).get("/api/v1/pods")["items"]
    except CommandError:
        return []
    return [p for p in pods if p["spec"].get("nodeName") and not _has_ended(p)]


def _has_ended(pod: dict[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _leftover_pods(line: CommandLine) -> list[dict[str, Any]]:
    """Pods that still run although their job has ended: a job ends with rank 0, and cleanPodPolicy None keeps the others."""
    if not (pods := _running_pods(line)):
        return []
    try:
        workloads = _workloads(line)
    except CommandError:
        return []
    over, others = set[tuple[str, str]](), set[tuple[str, str]]()
    for w in workloads:
        (over if w["phase"] in ("Completed", "Failed") else others).add((w["namespace"], w["name"]))
    owners = (
        (p, {(p["metadata"]["namespace"], r["name"]) for r in p["metadata"].get("ownerReferences", ())}) for p in pods
    )
    return [p for p, names in owners if names & (over - others)]


def _delete_leftover_pods(line: CommandLine, limit: float) -> None:
    """Delete pods that outlive their job, and report that: a job that has ended cannot be suspended."""
    leftover, server = _leftover_pods(line), client.connect(line)
    if not leftover:
        return
    for pod in leftover:
        with contextlib.suppress(
            client.StatusError
        ):  # the pod has ended meanwhile, or the user may not delete it: the list below shows which
            server.delete(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}")
    uids, deadline = {p["metadata"]["uid"] for p in leftover}, time.monotonic() + min(limit, _STOP_TIMEOUT)
    while remaining := [p for p in _running_pods(line) if p["metadata"]["uid"] in uids]:
        if time.monotonic() > deadline:
            tell(f"{_describe_leftover(remaining)} did not stop in time. The next `rowlock up` finds them")
            break
        time.sleep(_POLL_INTERVAL)
    remaining_uids = {p["metadata"]["uid"] for p in remaining}
    if deleted := [p for p in leftover if p["metadata"]["uid"] not in remaining_uids]:
        tell(f"{_describe_leftover(deleted)}: deleted")


def _await_ending_pods(line: CommandLine, limit: float) -> bool:
    """Wait for pods that end by themselves: nobody would ask or kill their programs once the server is gone. What remains is reported.
    False if some remain."""
    began = time.monotonic()
    deadline, is_announced = began + min(limit, _STOP_TIMEOUT), False
    while names := _ending_pods(line):
        which = f"{len(names)} {'pods that are' if len(names) != 1 else 'pod that is'} being deleted ({_first_names(names)})"
        now = time.monotonic()
        if now > deadline:
            rest = "their programs go" if len(names) != 1 else "its program goes"
            tell(f"{which} did not end in time: {rest} on, and the next `rowlock up` ends them")
            return False
        if now - began > _ANNOUNCED_WAIT and not is_announced:
            is_announced = True
            tell(f"Waiting up to {deadline - now:.0f} s for {which}")
        time.sleep(_ENDING_INTERVAL)
    return True


def _ending_pods(line: CommandLine) -> list[str]:
    """`namespace/name` of the pods that the server is about to end; none when it is older than the question, or does not answer."""
    try:
        return [str(name) for name in client.connect(line).get("/api/v1/drain/pods")["endingPods"]]
    except CommandError:
        return []


def _describe_leftover(pods: list[dict[str, Any]]) -> str:
    which, verb = ("pods", "run") if len(pods) != 1 else ("pod", "runs")
    return f"{len(pods)} {which} that {verb} on after the end of a job ({_first_names(_full_names(pods))})"


def _full_names(pods: list[dict[str, Any]]) -> list[str]:
    return [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods]


def _warn_about_bare_pods(line: CommandLine) -> bool:
    """Warn that pods without a controller keep running: they cannot be suspended, and rowlock does not delete them. False if there are none."""
    bare = _full_names([pod for pod in _running_pods(line) if not pod["metadata"].get("ownerReferences")])
    if bare:
        which, verb, them = ("pods", "go", "them") if len(bare) != 1 else ("pod", "goes", "it")
        tell(
            f"{len(bare)} {which} without a job {verb} on ({_first_names(bare)}). The next `rowlock up` finds {them}; `kubectl delete pod` stops {them}"
        )
    return bool(bare)


def _confirm_stop(line: CommandLine, count: str) -> None:
    if line.yes or line.stop_jobs:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{count}: stop with --yes, or leave pods running with --keep-jobs")
    if ask(f"{count} will be stopped. Go on? [y/N] ") not in ("y", "yes"):
        raise CommandError("Nothing was stopped.")


def _describe_jobs(busy: list[dict[str, Any]]) -> str:
    return f"{len(busy)} unfinished {'jobs' if len(busy) != 1 else 'job'} ({_first_names([w['name'] for w in busy])})"


def _first_names(names: list[str]) -> str:
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")


def _stop_jobs(
    line: CommandLine, busy: list[dict[str, Any]], deadline: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Suspend every unfinished job and wait until its pods are gone; `rowlock resume` starts it again. Returns the stopped jobs, and those
    whose pods are still there at the deadline. Jobs that are deleted meanwhile are neither."""
    server = client.connect(line)
    for workload in busy:
        try:
            suspend_job(server, str(workload["id"]), "rowlock down")
        except client.StatusError as refusal:
            if refusal.status not in (404, 409):
                raise
    stopped, unstopped = list[dict[str, Any]](), list[dict[str, Any]]()
    for workload in busy:
        path, remaining = f"/api/v1/workloads/{workload['id']}/wait", max(0.0, deadline - time.monotonic())
        try:
            latest = server.get(path, **{"for": ",".join(_ENDED_PHASES), "timeout": round(remaining, 3)})
        except client.StatusError:
            continue  # the job has been deleted meanwhile
        if latest["phase"] in ("Deleting", "Deleted"):
            continue
        (stopped if latest["phase"] in _ENDED_PHASES else unstopped).append(workload)
    return stopped, unstopped
