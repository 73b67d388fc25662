"""A sweep as the REST API answers it: counts of its runs, and the runs themselves."""

from __future__ import annotations

from collections.abc import Mapping

from rowlock import objects
from rowlock.answers import sweeps as answers
from rowlock.objects import Object
from rowlock.rest.informers import InformerCache
from rowlock.sweeps.run_stops import is_stopped_with_sweep
from rowlock.sweeps.sweep import Sweep, begun_runs, index_of, is_stopped
from rowlock.workloads import runai_json
from rowlock.workloads.history import suspended_sentence
from rowlock.workloads.phase import TERMINAL, is_stopped_early
from rowlock.workloads.projects import Project

_LONGEST_COMMAND = 2_000
"""Characters of a run's command in a list of runs."""
REFUSED = "It was not written by this server, or was changed since, and makes no runs: submit it again."


def find_runs(cache: InformerCache, config_map: Object, sweep: Sweep, numbers: range) -> dict[int, Object]:
    """The jobs of these runs that exist and that the caller may read, by number."""
    found: dict[int, Object] = {}
    for index in numbers:
        job = cache.job(cache.job_uid(sweep.run_id(index)))
        if job is None or objects.namespace(job) != objects.namespace(config_map):
            continue
        if objects.is_controlled_by(job, objects.uid(config_map)) and index_of(job, sweep) == index:
            found[index] = job
    return found


def begun(config_map: Object, sweep: Sweep, runs: Mapping[int, Object]) -> int:
    """Runs with a lower number than this were made."""
    return max([min(begun_runs(config_map), sweep.total), *(index + 1 for index in runs)])


def sweep_json(
    project: Project, config_map: Object, sweep: Sweep, runs: Mapping[int, Object], cache: InformerCache
) -> answers.Sweep:
    """A sweep in a list. `runs`: its jobs, by number."""
    phases = [cache.phase(objects.uid(job)) for job in runs.values()]
    made = begun(config_map, sweep, runs)
    early = sum(
        is_stopped_early(job) and phase not in TERMINAL for job, phase in zip(runs.values(), phases, strict=True)
    )
    suspended = sum(
        is_stopped_with_sweep(job) and phase not in TERMINAL for job, phase in zip(runs.values(), phases, strict=True)
    )
    ended = sum(phase in TERMINAL for phase in phases) + early
    counts: answers.SweepCounts = {
        "total": sweep.total,
        "begun": made,
        "unfinished": len(phases) - ended - suspended,
        "completed": phases.count("Completed"),
        "failed": phases.count("Failed"),
        "stopped": early,
        "suspended": suspended,
        "deleted": made - len(runs),
    }
    phase: answers.SweepPhase = "Running"
    if made == sweep.total and ended == len(runs):
        phase = "Completed"
    elif is_stopped(config_map):
        phase = "Stopped"
    return {
        "id": sweep.id,
        "name": sweep.name,
        "projectName": project.name,
        "namespace": objects.namespace(config_map),
        "createdAt": runai_json.created_at(config_map),
        "createdBy": sweep.submitter.user,
        "phase": phase,
        "message": "",
        "search": sweep.search,
        "seed": sweep.seed,
        "maxParallel": sweep.max_parallel,
        "metric": sweep.metric,
        "order": "max" if sweep.is_max else "min",
        "stop": "asha" if sweep.stop_first else "",
        "stopAfter": sweep.stop_first,
        "parameters": list(sweep.names),
        "submitCommand": sweep.command,
        "runs": counts,
    }


def run_json(sweep: Sweep, index: int, job: Object | None, made: int, cache: InformerCache) -> answers.SweepRun:
    """A run of a sweep, without its metric."""
    status = cache.status(objects.uid(job)) if job is not None else None
    phase = status.phase if status else "Deleted" if index < made else "Waiting"
    return {
        "index": index,
        "name": sweep.run_name(index),
        "id": sweep.run_id(index),
        "phase": phase,
        "message": _message(job, status.message or "") if job is not None and status else "",
        "parameters": sweep.parameters(index),
        "metric": None,
        "command": cut_command(command_of(job)),
    }


def command_of(job: Object | None) -> list[str]:
    """What the pods of a run's job run; [] before it is made."""
    container = runai_json.main_container(job) if job is not None else {}
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def cut_command(command: list[str]) -> list[str]:
    """The beginning of a command, for a list of a thousand runs: a word that is cut, or stands for others, ends with an ellipsis."""
    shown, left = list[str](), _LONGEST_COMMAND
    for word in command:
        if len(word) > left:
            return [*shown, f"{word[:left]}…"]
        shown.append(word)
        left -= len(word) + 1
    return shown


def _message(job: Object, message: str) -> str:
    return suspended_sentence(job) if is_stopped_early(job) or is_stopped_with_sweep(job) else message
